"""Differences between settings on the same examples, with intervals.

Every run's last predictions are scored on the same resampled examples, so that what two runs share
(hard examples) cancels in their difference.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from toosure.figures import Group
from toosure.page.half_intervals import PlusMinus, half_interval_of_mean
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
class Comparison:
    """The settings that were judged on the same examples."""

    split: str
    n: int
    settings: Mapping[str, SettingScores]  # by label

    def difference(self, label: str, reference: str) -> dict[str, PlusMinus]:
        """Return how much higher each score of one setting is than the reference's."""
        one = self.settings[label]
        other = self.settings[reference]
        error = NORMAL_95 * (one.samples - other.samples).std(axis=0, ddof=1)
        half = np.hypot(error, seed_half(one, other))
        pairs = zip(KEYS, one.values - other.values, half, strict=True)
        return {key: PlusMinus(float(value), float(width)) for key, value, width in pairs}


def seed_half(one: SettingScores, other: SettingScores) -> np.ndarray:
    """Return half the interval of a difference that the seeds give; 0 for single ones; (4,).

    Where both settings have the same seeds, seed by seed, since a seed stands for the same data
    and the same initial weights; else from the two spreads.
    """
    if one.seeds == other.seeds:
        return half_interval_of_mean(one.by_seed - other.by_seed)
    return np.asarray(
        np.hypot(half_interval_of_mean(one.by_seed), half_interval_of_mean(other.by_seed))
    )


def compare(groups: Sequence[Group]) -> Comparison | None:
    """Compare settings on test data, or on validation data where some have no others.

    Nothing where fewer than two have predictions of the same examples.
    """
    for split in ("test", "val"):
        settings = same_examples({group.label: seeds_of(group, split) for group in groups})
        if len(settings) > 1:
            any_seeds = next(iter(settings.values()))
            n = next(iter(any_seeds.values())).n
            scores = {label: setting_scores(seeds) for label, seeds in settings.items()}
            return Comparison(split, n, scores)
    return None


def same_examples(settings: Mapping[str, Seeds]) -> dict[str, Seeds]:
    """Keep what was judged on the same examples, of every setting that has such runs.

    A seed may split the data, too. Then each seed has examples of its own, and settings compare
    where they have the same seeds and, seed by seed, the same examples.
    """
    if alike_seed_by_seed(settings):
        return dict(settings)

    # Else those examples count that most runs were judged on.
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
    """Return the replicas of every seed that kept predictions and ended as it should."""
    seeds = {}
    for run in group.runs:
        if run.status in ("complete", "ended"):
            replicas = replicas_of_run(run, split)
            if replicas is not None:
                seeds[str(run.config.get("seed", run.id))] = replicas
    return seeds


def setting_scores(seeds: Mapping[str, Replicas]) -> SettingScores:
    """Return the scores of one setting from those of its seeds."""
    values = np.stack([each.values for each in seeds.values()])  # (seeds, 4)
    samples = np.mean([each.samples for each in seeds.values()], axis=0)
    return SettingScores(tuple(seeds), values, samples)
