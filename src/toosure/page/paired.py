"""Differences between settings on the same examples, with intervals.

Every run's last predictions are scored on the same resampled examples, so that what two runs share
(hard examples) cancels in their difference. A page needs no torch: replicas are drawn here, as one
matrix of weights, and not by `toosure.metrics.resampler`.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from toosure.figures import Group
from toosure.runs import Run
from toosure.runs.array_file import read_arrays
from toosure.runs.regular_files import Signature, signature
from toosure.runs.run import DAMAGE

KEYS = ("accuracy", "nll", "ece", "smece")
NORMAL_95 = 1.959964  # standard errors on either side in a 95 % interval
BINS = 15
GRID = 20 * BINS  # cells of confidence: the bins are made of them, and smECE is smoothed on them
MODES = GRID // 2
MAX_REPLICAS = 200
MAX_DRAWS = 1_000_000  # replicas times examples
# Of Student's t at 95 %, by degrees of freedom from 1 on; the last serves for all above.
T_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


class ExampleScores(NamedTuple):
    """What a run says of each example: how sure, whether right, and the NLL."""

    confidence: np.ndarray  # (N,)
    correct: np.ndarray  # (N,)
    nll: np.ndarray  # (N,)


def example_scores(logits: np.ndarray, labels: np.ndarray) -> ExampleScores:
    """Score each example; one logit per example is that of class 1 against class 0.

    >>> scores = example_scores(np.log([[3.0, 1.0]]), np.array([0]))
    >>> round(float(scores.confidence[0]), 6), bool(scores.correct[0])
    (0.75, True)
    """
    logits = np.asarray(logits, dtype=float).reshape(len(labels), -1)  # (N, C)
    if logits.shape[1] == 1:
        logits = np.concatenate([np.zeros_like(logits), logits], axis=1)

    top = logits.max(1)
    normalizer = top + np.log(np.exp(logits - top[:, None]).sum(1))
    of_label = logits[np.arange(len(labels)), labels]
    return ExampleScores(
        np.exp(top - normalizer), logits.argmax(1) == labels, normalizer - of_label
    )


class Replicas(NamedTuple):
    """The scores of one run on all examples, and on resampled ones."""

    values: np.ndarray  # (4,) in the order of KEYS
    samples: np.ndarray  # (replicas, 4)
    n: int
    examples: str  # a digest of the labels: equal where the examples are


Seeds = Mapping[str, Replicas]  # of one setting, by seed


@lru_cache(maxsize=4)
def resampling_weights(n: int) -> np.ndarray:
    """Return how often each example is drawn in each replica: the same for all runs; (B, N)."""
    count = int(np.clip(MAX_DRAWS // max(1, n), 20, MAX_REPLICAS))
    draws = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), count)
    return draws.astype(np.float32)


def replicas_of(scores: ExampleScores) -> tuple[np.ndarray, np.ndarray]:
    """Return accuracy, NLL, ECE and smECE of all examples (4,) and of each replica (B, 4)."""
    n = len(scores.correct)
    weights = np.concatenate([np.ones((1, n), np.float32), resampling_weights(n)])

    # Examples in order of confidence, so that each cell of the grid is one stretch of them.
    order = np.argsort(scores.confidence, kind="stable")
    confidence = scores.confidence[order]
    residual = (scores.correct[order] - confidence).astype(np.float32)
    cell = np.clip(np.ceil(confidence * GRID).astype(int) - 1, 0, GRID - 1)
    filled, starts = np.unique(cell, return_index=True)
    gaps = np.zeros((len(weights), GRID))
    gaps[:, filled] = np.add.reduceat(weights[:, order] * residual, starts, axis=1) / n

    accuracy = weights @ scores.correct.astype(np.float32) / n
    nll = weights @ scores.nll.astype(np.float32) / n
    ece = np.abs(gaps.reshape(-1, BINS, GRID // BINS).sum(2)).sum(1)
    table = np.stack([accuracy, nll, ece, smooth_errors(gaps)], axis=1)
    return table[0], table[1:]


def smooth_errors(gaps: np.ndarray) -> np.ndarray:
    """Return smECE of each row of gaps over the cells, at the bandwidth of the first row; (B,).

    The gap as a cosine series, damped as by a reflected Gaussian: see `toosure.metrics.smece`.
    """
    centres = (np.arange(GRID) + 0.5) / GRID
    waves = np.cos(np.pi * np.outer(centres, np.arange(MODES)))  # (GRID, MODES)
    coefficients = gaps @ waves
    coefficients[:, 1:] *= 2

    def area(rows: np.ndarray, width: float) -> np.ndarray:
        damped = rows * np.exp(-0.5 * (np.pi * np.arange(MODES) * width) ** 2)
        return np.asarray(np.abs(damped @ waves.T).mean(1))  # (rows,)

    low, high = 0.0, 1.0
    for _ in range(20):  # the area falls with the width: one width equals its area
        middle = (low + high) / 2
        if area(coefficients[:1], middle)[0] > middle:
            low = middle
        else:
            high = middle
    return area(coefficients, high)


@lru_cache(maxsize=2048)
def replicas_in(file: Path, _: Signature | None, follow_links: bool, split: str) -> Replicas | None:
    """Return the replicas of a file of predictions as it is now; nothing where it has no such."""
    try:
        arrays = read_arrays(file, follow_links)
        labels = arrays[f"{split}_labels"].astype(int)
        if not len(labels):
            return None
        scores = example_scores(arrays[f"{split}_logits"], labels)
    except DAMAGE:
        return None
    if not np.isfinite(scores.nll).all():
        return None
    digest = hashlib.sha256(labels.tobytes()).hexdigest()
    return Replicas(*replicas_of(scores), len(labels), digest)


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


class Difference(NamedTuple):
    """A difference between two settings and half its 95 % interval."""

    value: float
    half: float

    @property
    def is_chance(self) -> bool:
        return not abs(self.value) > self.half


@dataclass(frozen=True)
class Comparison:
    """The settings that were judged on the same examples."""

    split: str
    n: int
    settings: Mapping[str, SettingScores]  # by label

    def difference(self, label: str, reference: str) -> dict[str, Difference]:
        """Return how much higher each score of one setting is than the reference's."""
        one = self.settings[label]
        other = self.settings[reference]
        error = NORMAL_95 * (one.samples - other.samples).std(axis=0, ddof=1)
        half = np.hypot(error, seed_half(one, other))
        pairs = zip(KEYS, one.values - other.values, half, strict=True)
        return {key: Difference(float(value), float(width)) for key, value, width in pairs}


def seed_half(one: SettingScores, other: SettingScores) -> np.ndarray:
    """Return half the interval of a difference that the seeds give; 0 for single ones; (4,).

    Where both settings have the same seeds, seed by seed, since a seed stands for the same data
    and the same initial weights; else from the two spreads.
    """
    if one.seeds == other.seeds:
        return interval_of_mean(one.by_seed - other.by_seed)
    return np.asarray(np.hypot(interval_of_mean(one.by_seed), interval_of_mean(other.by_seed)))


def interval_of_mean(values: np.ndarray) -> np.ndarray:
    """Return half the 95 % interval of the mean over rows, after Student; 0 for a single row."""
    rows = len(values)
    if rows < 2:
        return np.zeros(values.shape[1])
    factor = T_QUANTILES[min(rows - 2, len(T_QUANTILES) - 1)]
    return np.asarray(factor * values.std(axis=0, ddof=1) / np.sqrt(rows))


def compare(groups: Sequence[Group]) -> Comparison | None:
    """Compare settings on test data, or on validation data where some have no others.

    Nothing where fewer than two have predictions of the same examples.
    """
    for split in ("test", "val"):
        found = same_examples({group.label: seeds_of(group, split) for group in groups})
        if len(found) > 1:
            n = next(iter(next(iter(found.values())).values())).n
            settings = {label: setting_scores(seeds) for label, seeds in found.items()}
            return Comparison(split, n, settings)
    return None


def same_examples(found: Mapping[str, Seeds]) -> dict[str, Seeds]:
    """Keep what was judged on the same examples, of every setting that has such runs.

    A seed may split the data, too. Then each seed has examples of its own, and settings compare
    where they have the same seeds and, seed by seed, the same examples.
    """
    of_seed: dict[str, set[tuple[str, int]]] = {}
    for seeds in found.values():
        for seed, each in seeds.items():
            of_seed.setdefault(seed, set()).add((each.examples, each.n))
    alike = all(len(examples) == 1 for examples in of_seed.values())
    sizes = {n for examples in of_seed.values() for _, n in examples}
    if (
        alike
        and len(sizes) == 1
        and all(seeds.keys() == of_seed.keys() for seeds in found.values())
    ):
        return dict(found)

    counts = Counter(each.examples for seeds in found.values() for each in seeds.values())
    kept: dict[str, Seeds] = {}
    for label, seeds in found.items():
        shared = counts.most_common(1)[0][0] if counts else None
        same = {seed: each for seed, each in seeds.items() if each.examples == shared}
        if same:
            kept[label] = same
    return kept


def seeds_of(group: Group, split: str) -> Seeds:
    """Return the replicas of every seed that kept predictions and ended as it should."""
    found = {}
    for run in group.runs:
        if run.status in ("complete", "ended"):
            replicas = predictions_of(run, split)
            if replicas is not None:
                found[str(run.config.get("seed", run.id))] = replicas
    return found


def predictions_of(run: Run, split: str) -> Replicas | None:
    file = run.path / "predictions.npz"
    return replicas_in(file, signature(file), run.follow_links, split)


def setting_scores(seeds: Mapping[str, Replicas]) -> SettingScores:
    """Return the scores of one setting from those of its seeds."""
    values = np.stack([each.values for each in seeds.values()])  # (seeds, 4)
    samples = np.mean([each.samples for each in seeds.values()], axis=0)
    return SettingScores(tuple(seeds), values, samples)
