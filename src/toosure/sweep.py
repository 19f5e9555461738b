"""Many runs one after another: complete ones are skipped, what fails does not stop the rest."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from toosure.config import RunConfig, sweep_of
from toosure.data import Dataset
from toosure.runs import Run
from toosure.train import Means, train
from toosure.train.loop import load_data
from toosure.train.show import Show

__all__ = ["Sweep", "sweep", "sweep_of"]


@dataclass
class Sweep:
    """Hold the runs of a sweep in order, and what went wrong by run name."""

    runs: list[Run] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    stopped: bool = False


def sweep(
    configs: Iterable[RunConfig],
    out: str | Path = "runs",
    means: Means | None = None,
    show: Show | None = None,
) -> Sweep:
    """Carry out every run; repeating a sweep finishes what is missing.

    >>> import tempfile
    >>> configs = sweep_of(data=["digits:train=100"], steps=[2], seed=[0, 1])
    >>> [run.status for run in sweep(configs, tempfile.mkdtemp()).runs]
    ['complete', 'complete']
    """
    means, show, done = means or Means(), show or Show(), Sweep()
    loaded = Loaded(means)
    for config in configs:
        try:
            run = train(config, out, means, show, loaded.of(config, Path(out)))
        except (ValueError, RuntimeError) as error:  # torch's, too: a shape, the GPU's memory
            done.failures[config.name] = str(error)
            show.say(f"failed: {config.name}: {error}")
            continue
        done.runs.append(run)
        if run.status == "stopped":
            done.stopped = True
            break
    return done


@dataclass
class Loaded:
    """Keep the data of the last run, for the next one usually has the same."""

    means: Means
    word: str = ""
    data: Dataset | None = None

    def of(self, config: RunConfig, out: Path) -> Dataset | None:
        """Return the data, or nothing for a run that has ended and needs none."""
        folder = out / config.name
        if (folder / "status.json").is_file() and Run(folder).status in ("complete", "diverged"):
            return None
        if config.data != self.word:
            self.data = None  # free the old before the new is loaded
            self.data, self.word = load_data(config, self.means), config.data
        return self.data
