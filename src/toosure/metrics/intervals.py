"""Bootstrap intervals for any metric, vectorised where the metric is a function of sums."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from toosure.metrics import binned, debiased, kernel, ood, ranking, scores, smooth
from toosure.metrics.binned import error_of
from toosure.metrics.binned_interval import BinnedError, interval_of_gaps
from toosure.metrics.bootstrap_cells import Interval as Interval
from toosure.metrics.bootstrap_cells import (
    aurc_of_ranks,
    auroc_of_ranks,
    count_by_rank,
    gather_cells,
    group_values,
    on_rows,
    quantiles,
)
from toosure.metrics.confidence import chunked_pairs, top_label, top_odds
from toosure.metrics.inputs import (
    ArrayLike,
    as_confidence,
    as_metric_inputs,
    check_choice,
    check_count,
    check_level,
    check_one_column,
    known_logits,
    row_numbers_of_all,
)
from toosure.metrics.resampler import Resampler
from toosure.metrics.smooth_interval import smece_ends

Metric = Callable[..., Tensor]
METHODS = ("auto", "basic", "percentile")


def confidence_interval(
    metric: Metric,
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    level: float = 0.95,
    seed: int = 0,
    samples: int = 1000,
    method: str = "auto",
    *,
    probs: ArrayLike | None = None,
    **options: Any,
) -> Interval:
    r"""Return `metric(logits, labels, **options)` with a seeded bootstrap interval (Efron 1979).

    "basic": [2v - q_high, 2v - q_low] with q the quantiles over resampled rows;
    "percentile": [q_low, q_high]. Both fail a calibration error near 0, where noise alone pushes
    the value up and resampling pushes again: at 95 %, less than 70 % of them hold an ECE of 0.
    "auto" therefore differs for `ece`, `mce`, `rmsce` and `adaptive_ece`, whose bias is known to
    lie between none (the sign of each gap is certain) and that of a gap of 0: the low end takes
    the latter in bins where chance explains the gap, the high end the former. It always holds the
    value and covers about as often as it says or more, at the price of width (docs/metrics.md;
    but for `mce` where several bins share the largest gap).
    For `auroc_ovr` and `auroc_ovr_binned` it is "percentile", which stays below 1. For any other
    metric it is "basic". Both are widened to hold the value where that lies outside.

    Binned errors, AURC, misclassification AUROC and means over rows resample counts, all at once:
    exact up to 256 distinct values (512 for ranks and means), beyond that neighbours in value are
    drawn as one of about so many cells. Equal-mass bins keep their edges. `smece` bounds its bias
    as binned errors do (`smooth_interval.py`). Any other metric is called `samples` times; one that
    returns several numbers in a tensor (`reduction="none"`) gets an interval for each. `auroc_ood`
    and `fpr95_ood`, of two sets of logits, have none.

    >>> logits = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    >>> value, low, high = confidence_interval(binned.ece, logits, logits.argmax(1))
    >>> bool(low < value < high)
    True
    """
    if metric in _OF_TWO_SETS:
        raise ValueError(f"{_name(metric)} compares two sets of logits and has no interval")
    check_one_column(logits)
    # A metric looks at logits itself, and knows what it takes; those of a fast way are not called.
    is_called = metric not in _ROW_SCORES and metric not in _RANKED
    with known_logits() if is_called else nullcontext():
        logits, labels = as_metric_inputs(logits, labels, probs)
    check_count("samples", samples)
    logits = logits.detach()

    of_confidence = _FROM_CONFIDENCE.get(metric)
    if probs is not None:
        of_confidence = of_confidence or _RANKED_FROM_CONFIDENCE.get(metric)
    if of_confidence is not None:
        pair = top_label(logits, labels) if probs is None else top_label(probs=probs, labels=labels)
        return confidence_interval_from_confidence(
            of_confidence, *pair, level, seed, samples, method, **options
        )

    resampler = Resampler(seed, samples)
    of_rows = on_rows(metric, logits, labels, probs, options)
    if metric in _ROW_SCORES and not options:
        value, rows = _mean_and_rows(_ROW_SCORES[metric], logits, labels)
        offsets = _mean_offsets(rows, resampler)
    elif metric in _RANKED and not options:
        odds, correct = top_odds(logits, labels)
        value = _OF_SCORES[metric](odds, correct)
        offsets = _rank_offsets(_RANKED[metric], odds, correct, resampler)
    else:
        value = _as_tensor(of_rows(slice(None)), metric)
        with known_logits():
            replicas = [of_rows(i.to(labels.device)) for i in resampler.torch_rows(len(labels))]
        offsets = torch.stack(replicas) - value

    if method == "auto" and metric in _AREAS:  # "basic" turns a tail below into one beyond 1
        low, high = (value + quantiles(offsets, level).to(value.device)).clamp(0, 1)
        return Interval(value, torch.minimum(low, value), torch.maximum(high, value))
    in_unit_interval = metric is scores.accuracy or metric in _RANKED
    return _interval(value, offsets, level, method, in_unit_interval)


def confidence_interval_from_confidence(
    metric: Metric,
    confidence: ArrayLike,
    correct: ArrayLike,
    level: float = 0.95,
    seed: int = 0,
    samples: int = 1000,
    method: str = "auto",
    **options: Any,
) -> Interval:
    """Return a `*_from_confidence` metric with its interval; see `confidence_interval`.

    >>> confidence, correct = torch.tensor([0.9, 0.8, 0.7]), torch.tensor([True, True, False])
    >>> interval = confidence_interval_from_confidence(
    ...     binned.ece_from_confidence, confidence, correct)
    >>> round(float(interval.value), 6)
    0.333333
    """
    confidence, correct = as_confidence(confidence, correct)
    check_count("samples", samples)
    check_choice("method", method, METHODS)
    confidence = confidence.detach()
    resampler = Resampler(seed, samples)
    value = _as_tensor(metric(confidence, correct, **options), metric)

    if metric in _BINNED:
        error = _BINNED[metric]._replace(**options)
        cells = gather_cells(confidence, correct, error.adaptive, error.bins, error.edge)
        if method == "auto" and error.of_sums is error_of:
            return interval_of_gaps(error, value, cells, level, resampler)
        sums, bin_replicas = error.sums_and_replicas(cells, resampler)
        offsets = error.of_sums(bin_replicas, error.norm) - error.of_sums(sums, error.norm)
    elif metric in _RANKED:
        offsets = _rank_offsets(_RANKED[metric], confidence, correct, resampler)
    elif metric is smooth.smece_from_confidence and method == "auto":
        return _interval_of_smece(value, confidence, correct, level, resampler, **options)
    else:
        draws = (i.to(correct.device) for i in resampler.torch_rows(len(correct)))
        replicas = [metric(confidence[i], correct[i], **options) for i in draws]
        offsets = torch.stack(replicas) - value
    return _interval(value, offsets, level, method, in_unit_interval=True)


def _interval(
    value: Tensor, offsets: Tensor, level: float, method: str, in_unit_interval: bool
) -> Interval:
    """Return the interval around `value` from the replicas' offsets, replica less value."""
    check_choice("method", method, METHODS)
    lower, upper = quantiles(offsets, level).to(value.device)
    if method == "percentile":
        low = value + lower
        high = value + upper
    else:
        low = value - upper
        high = value - lower

    if method == "auto":  # NaN, where nothing could be resampled, stays
        low = torch.minimum(low, value)
        high = torch.maximum(high, value)
    if in_unit_interval:
        low = low.clamp(0, 1)
        high = high.clamp(0, 1)
    return Interval(value, low, high)


def _interval_of_smece(
    value: Tensor,
    confidence: Tensor,
    correct: Tensor,
    level: float,
    resampler: Resampler,
    bandwidth: float | None = None,
) -> Interval:
    """Return smECE with an interval that bounds the bias of an absolute gap."""
    check_level(level)
    width = float(value) if bandwidth is None else bandwidth
    below, above = smece_ends(confidence, correct, width, level, *resampler)
    return Interval(value, (value - below).clamp(min=0), (value + above).clamp(max=1))


def _mean_and_rows(
    row_score: scores.RowScore, logits: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the mean of a per-row score, as the metric itself sums it, and the score of each row.

    One pass over the logits serves both.
    """
    with row_numbers_of_all(logits):
        rows = [row_score(*pair) for pair in chunked_pairs(logits, labels)]
    total = torch.stack([each.sum(dtype=torch.float64) for each in rows]).sum()
    return total / len(logits), torch.cat(rows).double()


def _mean_offsets(values: Tensor, resampler: Resampler) -> Tensor:
    """Return resampled means less the mean; NaN where that is infinite."""
    if not values.mean().isfinite():
        return values.new_full((resampler.samples,), torch.nan)
    levels, counts = group_values(values)
    return resampler.cell_counts(counts) @ levels / len(values) - values.mean()


def _rank_offsets(
    of_ranks: Callable[[Tensor], Tensor], score: Tensor, correct: Tensor, resampler: Resampler
) -> Tensor:
    """Return a ranking metric of the replicas less that of the rows."""
    counts = count_by_rank(score, correct)
    return of_ranks(resampler.cell_counts(counts)) - of_ranks(counts.double())


def _as_tensor(value: object, metric: Metric) -> Tensor:
    """Return a metric's value, or say that an interval needs a number."""
    if isinstance(value, Tensor):
        return value
    raise ValueError(
        f"an interval needs a metric that returns a tensor; {_name(metric)} returns "
        f"{type(value).__name__}: pass a function that returns one of its fields"
    )


def _name(metric: Metric) -> str:
    return getattr(metric, "__name__", repr(metric))


# How each metric is resampled. What is in none of these tables is called on resampled rows.
_FROM_CONFIDENCE: dict[Metric, Metric] = {
    binned.ece: binned.ece_from_confidence,
    binned.mce: binned.mce_from_confidence,
    binned.rmsce: binned.rmsce_from_confidence,
    binned.adaptive_ece: binned.adaptive_ece_from_confidence,
    debiased.debiased_ece: debiased.debiased_ece_from_confidence,
    kernel.mmce: kernel.mmce_from_confidence,
    smooth.smece: smooth.smece_from_confidence,
}
_RANKED_FROM_CONFIDENCE: dict[Metric, Metric] = {
    ranking.auroc_misclass: ranking.auroc_misclass_from_confidence,
    ranking.aurc: ranking.aurc_from_confidence,
}
_BINNED: dict[Metric, BinnedError] = {
    binned.ece_from_confidence: BinnedError(norm=1),
    binned.mce_from_confidence: BinnedError(norm=math.inf),
    binned.rmsce_from_confidence: BinnedError(norm=2),
    binned.adaptive_ece_from_confidence: BinnedError(norm=1, adaptive=True),
    debiased.debiased_ece_from_confidence: BinnedError(1, of_sums=debiased.debiased_error_of),
}
_RANKED: dict[Metric, Callable[[Tensor], Tensor]] = {
    ranking.auroc_misclass: auroc_of_ranks,
    ranking.auroc_misclass_from_confidence: auroc_of_ranks,
    ranking.aurc: aurc_of_ranks,
    ranking.aurc_from_confidence: aurc_of_ranks,
}
_AREAS: tuple[Metric, ...] = (
    ranking.auroc_ovr,
    ranking.auroc_ovr_from_probabilities,
    ranking.auroc_ovr_binned,
    ranking.auroc_ovr_binned_from_probabilities,
)
_OF_SCORES: dict[Metric, Metric] = {
    ranking.auroc_misclass: ranking.auroc_misclass_of_scores,
    ranking.aurc: ranking.aurc_of_scores,
}
_ROW_SCORES: dict[Metric, scores.RowScore] = {
    scores.nll: scores.nll_rows,
    scores.brier: scores.brier_rows,
    scores.accuracy: scores.accuracy_rows,
    scores.binary_entropy: scores.binary_entropy_rows,
    scores.entropy: scores.entropy_rows,
}
_OF_TWO_SETS = (ood.auroc_ood, ood.fpr95_ood)
