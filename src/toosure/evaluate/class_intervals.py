"""Intervals of the gaps of predicted classes, and of how far the classes differ."""

import numpy as np
import torch
from torch import Tensor

from toosure.evaluate.class_chance import ClassChance, root_deviance
from toosure.evaluate.estimates import Estimate
from toosure.metrics.predicted_classes import ClassTable
from toosure.quantiles import normal_quantile, student_quantile

MIN_RHO = 0.1  # few rows may seem to be told apart perfectly
HALVINGS = 40  # of the range of a rate
SIZES = 201  # of a spread that are tried for its interval


def gap_ends_of_rows(table: ClassTable, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Return both ends of each class's gap, (K,) each, of independent rows.

    They hold for given confidences: the rate of misses is the one unknown, and the interval is
    of the rates that the misses, less or plus half a row, do not refute by the score of the test.
    For equal rows this is within some per cent of Clopper & Pearson (1934). Misses of rows some of
    which are sure vary less than those of equal rows, by the factor `rho_of`.
    """
    normal = normal_quantile(0.5 + level / 2)
    rows = table.rows().cpu().numpy()
    misses = table.misses.sum(0).cpu().numpy()
    rho = rho_of(table, misses, rows, normal)

    def refuted(count: np.ndarray, rate: np.ndarray) -> np.ndarray:
        expected = rows * rate
        score = root_deviance(count, expected, rows, rho * expected * (1 - rate))
        beyond: np.ndarray = np.abs(score) > normal
        return beyond

    def last_possible(count: np.ndarray, outside: np.ndarray) -> np.ndarray:
        """Halve between the observed rate and one that is too far."""
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


def rho_of(table: ClassTable, misses: np.ndarray, rows: np.ndarray, normal: float) -> np.ndarray:
    """Return by what factor the misses of each class vary less than those of equal rows, (K,).

    rho = sum_s n_ks r_s (1 - r_s) / (n_k r (1 - r)), with the rates r_s of the strata and their
    mean r over the rows of the class. It is about variances, which say little of a few misses (or
    hits) m: it is drawn to 1 by m / (m + z^2).
    """
    rates = table.rates()
    mean = table.expected() / table.rows()
    within = (rates * (1 - rates)) @ table.counts / table.rows()
    rho = (within / (mean * (1 - mean))).nan_to_num(nan=1.0)  # 0 / 0: no misses

    rarer = np.minimum(misses, rows - misses)
    weight = rarer / (rarer + normal**2)
    drawn: np.ndarray = 1 - (1 - rho.clamp(MIN_RHO, 1).cpu().numpy()) * weight
    return drawn


def gap_ends_of_groups(
    table: ClassTable, gaps: Tensor, groups: Tensor, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the same where groups are independent and their rows are not: Student's intervals.

    The variance of a mean over rows is G / (G - 1) sum_g (S_g - n_g mean)^2 / n^2 over the G groups
    that hold the class, S_g the sum and n_g the rows of each. One group says nothing.
    """
    width = len(table.classes)
    cells, cell = (groups * width + table.place).unique(return_inverse=True)
    place = cells % width
    value = table.gaps()
    around = torch.bincount(cell, gaps) - torch.bincount(cell) * value[place]

    count = torch.bincount(place, minlength=width).double().numpy()
    squares = torch.bincount(place, around**2, minlength=width).numpy()
    freedom = np.maximum(count - 1, 1)
    error = np.sqrt(squares * count / freedom) / table.rows().numpy()
    factor = [student_quantile(0.5 + level / 2, each) for each in freedom.astype(int).tolist()]
    half = np.where(count > 1, np.array(factor) * error, 1.0)

    # An accuracy lies in [0, 1].
    middle = value.numpy()
    claimed = table.confidence.numpy()
    return np.maximum(middle - half, claimed - 1), np.minimum(middle + half, claimed)


def spread_of_classes(table: ClassTable, chance: ClassChance, level: float) -> Estimate:
    """Return the standard deviation of the classes' own parts, chance removed, and its interval.

    sum_k n_k / N (e_k^2 - v_k) estimates the square without bias. The interval holds each size that
    the observed sum of squares does not refute: what the deals add to parts of that size, in the
    proportions observed, is as large, or as small, in more than (1 - level) / 2 of them.
    """
    rows = table.rows().cpu().numpy()
    excess = table.excess().cpu().numpy()
    share = rows / rows.sum()
    by_chance = float(share @ (chance.variance / rows**2))
    total = float(share @ excess**2)
    if total == 0:
        return Estimate(0.0, 0.0, 0.0)

    # |s u + noise|^2 of each size s and deal; u are the proportions, of length 1. What chance adds
    # on average stays that of the deals, which the value is without.
    noise = chance.inflation * chance.deals / rows
    along = noise @ (share * excess / total**0.5)
    more = share @ ((chance.inflation**2 - 1) * chance.variance / rows**2)
    squares = noise**2 @ share - more
    sizes = np.linspace(0, total**0.5 + 6 * by_chance**0.5, SIZES)
    totals = sizes[:, None] ** 2 + 2 * sizes[:, None] * along + squares
    lowest, highest = np.quantile(totals, [0.5 - level / 2, 0.5 + level / 2], axis=1)

    value = max(0.0, total - by_chance) ** 0.5
    possible = sizes[(lowest <= total) & (total <= highest)].tolist()
    return Estimate(value, min([value, *possible]), max([value, *possible]))
