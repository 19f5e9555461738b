"""Differences between settings on the same examples, with intervals.

The last predictions of all runs are scored on the same resampled examples, so that effects that two
runs share (hard examples) cancel in their difference.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from toosure.figures import Group
from toosure.figures.groups import seed_of
from toosure.page.half_intervals import PlusMinus, interval_of_mean
from toosure.page.replicas import KEYS, Replicas, replicas_of_run
from toosure.quantiles import NORMAL_95

Seeds = Mapping[str, Replicas]  # of one setting, by seed


@dataclass(frozen=True)
class SettingScores:
    """The scores of one setting, seed by seed, and the mean of its replicas over the seeds."""

    seeds: tuple[str, ...]
    by_seed: np.ndarray  # (seeds, 4)
    samples: np.ndarray  # (replicas, 4)

    @property
    def values(self) -> np.ndarray:
        """Means over seeds; (4,)."""
        return np.asarray(self.by_seed.mean(0))


@dataclass(frozen=True)
class SettingComparison:
    """The settings that were judged on the same examples."""

    split: str
    n: int
    settings: Mapping[str, SettingScores]  # by label

    def difference(self, label: str, reference: str) -> dict[str, PlusMinus]:
        """Return how much higher each score of one setting is than the reference's."""
        one = self.settings[label]
        other = self.settings[reference]
        error = NORMAL_95 * (one.samples - other.samples).std(axis=0, ddof=1)
        seeds = seed_half(one, other)
        numbers = zip(one.values - other.values, np.hypot(error, seeds), seeds, strict=True)
        return {key: PlusMinus(*map(float, each)) for key, each in zip(KEYS, numbers, strict=True)}

    def seeds(self, label: str, reference: str) -> int:
        """Return how many seeds a difference is over: of the setting that has fewer, but several.

        It is 1 if neither has several.
        """
        counts = [len(self.settings[each].seeds) for each in (label, reference)]
        return min((count for count in counts if count > 1), default=1)


def seed_half(one: SettingScores, other: SettingScores) -> np.ndarray:
    """Return half the interval of a difference that is due to seeds; 0 for single ones; (4,).

    If both settings have the same seeds, it is of paired differences, since a seed stands for the
    same data and initial weights; else of both spreads.
    """
    if one.seeds == other.seeds:
        return interval_of_mean(one.by_seed - other.by_seed)
    return np.asarray(np.hypot(interval_of_mean(one.by_seed), interval_of_mean(other.by_seed)))


def compare_settings(groups: Sequence[Group]) -> SettingComparison | None:
    """Compare settings on test data, or on validation data if they share no test data.

    Return None if fewer than two have predictions of the same examples.
    """
    for split in ("test", "val"):
        settings = same_examples({group.label: seeds_of(group, split) for group in groups})
        if len(settings) > 1:
            any_seeds = next(iter(settings.values()))
            n = next(iter(any_seeds.values())).n
            scores = {label: setting_scores(seeds) for label, seeds in settings.items()}
            return SettingComparison(split, n, scores)
    return None


def same_examples(settings: Mapping[str, Seeds]) -> dict[str, Seeds]:
    """Keep the runs that were judged on the same examples, of every setting that has some.

    A seed may split the data, too, so that each seed has its own examples. Then settings are
    compared if they have the same seeds and, seed by seed, the same examples.
    """
    if alike_seed_by_seed(settings):
        return dict(settings)

    # Else take the examples that most runs were judged on.
    counts = Counter(each.examples for seeds in settings.values() for each in seeds.values())
    if not counts:
        return {}
    most_common = counts.most_common(1)[0][0]
    on_these = {
        label: {seed: each for seed, each in seeds.items() if each.examples == most_common}
        for label, seeds in settings.items()
    }
    return {label: seeds for label, seeds in on_these.items() if seeds}


def alike_seed_by_seed(settings: Mapping[str, Seeds]) -> bool:
    """Whether all settings have the same seeds, each with the same examples, equally many."""
    examples: dict[str, set[tuple[str, int]]] = {}
    for seeds in settings.values():
        for seed, each in seeds.items():
            examples.setdefault(seed, set()).add((each.examples, each.n))

    sizes = {n for of_seed in examples.values() for _, n in of_seed}
    return (
        all(len(of_seed) == 1 for of_seed in examples.values())
        and len(sizes) == 1
        and all(seeds.keys() == examples.keys() for seeds in settings.values())
    )


def seeds_of(group: Group, split: str) -> Seeds:
    """Return the replicas of every seed that ended properly and kept predictions, by seed."""
    seeds = {}
    for run in group.runs:
        if run.status in ("complete", "ended"):
            replicas = replicas_of_run(run, split)
            if replicas is not None:
                seeds[seed_of(run) or run.id] = replicas
    return dict(sorted(seeds.items()))


def setting_scores(seeds: Mapping[str, Replicas]) -> SettingScores:
    """Join the scores of the seeds of one setting."""
    values = np.stack([each.values for each in seeds.values()])  # (seeds, 4)
    samples = np.mean([each.samples for each in seeds.values()], axis=0)
    return SettingScores(tuple(seeds), values, samples)
