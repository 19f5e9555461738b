"""Whether chance explains the misses of each predicted class.

The hypothesis. A row of confidence c is right with probability f(c), whatever its predicted class.
Calibration is f(c) = c. Any other f is an error that all classes share, and the verdict states it
by other numbers (the gap, the ECE). The test asks whether classes differ beyond that.

The test. Rows are cut into strata of nearly equal confidence. Under the hypothesis the m_s misses
of a stratum fall on its n_s rows at random: the misses of class k, which has n_ks of these rows,
are hypergeometric with mean n_ks m_s / n_s. Sums over strata are compared, as Mantel & Haenszel
(1959) do, with many random permutations of the misses. Nothing is fitted and no tail is
approximated: the test is as good for twenty rows of 99 % as for ten thousand of 70 %.

Many classes. The misses O of each class are turned into a score, the signed root of their deviance
from the expected E. It is nearly normal also where E is below 1 (O = 1 at E = 0.05 scores 2.0
standard deviations, not 4.2). The p-value of a class is how often the largest score of *any* class
is as large in a permutation (Westfall & Young 1993). So 5 % of calibrated models have a class below
0.05, however many classes there are.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from toosure.metrics.predicted_classes import ClassTable

MAX_GROUPS = 500  # more are merged: a union of independent groups is a group, too
MAX_NUMBERS = 1 << 18  # permutations times classes: many classes get fewer permutations,
MIN_PERMUTATIONS = 400  # but at least these, if as many were asked for


class ClassChance(NamedTuple):
    """How each class compares with chance."""

    variance: np.ndarray  # (K,) of its misses
    permutations: np.ndarray  # (samples, K) misses above the expected, by chance
    adjusted_p: np.ndarray  # (K,) how often chance lets any class stand out as far
    inflation: np.ndarray  # (K,) standard deviation of the misses, over the permuted ones


def chance_of_rows(table: ClassTable, seed: int, samples: int) -> ClassChance:
    """Permute the misses of each stratum among its rows, which are independent."""
    misses = table.misses.sum(0).cpu().numpy()
    expected = table.expected().cpu().numpy()
    variance = table.variance().cpu().numpy()
    rows = table.rows().cpu().numpy()

    samples = min(samples, max(MIN_PERMUTATIONS, MAX_NUMBERS // len(rows)))
    permutations = permuted_misses(table, np.random.default_rng(seed), samples)
    observed = root_deviance(misses, expected, rows, variance)
    drawn = root_deviance(permutations, expected, rows, variance)
    p = adjusted_p(observed, drawn)

    # A class that misses more than others at its confidences varies more than its permutations.
    permuted = np.maximum(expected * (rows - expected), 1e-300)
    inflation = np.sqrt(np.clip(misses * (rows - misses) / permuted, 1, rows))
    return ClassChance(variance, permutations - expected, p, inflation)


def permuted_misses(table: ClassTable, generator: np.random.Generator, samples: int) -> np.ndarray:
    """Return the misses of each class in each of `samples` permutations, (samples, K)."""
    counts = table.counts.long().cpu().numpy()
    of_strata = table.misses.sum(1).long().tolist()
    total = np.zeros((samples, counts.shape[1]), dtype=np.int64)

    for of_class, misses in zip(counts, of_strata, strict=True):
        rows = int(of_class.sum())
        if misses in (0, rows):
            total += of_class * (misses > 0)
            continue
        # Both ways are exact: the first takes time for each miss, the second for each class.
        few = min(misses, rows - misses) < 10 * len(of_class)
        total += generator.multivariate_hypergeometric(
            of_class, misses, samples, method="count" if few else "marginals"
        )
    return total.astype(np.float64)


def chance_of_groups(
    table: ClassTable, correct: Tensor, groups: Tensor, seed: int, samples: int
) -> ClassChance:
    """Flip the sign of each group's misses above the expected: groups are independent, rows not.

    Under the hypothesis the sum of a class over a group has mean 0. It keeps its size and gets a
    random sign (the wild bootstrap, Wu 1986). A class in three groups only is never named: in a
    quarter of the flips all three have the same sign. Where few hits, or misses, are expected and
    none came, groups hardly differ: what is observed varies at least as over independent rows.
    """
    above = (~correct).double() - table.rates()[table.stratum]
    width = len(table.classes)
    blocks = min(MAX_GROUPS, int(groups.max()) + 1)
    cell = (groups % MAX_GROUPS) * width + table.place
    sums = torch.bincount(cell, above, minlength=blocks * width).view(blocks, width).cpu().numpy()

    signs = np.random.default_rng(seed).choice((-1.0, 1.0), (samples, blocks))
    permutations = signs @ sums
    variance = np.square(sums).sum(0)
    spread = np.sqrt(np.where(variance > 0, variance, np.inf))
    least = np.sqrt(np.maximum(spread**2, table.variance().cpu().numpy()))
    p = adjusted_p(sums.sum(0) / least, permutations / spread)
    return ClassChance(variance, permutations, p, np.ones(width))


def adjusted_p(observed: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Return how often the largest drawn score of any class is as large as each observed one."""
    largest = np.abs(drawn).max(1)
    as_large = largest[:, None] >= np.abs(observed) - 1e-9  # ties, up to rounding
    share: np.ndarray = (1 + as_large.sum(0)) / (1 + len(drawn))
    return share


def root_deviance(
    misses: np.ndarray, expected: np.ndarray, rows: np.ndarray, variance: np.ndarray
) -> np.ndarray:
    """Return misses above the expected in standard deviations, by the binomial deviance.

    sign(O - E) sqrt(2 (O log(O / E) + (n - O) log((n - O) / (n - E))) E (1 - E / n) / V), which is
    (O - E) / sqrt(V) where that is small; 0 where chance leaves no choice (V = 0).

    >>> few = root_deviance(np.array([1.0]), np.array([0.05]), np.array([1e6]), np.array([0.05]))
    >>> [round(score, 2) for score in few.tolist()]
    [2.02]
    """
    hits = rows - misses
    deviance = times_log(misses, expected) + times_log(hits, rows - expected)
    binomial = expected * (1 - expected / rows)
    scale = np.divide(binomial, variance, out=np.zeros_like(variance), where=variance > 0)
    scores: np.ndarray = np.sign(misses - expected) * np.sqrt(np.maximum(0, 2 * deviance * scale))
    return scores


def times_log(count: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return x log(x / e), 0 for x = 0."""
    ratio = np.divide(count, expected, out=np.ones_like(count), where=(count > 0) & (expected > 0))
    product: np.ndarray = count * np.log(ratio)
    return product
