"""What chance makes of the misses of each predicted class, and which classes it does not explain.

The hypothesis. A row of confidence c is right with probability f(c), whatever its predicted class:
f(c) = c is calibration, and any other f an error that all classes share, which the verdict states
by other means (the gap, the ECE). What is tested here is whether classes differ beyond that.

The test. Rows are cut into strata of nearly equal confidence. Under the hypothesis the m_s misses
of a stratum fall on its n_s rows at random, so that class k, with n_ks of these rows, has a
hypergeometric number of them, of mean n_ks m_s / n_s; sums over strata are compared, as Mantel &
Haenszel (1959) do. Misses are dealt anew many times. Nothing is fitted and no tail is approximated:
the test is as good for twenty rows of 99 % as for ten thousand of 70 %.

Many classes. Each class's misses O are turned into a score, the signed root of their deviance from
the expected E, which is nearly normal also where E is below 1 (O = 1 at E = 0.05 has 2.0 and not
4.2 standard deviations). The p-value of a class is how often the largest score of *any* class is
as large in a deal (Westfall & Young 1993): of calibrated models, 5 % have a class below 0.05,
however many classes there are.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from toosure.metrics.predicted_classes import ClassTable

MAX_GROUPS = 500  # more are merged: a union of independent groups is one, too
MAX_DEALT = 1 << 18  # deals times classes: many classes get fewer deals,
MIN_DEALS = 400  # but so many, where as many were asked for


class ClassChance(NamedTuple):
    """How each class stands against chance."""

    variance: np.ndarray  # (K,) of its misses
    deals: np.ndarray  # (samples, K) misses above the expected, by chance
    adjusted_p: np.ndarray  # (K,) how often chance lets any class stand out so far
    inflation: np.ndarray  # (K,) by what factor a class's own misses vary more than those dealt


def chance_of_rows(table: ClassTable, seed: int, samples: int) -> ClassChance:
    """Deal the misses of each stratum anew among its rows, which are independent."""
    misses = table.misses.sum(0).cpu().numpy()
    expected = table.expected().cpu().numpy()
    variance = table.variance().cpu().numpy()
    rows = table.rows().cpu().numpy()

    samples = min(samples, max(MIN_DEALS, MAX_DEALT // len(rows)))
    deals = dealt_misses(table, np.random.default_rng(seed), samples)
    observed = root_deviance(misses, expected, rows, variance)
    drawn = root_deviance(deals, expected, rows, variance)
    p = adjusted_p(observed, drawn)

    # A class that misses more than others of its confidences varies more than its deals do.
    dealt = np.maximum(expected * (rows - expected), 1e-300)
    inflation = np.sqrt(np.clip(misses * (rows - misses) / dealt, 1, rows))
    return ClassChance(variance, deals - expected, p, inflation)


def dealt_misses(table: ClassTable, generator: np.random.Generator, samples: int) -> np.ndarray:
    """Return the misses of each class in each of `samples` deals, (samples, K)."""
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

    The sums of a class over groups, each of mean 0 under the hypothesis, keep their size and get a
    random sign (the wild bootstrap, Wu 1986). A class that only three groups hold is never called:
    in a quarter of the flips all three point the same way.
    """
    above = (~correct).double() - table.rates()[table.stratum]
    width = len(table.classes)
    blocks = min(MAX_GROUPS, int(groups.max()) + 1)
    cell = (groups % MAX_GROUPS) * width + table.place
    sums = torch.bincount(cell, above, minlength=blocks * width).view(blocks, width).cpu().numpy()

    signs = np.random.default_rng(seed).choice((-1.0, 1.0), (samples, blocks))
    deals = signs @ sums
    variance = np.square(sums).sum(0)
    spread = np.sqrt(np.where(variance > 0, variance, np.inf))
    p = adjusted_p(sums.sum(0) / spread, deals / spread)
    return ClassChance(variance, deals, p, np.ones(width))


def adjusted_p(observed: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Return how often the largest score of any class in a deal is as large as each observed."""
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
