"""Estimates from confidences and hits: accuracy, the gap, the ECE of chance, changes of the ECE."""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from toosure.chance import FineCells, chance_errors, fine_cells
from toosure.metrics.binned import equal_width_edges, wilson_interval
from toosure.metrics.interval_ends import Interval
from toosure.metrics.resampler import Resampler
from toosure.predictions import Predictions

MAX_DRAWN = 1 << 22  # counts of cells that are drawn at a time


class Estimate(NamedTuple):
    """A value with its interval; the ends are None if it has no interval."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def half(self) -> float:
        """Half the width of the interval."""
        return math.inf if self.low is None or self.high is None else (self.high - self.low) / 2

    @property
    def has_interval(self) -> bool:
        """Whether there are two ends."""
        return self.low is not None and self.high is not None and not math.isnan(self.low)

    @property
    def ends(self) -> tuple[float, float]:
        """Both ends of the interval, or the value twice if it has no interval."""
        if not self.has_interval:
            return self.value, self.value
        assert self.low is not None and self.high is not None
        return self.low, self.high

    def as_json(self) -> list[float | None]:
        """Return value, low and high; None for what is missing or not finite."""
        return [v if v is not None and math.isfinite(v) else None for v in self]


def estimate_of(interval: Interval) -> Estimate:
    """Return an interval as plain numbers; ends that are NaN are left out."""
    value, low, high = (float(each) for each in interval)
    return Estimate(value) if math.isnan(low) or math.isnan(high) else Estimate(value, low, high)


def single_level(level: float, count: int) -> float:
    """Return the level of each of `count` intervals that hold jointly at `level` (Bonferroni)."""
    return 1 - (1 - level) / count


def hit_rate(correct: Tensor, level: float) -> Estimate:
    """Return the accuracy with Wilson's interval."""
    hits = correct.sum().double()
    n = torch.tensor(float(len(correct)), dtype=torch.float64)
    low, high = wilson_interval(hits, n, level).tolist()
    return Estimate(float(hits / n), low, high)


def cells_of(predictions: Predictions, bins: int, edge: str) -> FineCells:
    """Count the rows of predictions in fine cells of each bin."""
    confidence = predictions.confidence.detach().cpu().numpy()
    return fine_cells(confidence, predictions.correct.cpu().numpy(), bins, edge)


def confidence_gap(predictions: Predictions, level: float, seed: int, samples: int) -> Estimate:
    """Return mean confidence minus accuracy, above 0 where too sure, with its interval.

    A Bayesian bootstrap (Rubin 1981) with one imaginary row of mean confidence, right for the low
    end and wrong for the high one. If all confidences are equal, this is the exact interval of
    Clopper & Pearson (1934), for which ten right rows of ten do not mean an accuracy of 1. The
    interval is widened to hold 0 where hits drawn from the confidences show such a gap by chance.
    Rows are resampled by cells of nearly equal confidence (to 1/256), whatever n is.
    """
    generator = np.random.default_rng(seed)
    tails = (0.5 - level / 2, 0.5 + level / 2)
    n = predictions.n
    cells = cells_of(predictions, 16, "right")
    counts, hits, mean = (each.ravel() for each in cells)
    mean_confidence = counts @ mean / n

    # Rows that are right have a gap of confidence - 1, the others of confidence.
    sizes = np.concatenate([hits, counts - hits])
    gaps = np.concatenate([mean - 1, mean])
    gaps, sizes = gaps[sizes > 0], sizes[sizes > 0]
    value = sizes @ gaps / n

    weights = generator.standard_gamma(np.append(sizes, 1), (samples, len(sizes) + 1))
    weights /= weights.sum(1, keepdims=True)
    ends = [weights @ np.append(gaps, mean_confidence - hit) for hit in (1, 0)]
    low, high = (np.quantile(end, tail) for end, tail in zip(ends, tails, strict=True))

    by_chance = mean_confidence - cells.drawn_hits(generator, samples).sum((1, 2)) / n
    lowest, highest = np.quantile(by_chance, tails)
    return Estimate(
        float(value), float(min(low, value - highest)), float(max(high, value - lowest))
    )


def calibrated_ece(
    predictions: Predictions, bins: int, edge: str, level: float, seed: int, samples: int
) -> Estimate:
    """Return the ECE of labels drawn from the confidences themselves: its mean and interval."""
    errors = chance_errors(cells_of(predictions, bins, edge), seed, samples)
    low, high = np.quantile(errors, [0.5 - level / 2, 0.5 + level / 2])
    return Estimate(float(errors.mean()), float(low), float(high))


def ece_change(
    before: Predictions, after: Predictions, bins: int, level: float, seed: int, samples: int
) -> Estimate:
    """Return ECE after minus before on the same rows, with its interval; a single row has none.

    Rows are resampled in pairs, by their bins and hits before and after, so that many rows cost no
    more than few. `ece_change_over_groups` resamples whole groups of rows.
    """
    sides = [binned_rows(side, bins) for side in (before, after)]
    keys = sides[0][0] * 2 * bins + sides[1][0]
    cells, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    n = len(inverse)

    # For each side: the mean gap of every cell, the cells in the order of bins, and their starts.
    layouts = []
    for (_, gaps), cell_keys in zip(sides, divmod(cells, 2 * bins), strict=True):
        order = np.argsort(cell_keys // 2, kind="stable")
        begins = np.flatnonzero(np.diff(cell_keys[order] // 2, prepend=-1))
        layouts.append(((np.bincount(inverse, gaps) / counts)[order], order, begins))

    def changes(draws: np.ndarray) -> np.ndarray:
        """Return ECE after minus before for draws of cells, (draws,)."""
        old, new = (
            np.abs(np.add.reduceat(draws[:, order] * gaps, begins, axis=1)).sum(1) / n
            for gaps, order, begins in layouts
        )
        difference: np.ndarray = new - old
        return difference

    value = float(changes(counts[None])[0])
    if n < 2:
        return Estimate(value)

    draws = Resampler(seed, samples).cell_count_blocks(counts, MAX_DRAWN)
    replicas = np.concatenate([changes(block) for block in draws])
    low, high = np.quantile(replicas, [0.5 - level / 2, 0.5 + level / 2])
    return Estimate(value, *both_intervals(value, low, high))


def both_intervals(value: float, low: float, high: float) -> tuple[float, float]:
    """Return ends that hold the "percentile" interval [low, high] and the "basic" one.

    Noise makes a calibration error larger, and resampling does so again. For the change of such an
    error the first interval errs to one side and the second, [2v - high, 2v - low], to the other.
    """
    return float(min(low, 2 * value - high)), float(max(high, 2 * value - low))


def binned_rows(predictions: Predictions, bins: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two numbers per row: twice its bin (a, b] plus its hit, and confidence minus hit."""
    confidence = predictions.confidence
    index = torch.bucketize(confidence, equal_width_edges(bins, confidence)[1:-1])
    hits = predictions.correct.long()
    return (2 * index + hits).cpu().numpy(), (confidence.double() - hits).cpu().numpy()
