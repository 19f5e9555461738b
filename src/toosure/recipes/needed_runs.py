"""Which runs of a recipe must still be trained: neither folder nor scores exist."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from toosure.config import RunConfig
from toosure.recipes.benchmark.score_files import saved_names
from toosure.recipes.benchmark.shift_scores import covers
from toosure.recipes.recipe import RunMixture, Setting
from toosure.runs import Run
from toosure.shifts.record import ShiftRecord
from toosure.train.shifts import can_be_judged


class SavedScores:
    """Names of runs and mixtures with saved scores, and which runs still need a folder.

    With `with_shifts`, scores count only if they were judged on shifts.
    """

    def __init__(
        self, setting: Setting, mixtures: Sequence[RunMixture] = (), with_shifts: bool = False
    ) -> None:
        self.names = saved_names(setting, with_shifts)
        self.mixtures = mixtures
        self.extra = {member.name for each in mixtures for member in each.extra}

        unscored = [each for each in mixtures if each.name not in self.names]
        self.to_be_mixed = {member.name for each in unscored for member in each.members}

    def needs_scores(self, config: RunConfig) -> bool:
        """Whether a run is shown alone and has no saved scores."""
        return config.name not in self.names and config.name not in self.extra

    def needs_folder(self, config: RunConfig) -> bool:
        """Whether a run needs a folder: its scores, or those of its mixture, are not saved."""
        return self.needs_scores(config) or config.name in self.to_be_mixed

    def has_any(self, configs: Iterable[RunConfig]) -> bool:
        """Whether one of these runs or mixtures has saved scores."""
        names = {config.name for config in configs} | {each.name for each in self.mixtures}
        return not names.isdisjoint(self.names)


def missing_configs(
    configs: Iterable[RunConfig], setting: Setting, out: Path, mixtures: Sequence[RunMixture] = ()
) -> Iterable[RunConfig]:
    """Yield the runs still to train: no finished folder and no saved scores.

    A member of a mixture without saved scores needs its folder, even if its own scores are saved.
    If shifts are asked for, runs that were not judged on all of them are missing too, unless their
    folder has lost its weights.
    """
    saved = SavedScores(setting, mixtures, with_shifts=bool(setting.shift))
    for config in configs:
        folder = out / config.name
        lacks_folder = saved.needs_folder(config) and not has_ended(folder)
        unjudged = setting.shift and saved.needs_scores(config)
        if lacks_folder or (unjudged and lacks_shifts(folder, config, setting)):
            yield config


def has_ended(folder: Path) -> bool:
    """Whether a run needs no more training, because it is complete or diverged."""
    return folder.is_dir() and Run(folder).status in ("complete", "diverged")


def lacks_shifts(folder: Path, config: RunConfig, setting: Setting) -> bool:
    """Whether a complete run was not judged on everything asked for, and still can be."""
    run = Run(folder)
    if ShiftRecord.read(run.shifts) is not None and covers(run.shifts, setting, config.data):
        return False
    return can_be_judged(run)
