"""Intervals of the gaps of predicted classes, and of how far the classes differ."""

import numpy as np
import torch
from torch import Tensor

from toosure.evaluate.class_chance import ClassChance, root_deviance
from toosure.evaluate.estimates import Estimate
from toosure.metrics.predicted_classes import ClassTable
from toosure.quantiles import normal_quantile, student_quantile

MIN_VARIANCE_RATIO = 0.1  # few rows may seem to be separated perfectly
HALVINGS = 40  # of the range of a rate
SIZES = 201  # sizes of a spread that are tried for its interval


def gap_ends_of_rows(table: ClassTable, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Return both ends of each class's gap over independent rows, (K,) each.

    The confidences are taken as given, so the rate of misses is the one unknown. The interval holds
    the rates that the misses, minus or plus half a row, do not refute by the score of the test. For
    equal rows this is within some per cent of Clopper & Pearson (1934). Where some rows are sure,
    misses vary less than those of equal rows, by the factor `variance_ratio`.
    """
    normal = normal_quantile(0.5 + level / 2)
    rows = table.rows().cpu().numpy()
    misses = table.misses.sum(0).cpu().numpy()
    ratio = variance_ratio(table, misses, rows, normal)

    def refuted(count: np.ndarray, rate: np.ndarray) -> np.ndarray:
        expected = rows * rate
        score = root_deviance(count, expected, rows, ratio * expected * (1 - rate))
        beyond: np.ndarray = np.abs(score) > normal
        return beyond

    def last_possible(count: np.ndarray, outside: np.ndarray) -> np.ndarray:
        """Bisect between the observed rate and one that is too far."""
        inside = misses / rows
        for _ in range(HALVINGS):
            middle = (inside + outside) / 2
            beyond = refuted(count, middle)
            inside = np.where(beyond, inside, middle)
            outside = np.where(beyond, middle, outside)
        return outside

    low = last_possible(np.maximum(misses - 0.5, 0), np.zeros_like(rows))
    high = last_possible(np.minimum(misses + 0.5, rows), np.ones_like(rows))
    doubt = 1 - table.confidence.cpu().numpy()
    return low - doubt, high - doubt


def variance_ratio(
    table: ClassTable, misses: np.ndarray, rows: np.ndarray, normal: float
) -> np.ndarray:
    """Return the variance of the misses of each class over the one of equal rows, (K,).

    rho = sum_s n_ks r_s (1 - r_s) / (n_k r (1 - r)), with the rates r_s of the strata and their
    mean r over the rows of the class. Variances say little about a few misses (or hits) m, so rho
    is pulled towards 1 by the factor m / (m + z^2).
    """
    rates = table.rates()
    mean = table.expected() / table.rows()
    within = (rates * (1 - rates)) @ table.counts / table.rows()
    rho = (within / (mean * (1 - mean))).nan_to_num(nan=1.0)  # 0 / 0: no misses

    rarer = np.minimum(misses, rows - misses)
    weight = rarer / (rarer + normal**2)
    ratio: np.ndarray = 1 - (1 - rho.clamp(MIN_VARIANCE_RATIO, 1).cpu().numpy()) * weight
    return ratio


def gap_ends_of_groups(
    table: ClassTable, gaps: Tensor, groups: Tensor, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return both ends of each class's gap, where groups are independent and rows are not.

    The intervals are Student's. The variance of a mean over rows is G / (G - 1)
    sum_g (S_g - n_g mean)^2 / n^2 over the G groups with the class, where S_g is the sum and n_g
    the number of rows of a group. One group says nothing. No interval is narrower than over
    independent rows: where all rows are right, or all wrong, groups do not differ.
    """
    width = len(table.classes)
    cells, cell = (groups * width + table.place).unique(return_inverse=True)
    place = cells % width
    value = table.gaps()
    deviations = torch.bincount(cell, gaps) - torch.bincount(cell) * value[place]

    count = torch.bincount(place, minlength=width).double().numpy()
    squares = torch.bincount(place, deviations**2, minlength=width).numpy()
    freedom = np.maximum(count - 1, 1)
    error = np.sqrt(squares * count / freedom) / table.rows().numpy()
    factor = [student_quantile(0.5 + level / 2, each) for each in freedom.astype(int).tolist()]
    half = np.where(count > 1, np.array(factor) * error, 1.0)

    # An accuracy lies in [0, 1].
    middle = value.numpy()
    confidence = table.confidence.numpy()
    low, high = gap_ends_of_rows(table, level)
    low = np.minimum(np.maximum(middle - half, confidence - 1), low)
    return low, np.maximum(np.minimum(middle + half, confidence), high)


def spread_of_classes(table: ClassTable, chance: ClassChance, level: float) -> Estimate:
    """Return the standard deviation of the classes' own parts, chance removed, and its interval.

    sum_k n_k / N (e_k^2 - v_k) estimates the square without bias. The interval holds each size that
    the observed sum of squares does not refute. For this, parts of that size, in the observed
    proportions, are added to the permutations: more than (1 - level) / 2 of these sums must be at
    least as large, and as many at least as small, as the observed one.
    """
    rows = table.rows().cpu().numpy()
    excess = table.excess().cpu().numpy()
    share = rows / rows.sum()
    by_chance = float(share @ (chance.variance / rows**2))
    total = float(share @ excess**2)
    if total == 0:
        return Estimate(0.0, 0.0, 0.0)

    # |s u + noise|^2 for each size s and permutation, where u are the proportions, of length 1. The
    # noise is inflated, but its mean stays the one of the permutations, as in the value.
    noise = chance.inflation * chance.permutations / rows
    along = noise @ (share * excess / total**0.5)
    added = share @ ((chance.inflation**2 - 1) * chance.variance / rows**2)
    squares = noise**2 @ share - added
    sizes = np.linspace(0, total**0.5 + 6 * by_chance**0.5, SIZES)
    totals = sizes[:, None] ** 2 + 2 * sizes[:, None] * along + squares
    lowest, highest = np.quantile(totals, [0.5 - level / 2, 0.5 + level / 2], axis=1)

    value = max(0.0, total - by_chance) ** 0.5
    possible = sizes[(lowest <= total) & (total <= highest)].tolist()
    return Estimate(value, min([value, *possible]), max([value, *possible]))
