"""One run of a sweep, wherever it happens: data kept for the next, errors turned into a result."""

import traceback
from dataclasses import dataclass
from pathlib import Path

from toosure.config import RunConfig
from toosure.data import Dataset
from toosure.processes import join
from toosure.runs.files import is_locked
from toosure.runs.write import RunError
from toosure.sweep.jobs import Result, is_finished
from toosure.train import Means, train
from toosure.train.bystander import give_up
from toosure.train.loading import load_data
from toosure.train.show import Show


@dataclass
class Loaded:
    """Keep the data of the last run, for the next one usually has the same."""

    means: Means
    word: str = ""
    data: Dataset | None = None

    def of(self, config: RunConfig, out: Path) -> Dataset | None:
        """Return the data, or nothing for a run that has ended and needs none."""
        if is_finished(out / config.name):
            return None
        if config.data != self.word:
            self.data, self.word = None, ""  # free the old before the new is loaded
            try:
                self.data, self.word = load_data(config, self.means), config.data
            except Exception as error:  # where the others have the data, they wait for us
                give_up(error, join(self.means.torch_device))
        return self.data


def carry_out(config: RunConfig, out: Path, means: Means, show: Show, loaded: Loaded) -> Result:
    """Train, or say why not: whatever goes wrong in a run is its own affair."""
    try:
        run = train(config, out, means, show, loaded.of(config, out))
        return Result("ended", run.status)
    except RunError as error:
        alone = join(means.torch_device).count == 1  # several would not wait equally long
        kind = "busy" if alone and is_locked(out / config.name) else "failed"
        return Result(kind, str(error))
    except (ValueError, RuntimeError) as error:  # torch's, too: a shape, the GPU's memory
        return Result("failed", str(error))
    except Exception as error:  # a mistake in somebody's code: say where
        show.say(traceback.format_exc().rstrip())
        return Result("failed", f"{type(error).__name__}: {error}")
