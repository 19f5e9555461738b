"""Histogram binning, and the Bayesian average of many histograms (BBQ)."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch

from toosure.metrics.binned import equal_width_edges
from toosure.metrics.inputs import check_bins
from toosure.posthoc.curves import FrequencyCurves

MAX_BINS = 10_000  # of a histogram; a curve of each class keeps them all
PRIOR = 2.0  # N' of BBQ


class HistogramBinning(FrequencyCurves):
    """Replace each class's probability by how often the class is true in its bin; renormalise.

    f_k(p) is the frequency of class k among the rows with p_k in the same of `bins` equal-width
    bins (a, b]; for an empty bin it is the middle of the bin.

    Reference: Zadrozny and Elkan (2001), Obtaining calibrated probability estimates from decision
    trees and naive Bayesian classifiers

    >>> logits = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    >>> labels = torch.multinomial((3 * logits).softmax(1), 1,
    ...     generator=torch.Generator().manual_seed(1)).squeeze(1)
    >>> HistogramBinning(bins=5).fit(logits, labels).values.shape
    torch.Size([3, 6])
    """

    def __init__(self, bins: int = 15) -> None:
        super().__init__()
        check_bins(bins)
        if bins > MAX_BINS:
            raise ValueError(f"bins must be at most {MAX_BINS:,}; got {bins:,}")
        self.bins = bins

    def curve(self, probs: np.ndarray, hits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the edges, and the frequency above each."""
        return bin_frequencies(probs, hits, self.bins)


def bin_frequencies(
    probs: np.ndarray, hits: np.ndarray, bins: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the bins + 1 edges and the frequency in each bin (a, b], the last one repeated."""
    edges = equal_width_edges(bins, torch.empty(0, dtype=torch.float64)).numpy()
    index = np.searchsorted(edges[1:-1], probs)
    counts = np.bincount(index, minlength=bins)
    frequencies = np.bincount(index, hits, minlength=bins) / np.maximum(counts, 1)
    values = np.where(counts > 0, frequencies, (edges[:-1] + edges[1:]) / 2)
    return edges, np.append(values, values[-1])


class BBQ(FrequencyCurves):
    """Average equal-mass histograms of many sizes by their Bayesian score, and renormalise.

    For each class and each number of bins B from n^(1/3)/10 to 10 n^(1/3), with the prior N' = 2
    and a_b = N'/B * middle_b, c_b = N'/B - a_b for m_b hits among n_b rows of bin b:
    score = prod_b Gamma(N'/B)/Gamma(n_b + N'/B) * Gamma(m_b + a_b)/Gamma(a_b)
    * Gamma(n_b - m_b + c_b)/Gamma(c_b), value_b = (m_b + a_b)/(n_b + N'/B).

    Reference: Naeini et al. (2015), Obtaining well calibrated probabilities using Bayesian binning

    >>> logits = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    >>> BBQ().fit(logits, logits.argmax(1)).at.shape[0]
    3
    """

    def curve(self, probs: np.ndarray, hits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the steps of the weighted average."""
        root = len(probs) ** (1 / 3)
        sizes = range(max(1, round(root / 10)), max(2, round(10 * root)) + 1)
        return averaged_binnings(probs, hits, sizes)[:2]


def averaged_binnings(
    probs: np.ndarray, hits: np.ndarray, sizes: Iterable[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the steps (at, values) of the average over `sizes` bins, and the log scores."""
    order = np.argsort(probs, kind="stable")
    sorted_probs = probs[order]
    summed_hits = np.append(0, np.cumsum(hits[order]))
    binnings = [scored_binning(sorted_probs, summed_hits, size) for size in sizes]

    scores = np.array([binning.log_score for binning in binnings])
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()

    # The average steps at the edges of each binning; those without weight would only make the
    # curve longer.
    weighty = weights > 1e-12 * weights.max()
    edges = [binning.edges for binning, use in zip(binnings, weighty, strict=True) if use]
    at = np.unique(np.concatenate(edges))
    values = np.zeros(len(at))
    for binning, weight in zip(binnings, weights, strict=True):
        index = np.searchsorted(binning.edges[1:-1], at, side="right")
        values += weight * binning.frequencies[index]
    return at, values, scores


class Binning(NamedTuple):
    """One histogram of BBQ's average."""

    edges: np.ndarray  # (bins + 1,)
    frequencies: np.ndarray  # (bins,)
    log_score: float


def scored_binning(probs: np.ndarray, summed_hits: np.ndarray, bins: int) -> Binning:
    """Return the histogram of sorted probs in bins of equal mass, ties together, and its score."""
    from scipy.special import gammaln

    # The first row of each bin but the first; equal probabilities share a bin.
    n = len(probs)
    cuts = np.unique(np.rint(np.arange(1, bins) * n / bins).astype(int))
    cuts = np.unique(np.searchsorted(probs, probs[cuts[(cuts > 0) & (cuts < n)]]))
    cuts = cuts[cuts > 0]

    edges = np.concatenate([[0.0], (probs[cuts - 1] + probs[cuts]) / 2, [1.0]])
    bounds = np.concatenate([[0], cuts, [n]])
    rows = np.diff(bounds)
    hits = np.diff(summed_hits[bounds])

    # The formula of `BBQ`, with share = N'/B.
    share = PRIOR / len(rows)
    middle = np.clip((edges[:-1] + edges[1:]) / 2, 1e-6, 1 - 1e-6)
    a = share * middle
    c = share * (1 - middle)
    score = gammaln(share) - gammaln(rows + share) + gammaln(hits + a) - gammaln(a)
    score += gammaln(rows - hits + c) - gammaln(c)
    return Binning(edges, (hits + a) / (rows + share), float(score.sum()))
