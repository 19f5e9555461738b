"""Bootstrap intervals for any metric, vectorised where the metric is a function of sums."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from toosure.metrics import binned, debiased, kernel, ood, ranking, scores, smooth
from toosure.metrics.binned import BinSums, error_of
from toosure.metrics.bootstrap_cells import (
    Cells,
    Resampler,
    aurc_of_ranks,
    auroc_of_ranks,
    bin_sums_of_cells,
    count_by_rank,
    error_along,
    gather_cells,
    group_values,
    on_rows,
    with_claimed_hits,
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
)

Metric = Callable[..., Tensor]
METHODS = ("auto", "basic", "percentile")


class Interval(NamedTuple):
    """A value and the interval around it."""

    value: Tensor
    low: Tensor
    high: Tensor


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
    For any other metric it is "basic", widened to hold the value where that lies outside.

    Binned errors, AURC, misclassification AUROC and means over rows resample counts, all at once:
    exact up to 2048 distinct values, beyond that neighbours in value are drawn as one of about
    2048 cells. Equal-mass bins keep their edges. Any other metric is called `samples` times; one
    that returns several numbers in a tensor (`reduction="none"`) gets an interval for each.
    `auroc_ood` and `fpr95_ood`, of two sets of logits, have none.

    >>> logits = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    >>> value, low, high = confidence_interval(binned.ece, logits, logits.argmax(1))
    >>> bool(low < value < high)
    True
    """
    if metric in _OF_TWO_SETS:
        raise ValueError(f"{_name(metric)} compares two sets of logits and has no interval")
    check_one_column(logits)
    with known_logits():  # the metric itself looks at them, and knows what it takes
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
    value = _as_tensor(of_rows(slice(None)), metric)
    if metric in _ROW_SCORES:
        rows = [_ROW_SCORES[metric](*pair) for pair in chunked_pairs(logits, labels)]
        offsets = _mean_offsets(torch.cat(rows).double(), resampler)
    elif metric in _RANKED:
        odds, correct = top_odds(logits, labels)
        offsets = _rank_offsets(_RANKED[metric], odds, correct, resampler)
    else:
        with known_logits():
            replicas = [of_rows(i) for i in resampler.rows(labels)]
        offsets = torch.stack(replicas) - value

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
            return _interval_of_gaps(error, value, cells, level, resampler)
        sums, bin_replicas = error.sums_and_replicas(cells, resampler)
        offsets = error.of_sums(bin_replicas, error.norm) - error.of_sums(sums, error.norm)
    elif metric in _RANKED:
        offsets = _rank_offsets(_RANKED[metric], confidence, correct, resampler)
    else:
        replicas = [metric(confidence[i], correct[i], **options) for i in resampler.rows(correct)]
        offsets = torch.stack(replicas) - value
    return _interval(value, offsets, level, method, in_unit_interval=True)


def _interval(
    value: Tensor, offsets: Tensor, level: float, method: str, in_unit_interval: bool
) -> Interval:
    """Return the interval around `value` from the replicas' offsets, replica less value."""
    check_choice("method", method, METHODS)
    lower, upper = _quantiles(offsets, level).to(value.device)
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


def _quantiles(offsets: Tensor, level: float) -> Tensor:
    """Return the quantiles over the replicas that leave (1 - level) / 2 on either side, (2, ..)."""
    check_level(level)
    tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    return offsets.double().cpu().nanquantile(tails, 0)


class _BinnedError(NamedTuple):
    """A binned calibration error: its options, and the function of the bin sums."""

    norm: float
    bins: int = 15
    edge: str = "right"
    adaptive: bool = False
    of_sums: Callable[[BinSums, float], Tensor] = error_of

    def sums_and_replicas(self, cells: Cells, resampler: Resampler) -> tuple[BinSums, BinSums]:
        """Return the bin sums of the cells, (bins,), and of their replicas, (samples, bins)."""
        replicas = bin_sums_of_cells(resampler.cells(cells), self.bins)
        return bin_sums_of_cells(cells, self.bins), replicas


def _interval_of_gaps(
    error: _BinnedError, value: Tensor, cells: Cells, level: float, resampler: Resampler
) -> Interval:
    """Return a binned error with an interval that bounds the bias of absolute gaps."""
    norm = error.norm

    # The high end holds the direction of every gap: replicas without bias.
    sums, replicas = error.sums_and_replicas(cells, resampler)
    above = error_along(sums, replicas, norm) - error_of(sums, norm)
    high = value - _quantiles(above, level)[0].to(value.device)

    # The low end lets every gap that may be chance be 0: replicas with the most bias.
    sums, replicas = error.sums_and_replicas(with_claimed_hits(cells, error.bins), resampler)
    below = error_of(replicas, norm) - error_of(sums, norm)
    low = value - _quantiles(below, level)[1].to(value.device)

    if norm == math.inf:  # the largest gap is no smaller than the mean one
        mean = error_of(bin_sums_of_cells(cells, error.bins), 1).to(value)
        mean_interval = _interval_of_gaps(error._replace(norm=1), mean, cells, level, resampler)
        low = low.maximum(mean_interval.low)

    low = torch.minimum(low, value)
    high = torch.maximum(high, value)
    return Interval(value, low.clamp(0, 1), high.clamp(0, 1))


def _mean_offsets(values: Tensor, resampler: Resampler) -> Tensor:
    """Return resampled means less the mean; NaN where that is infinite."""
    if not values.mean().isfinite():
        return values.new_full((resampler.samples,), torch.nan)
    levels, counts = group_values(values)
    return resampler.counts(counts) @ levels / len(values) - values.mean()


def _rank_offsets(
    of_ranks: Callable[[Tensor], Tensor], score: Tensor, correct: Tensor, resampler: Resampler
) -> Tensor:
    """Return a ranking metric of the replicas less that of the rows."""
    counts = count_by_rank(score, correct)
    return of_ranks(resampler.counts(counts)) - of_ranks(counts.double())


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
_BINNED: dict[Metric, _BinnedError] = {
    binned.ece_from_confidence: _BinnedError(norm=1),
    binned.mce_from_confidence: _BinnedError(norm=math.inf),
    binned.rmsce_from_confidence: _BinnedError(norm=2),
    binned.adaptive_ece_from_confidence: _BinnedError(norm=1, adaptive=True),
    debiased.debiased_ece_from_confidence: _BinnedError(1, of_sums=debiased.debiased_error_of),
}
_RANKED: dict[Metric, Callable[[Tensor], Tensor]] = {
    ranking.auroc_misclass: auroc_of_ranks,
    ranking.auroc_misclass_from_confidence: auroc_of_ranks,
    ranking.aurc: aurc_of_ranks,
    ranking.aurc_from_confidence: aurc_of_ranks,
}
_ROW_SCORES: dict[Metric, scores.RowScore] = {
    scores.nll: scores.nll_rows,
    scores.brier: scores.brier_rows,
    scores.accuracy: scores.accuracy_rows,
    scores.binary_entropy: scores.binary_entropy_rows,
    scores.entropy: scores.entropy_rows,
}
_OF_TWO_SETS = (ood.auroc_ood, ood.fpr95_ood)
