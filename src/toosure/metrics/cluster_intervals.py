"""Bootstrap intervals that resample whole groups: sequences, images, patients.

Rows of one group are alike, so that resampling rows would show more certainty than there is. All
is computed from sums over each group, (G, K): a replica draws G groups and adds up their sums.
"""

import math
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toosure.metrics import intervals
from toosure.metrics import scores as row_scores
from toosure.metrics.binned import BinSums, bin_edges, error_of
from toosure.metrics.bootstrap_cells import error_along, on_rows
from toosure.metrics.confidence import chunked_pairs, top_label, top_odds
from toosure.metrics.inputs import (
    ArrayLike,
    as_confidence,
    as_metric_inputs,
    check_count,
    check_level,
    check_one_column,
    known_logits,
)
from toosure.metrics.intervals import Interval
from toosure.metrics.resampler import Resampler

Metric = Callable[..., Tensor]
MAX_DRAWN = 1 << 22  # group counts drawn at a time
MAX_RANK_NUMBERS = 1 << 23  # in the counts of each group by rank
MAX_LEVELS = 512  # of scores that are ranked


def cluster_interval(
    metric: Metric,
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    level: float = 0.95,
    seed: int = 0,
    samples: int = 1000,
    *,
    probs: ArrayLike | None = None,
    **options: Any,
) -> Interval:
    """Return `metric(logits, labels, **options)` with an interval that resamples whole groups.

    `groups` (N,) says which sequence, image or person each row belongs to. Means over rows, binned
    errors and ranks are resampled from sums; any other metric is called `samples` times. See
    `confidence_interval` for rows that are independent.

    >>> from toosure.metrics import ece
    >>> logits = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    >>> value, low, high = cluster_interval(ece, logits, logits.argmax(1), torch.arange(60) // 6)
    >>> bool(low <= value <= high)
    True
    """
    check_one_column(logits)
    with known_logits():
        rows, truth = as_metric_inputs(logits, labels, probs)
    rows = rows.detach()
    check_count("samples", samples)
    check_level(level)
    index = group_numbers(groups, len(rows))

    of_confidence = intervals._FROM_CONFIDENCE.get(metric)
    if probs is not None:
        of_confidence = of_confidence or intervals._RANKED_FROM_CONFIDENCE.get(metric)
    if of_confidence is not None:
        pair = top_label(rows, truth) if probs is None else top_label(probs=probs, labels=truth)
        return cluster_interval_from_confidence(
            of_confidence, *pair, index, level, seed, samples, **options
        )

    of_rows = on_rows(metric, rows, truth, probs, options)
    value = of_rows(slice(None))
    if metric in intervals._ROW_SCORES:
        scores = [intervals._ROW_SCORES[metric](*pair) for pair in chunked_pairs(rows, truth)]
        offsets = mean_offsets(torch.cat(scores).double(), index, seed, samples)
    elif metric in intervals._RANKED:
        odds, correct = top_odds(rows, truth)
        offsets = rank_offsets(intervals._RANKED[metric], odds, correct, index, seed, samples)
    else:
        with known_logits():
            replicas = [of_rows(i) for i in resampled_rows(index, seed, samples)]
        offsets = torch.stack(replicas) - value
    shares = (row_scores.accuracy, *intervals._RANKED, *intervals._AREAS)
    return interval_around(value, offsets, index, level, in_unit_interval=metric in shares)


def cluster_interval_from_confidence(
    metric: Metric,
    confidence: ArrayLike,
    correct: ArrayLike,
    groups: ArrayLike,
    level: float = 0.95,
    seed: int = 0,
    samples: int = 1000,
    **options: Any,
) -> Interval:
    """Return a `*_from_confidence` metric with its interval over groups; see `cluster_interval`."""
    confidence, correct = as_confidence(confidence, correct)
    confidence = confidence.detach()
    check_count("samples", samples)
    index = group_numbers(groups, len(confidence))
    value = metric(confidence, correct, **options)

    if metric in intervals._BINNED:
        error = intervals._BINNED[metric]._replace(**options)
        edges = bin_edges(confidence, error.bins, error.adaptive)
        per_group = group_bin_sums(confidence, correct, index, edges, error.edge)
        sums, replicas = sums_and_replicas(per_group, seed, samples)
        if error.of_sums is error_of:
            return interval_of_gaps(value, sums, replicas, index, error.norm, level)
        offsets = error.of_sums(replicas, error.norm) - error.of_sums(sums, error.norm)
    elif metric in intervals._RANKED:
        of_ranks = intervals._RANKED[metric]
        offsets = rank_offsets(of_ranks, confidence, correct, index, seed, samples)
    else:
        rows = resampled_rows(index, seed, samples)
        offsets = torch.stack([metric(confidence[i], correct[i], **options) for i in rows]) - value
    return interval_around(value, offsets, index, level, in_unit_interval=True)


ONE_GROUP = "all rows are of one group: an interval over groups needs two at least"


def group_numbers(groups: ArrayLike | None, n: int) -> Tensor:
    """Return the group of each row as a number in 0 .. G - 1, (n,), of names or numbers."""
    if groups is None:
        raise ValueError("groups are missing: give the sequence, image or person of each row, (N,)")
    array = groups.detach().cpu().numpy() if isinstance(groups, Tensor) else np.asarray(groups)
    if array.shape != (n,):
        raise ValueError(f"groups must have shape ({n},), one per row; got {array.shape}")

    names, index = np.unique(array, return_inverse=True)
    if len(names) < 2:
        raise ValueError(ONE_GROUP)
    return torch.from_numpy(index.astype(np.int64).reshape(-1))


def group_sums(values: Tensor, groups: Tensor) -> Tensor:
    """Return the sum of rows (N, K) over each group, (G, K) float64, on the CPU."""
    values = values.detach().double().cpu()
    total = torch.zeros(int(groups.max()) + 1, values.shape[1], dtype=torch.float64)
    return total.index_add_(0, groups.cpu(), values)


def resampled_sums(per_group: Tensor, seed: int, samples: int) -> Tensor:
    """Return the sums (samples, K) of as many groups as there are, drawn with replacement."""
    counts = Resampler(seed, samples).row_counts(len(per_group))
    replicas = max(1, MAX_DRAWN // len(per_group))  # of a block, so that memory stays bounded
    sums = []
    while block := list(islice(counts, replicas)):
        sums.append(torch.from_numpy(np.stack(block)).double() @ per_group)
    return torch.cat(sums)


def resampled_rows(groups: Tensor, seed: int, samples: int) -> list[Tensor]:
    """Return the row numbers of each replica: all rows of the groups drawn."""
    order = groups.argsort(stable=True)
    members = order.split(torch.bincount(groups).tolist())
    draws = Resampler(seed, samples).torch_rows(len(members))
    return [torch.cat([members[g] for g in drawn.tolist()]) for drawn in draws]


def mean_offsets(values: Tensor, groups: Tensor, seed: int, samples: int) -> Tensor:
    """Return the replicas of a mean over rows less the mean; NaN where that is infinite."""
    if not values.mean().isfinite():
        return torch.full((samples,), torch.nan, dtype=torch.float64)
    per_group = group_sums(torch.stack([values, torch.ones_like(values)], 1), groups)
    total, count = resampled_sums(per_group, seed, samples).unbind(1)
    return total / count - values.mean().cpu()


def rank_offsets(
    of_ranks: Callable[[Tensor], Tensor],
    score: Tensor,
    correct: Tensor,
    groups: Tensor,
    seed: int,
    samples: int,
) -> Tensor:
    """Return a ranking metric of the replicas less that of the rows, on levels of equal mass."""
    count = int(groups.max()) + 1
    levels = max(16, min(MAX_LEVELS, MAX_RANK_NUMBERS // (2 * count)))
    distinct, place = score.detach().cpu().unique(return_inverse=True)
    if len(distinct) > levels:
        sizes = torch.bincount(place)
        place = ((sizes.cumsum(0) - sizes) * levels // len(score))[place]

    width = 2 * (int(place.max()) + 1)
    cell = groups.cpu() * width + place * 2 + correct.cpu()
    per_group = torch.bincount(cell, minlength=count * width).double().view(count, width)
    replicas = resampled_sums(per_group, seed, samples).view(samples, -1, 2)
    return of_ranks(replicas) - of_ranks(per_group.sum(0).view(-1, 2))


def group_bin_sums(
    confidence: Tensor, correct: Tensor, groups: Tensor, edges: Tensor, edge: str
) -> Tensor:
    """Return counts, hits and summed confidences of each group and bin, (G, 3 bins)."""
    bins = len(edges) - 1
    count = int(groups.max()) + 1
    place = torch.bucketize(confidence, edges[1:-1], right=edge == "left").cpu()
    cell = groups.cpu() * bins + place

    columns = (torch.ones_like(cell), correct.cpu(), confidence.cpu())
    sums = [torch.bincount(cell, each.double(), minlength=count * bins) for each in columns]
    return torch.cat([each.view(count, bins) for each in sums], 1)


def sums_and_replicas(per_group: Tensor, seed: int, samples: int) -> tuple[BinSums, BinSums]:
    """Return the bin sums of all groups, (bins,), and of their replicas, (samples, bins)."""
    replicas = resampled_sums(per_group, seed, samples)
    return BinSums(*per_group.sum(0).chunk(3)), BinSums(*replicas.chunk(3, 1))


def interval_of_gaps(
    value: Tensor, sums: BinSums, replicas: BinSums, groups: Tensor, norm: float, level: float
) -> Interval:
    """Return a binned error with an interval that bounds the bias of absolute gaps.

    As of independent rows: the high end holds the direction of every gap; the low end lets each
    gap be 0 that lies within sqrt(log G) of its own standard error over groups.
    """
    above = error_along(sums, replicas, norm) - error_of(sums, norm)

    spread = replicas.gaps().std(0)
    cut = math.sqrt(math.log(max(2, int(groups.max()) + 1)))
    chance = sums.gaps().abs() <= cut * spread
    gaps = sums.gaps() * chance
    below = error_of(without_gaps(replicas, gaps), norm) - error_of(without_gaps(sums, gaps), norm)

    factor = small_sample_factor(groups, level)
    value = value.cpu().double()
    tail = (1 - level) / 2
    low = value - factor * below.quantile(1 - tail)
    high = value - factor * above.quantile(tail)
    return Interval(
        value, torch.minimum(low, value).clamp(min=0), torch.maximum(high, value).clamp(max=1)
    )


def without_gaps(sums: BinSums, gaps: Tensor) -> BinSums:
    """Return bin sums whose mean confidence is moved by the gaps: nothing but noise is left."""
    return sums._replace(confidence=sums.confidence - sums.counts * gaps)


def small_sample_factor(groups: Tensor, level: float) -> float:
    """Return by how much replicas of few groups vary too little: sqrt(G / (G - 1)) t / z.

    Groups drawn from G vary less than those of the population, and their spread is itself an
    estimate: Student's quantile with G - 1 degrees of freedom in place of the normal one.
    """
    # Imported here: it takes a second, and only groups need it.
    from scipy.stats import norm as normal
    from scipy.stats import t as student

    count = int(groups.max()) + 1
    if count < 2:
        raise ValueError(ONE_GROUP)
    tail = 0.5 + level / 2
    ratio = float(student.ppf(tail, count - 1) / normal.ppf(tail))
    return ratio * math.sqrt(count / (count - 1))


def interval_around(
    value: Tensor, offsets: Tensor, groups: Tensor, level: float, in_unit_interval: bool = False
) -> Interval:
    """Return the "basic" interval of replicas less value, widened to hold the value."""
    tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    lower, upper = offsets.double().cpu().nanquantile(tails, 0) * small_sample_factor(groups, level)
    value = value.cpu().double()
    low, high = torch.minimum(value - upper, value), torch.maximum(value - lower, value)
    if in_unit_interval:
        low, high = low.clamp(min=0), high.clamp(max=1)
    return Interval(value, low, high)
