"""Bootstrap intervals that resample whole groups: sequences, images, patients.

Rows of one group are alike, so that resampling rows would show more certainty than there is. All
is computed from sums over each group, (G, K): a replica draws G groups and adds up their sums.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from toosure.metrics import smooth
from toosure.metrics.binned import bin_edges
from toosure.metrics.bootstrap_cells import (
    Interval,
    holding_value,
    hull,
    on_rows,
    quantiles,
    without_interval,
)
from toosure.metrics.classwise_interval import (
    class_bins,
    classwise_interval_over_groups,
    classwise_interval_over_rows,
    rows_of_classes,
)
from toosure.metrics.confidence import chunked_pairs, top_label, top_odds
from toosure.metrics.group_draws import (
    group_count,
    group_numbers,
    group_sums,
    resampled_rows,
    resampled_sums,
    small_sample_factor,
)
from toosure.metrics.grouped_bins import group_bin_sums, interval_over_groups
from toosure.metrics.inputs import (
    ArrayLike,
    as_confidence,
    as_metric_inputs,
    check_count,
    check_level,
    check_one_column,
    known_logits,
)
from toosure.metrics.interval_tables import (
    BINNED,
    CLASSWISE,
    FROM_CONFIDENCE,
    RANKED,
    RANKED_FROM_CONFIDENCE,
    ROW_SCORES,
    WITHOUT_BOUND,
    Metric,
    is_plain_mmce,
    within_range,
)
from toosure.metrics.intervals import confidence_interval_from_confidence
from toosure.metrics.kernel_interval import mmce_interval
from toosure.metrics.mean_interval import interval_of_mean
from toosure.metrics.smooth_interval import smece_ends_of_groups

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
    `confidence_interval` for rows that are independent, and for the bias that an interval of a
    calibration error bounds; such an interval is never narrower than the one of independent rows.

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

    of_confidence = FROM_CONFIDENCE.get(metric)
    if probs is not None:
        of_confidence = of_confidence or RANKED_FROM_CONFIDENCE.get(metric)
    if of_confidence is not None:
        pair = top_label(rows, truth) if probs is None else top_label(probs=probs, labels=truth)
        return cluster_interval_from_confidence(
            of_confidence, *pair, index, level, seed, samples, **options
        )

    of_rows = on_rows(metric, rows, truth, probs, options)
    value = of_rows(slice(None))
    if metric in WITHOUT_BOUND:
        return without_interval(value)
    if metric in CLASSWISE:
        given = class_bins(rows_of_classes(metric, rows, probs), truth, **options)
        of_groups = classwise_interval_over_groups(value, given, index, level, seed, samples)
        return hull(of_groups, classwise_interval_over_rows(value, given, level, seed, samples))
    if metric in ROW_SCORES:
        scores = [ROW_SCORES[metric](*pair) for pair in chunked_pairs(rows, truth)]
        offsets = mean_offsets(torch.cat(scores).double(), index, seed, samples)
        mean = value.cpu().double()
        return within_range(metric, interval_of_mean(mean, offsets, group_count(index), level))

    if metric in RANKED:
        odds, correct = top_odds(rows, truth)
        offsets = rank_offsets(RANKED[metric], odds, correct, index, seed, samples)
    else:
        with known_logits():
            replicas = [of_rows(i) for i in resampled_rows(index, seed, samples)]
        offsets = torch.stack(replicas) - value
    return within_range(metric, interval_around(value, offsets, index, level))


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

    if metric in WITHOUT_BOUND:
        return without_interval(value)
    if metric in BINNED:
        error = BINNED[metric]._replace(**options)
        edges = bin_edges(confidence, error.bins, error.adaptive)
        per_group = group_bin_sums(confidence, correct, index, edges, error.edge)
        of_groups = interval_over_groups(value, per_group, error.norm, level, seed, samples)
    elif metric is smooth.smece_from_confidence:
        of_groups = _interval_of_smece(
            value, confidence, correct, index, level, seed, samples, **options
        )
    elif is_plain_mmce(metric, options):
        width = options.get("bandwidth", 0.4)
        of_groups = mmce_interval(
            value, confidence, correct, level, seed, samples, width, groups=index
        )
    elif metric in RANKED:
        offsets = rank_offsets(RANKED[metric], confidence, correct, index, seed, samples)
        return within_range(metric, interval_around(value, offsets, index, level))
    else:
        rows = resampled_rows(index, seed, samples)
        offsets = torch.stack([metric(confidence[i], correct[i], **options) for i in rows]) - value
        return within_range(metric, interval_around(value, offsets, index, level))

    # Rows of a group are alike: it is never known better than if they were independent.
    bootstrap = (level, seed, samples)
    return hull(
        of_groups,
        confidence_interval_from_confidence(metric, confidence, correct, *bootstrap, **options),
    )


def _interval_of_smece(
    value: Tensor,
    confidence: Tensor,
    correct: Tensor,
    groups: Tensor,
    level: float,
    seed: int,
    samples: int,
    bandwidth: float | None = None,
) -> Interval:
    """Return smECE with an interval over groups that bounds the bias of an absolute gap."""
    value = value.cpu().double()
    width = float(value) if bandwidth is None else bandwidth
    below, above = smece_ends_of_groups(confidence, correct, groups, width, level, seed, samples)
    return Interval(value, (value - below).clamp(min=0), (value + above).clamp(max=1))


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
    count = group_count(groups)
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


def interval_around(value: Tensor, offsets: Tensor, groups: Tensor, level: float) -> Interval:
    """Return the "basic" interval of replicas less value, widened to hold the value."""
    factor = small_sample_factor(group_count(groups), level)
    lower, upper = factor * quantiles(offsets, level)
    value = value.cpu().double()
    return holding_value(Interval(value, value - upper, value - lower))
