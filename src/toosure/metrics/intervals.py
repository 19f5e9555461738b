"""Bootstrap intervals for any metric, vectorised where the metric is a function of sums."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from toosure.metrics import smooth
from toosure.metrics.binned_interval import interval_over_rows
from toosure.metrics.bootstrap_cells import Interval as Interval
from toosure.metrics.bootstrap_cells import (
    count_by_rank,
    gather_cells,
    holding_value,
    on_rows,
    quantiles,
    without_interval,
)
from toosure.metrics.classwise_interval import (
    class_bins,
    classwise_interval_over_rows,
    rows_of_classes,
)
from toosure.metrics.confidence import top_label, top_odds
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
from toosure.metrics.interval_tables import (
    AREAS,
    BINNED,
    CLASSWISE,
    FROM_CONFIDENCE,
    OF_SCORES,
    OF_TWO_SETS,
    RANKED,
    RANKED_FROM_CONFIDENCE,
    ROW_SCORES,
    WITHOUT_BOUND,
    Metric,
    is_plain_mmce,
    within_range,
)
from toosure.metrics.kernel_interval import mmce_interval
from toosure.metrics.mean_interval import (
    interval_of_mean,
    mean_and_rows,
    mean_offsets_of_rows,
)
from toosure.metrics.resampler import Resampler
from toosure.metrics.smooth_interval import smece_ends

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
    "auto" therefore differs for `ece`, `mce`, `rmsce`, `adaptive_ece`, `classwise_ece` and `smece`,
    whose bias is known to lie between none (the sign of each gap is certain) and that of a gap of
    0: the low end takes the latter where chance explains the gap, the high end the former, and the
    low end is 0 where labels drawn from the probabilities show such an error. It always holds the
    value and covers about as often as it says or more, at the price of width (docs/metrics.md;
    but for `mce` where several bins share the largest gap).

    `debiased_ece` estimates the same error as `ece` and has its interval. `mmce`, a length, bounds
    its bias likewise (unless `weighted`). `dece`, `sece` and `kde_ece` have no such bound: their
    ends are NaN. A mean over rows joins both textbook intervals, with Student's quantile; that of
    one row is NaN. `auroc_ovr` and `auroc_ovr_binned` have "percentile", any other metric "basic".
    All are widened to hold the value, and end where the metric does: no NLL is below 0.

    Binned errors, AURC, misclassification AUROC and means over rows resample counts, all at once:
    exact up to 256 distinct values (512 for ranks and means), beyond that neighbours in value are
    drawn as one of about so many cells. Equal-mass bins keep their edges. Any other metric is
    called `samples` times; one that returns several numbers in a tensor (`reduction="none"`) gets
    an interval for each. `auroc_ood` and `fpr95_ood`, of two sets of logits, have none.

    >>> from toosure.metrics import ece
    >>> logits = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    >>> value, low, high = confidence_interval(ece, logits, logits.argmax(1))
    >>> bool(low < value < high)
    True
    """
    if metric in OF_TWO_SETS:
        raise ValueError(f"{_name(metric)} compares two sets of logits and has no interval")
    check_one_column(logits)
    # A metric looks at logits itself, and knows what it takes; those of a fast way are not called.
    is_called = metric not in ROW_SCORES and metric not in RANKED
    with known_logits() if is_called else nullcontext():
        logits, labels = as_metric_inputs(logits, labels, probs)
    check_count("samples", samples)
    logits = logits.detach()

    of_confidence = FROM_CONFIDENCE.get(metric)
    if probs is not None:
        of_confidence = of_confidence or RANKED_FROM_CONFIDENCE.get(metric)
    if of_confidence is not None:
        pair = top_label(logits, labels) if probs is None else top_label(probs=probs, labels=labels)
        return confidence_interval_from_confidence(
            of_confidence, *pair, level, seed, samples, method, **options
        )

    resampler = Resampler(seed, samples)
    if metric in CLASSWISE and method == "auto":
        return _interval_of_classwise(metric, logits, labels, probs, level, resampler, options)
    if metric in ROW_SCORES and not options:
        value, rows = mean_and_rows(ROW_SCORES[metric], logits, labels)
        offsets = mean_offsets_of_rows(rows, resampler)
        if method == "auto":
            return within_range(metric, interval_of_mean(value, offsets, len(rows), level))
    elif metric in RANKED and not options:
        odds, correct = top_odds(logits, labels)
        value = OF_SCORES[metric](odds, correct)
        offsets = _rank_offsets(RANKED[metric], odds, correct, resampler)
    else:
        of_rows = on_rows(metric, logits, labels, probs, options)
        value = _as_tensor(of_rows(slice(None)), metric)
        if metric in WITHOUT_BOUND and method == "auto":
            return without_interval(value)
        with known_logits():
            replicas = [of_rows(i.to(labels.device)) for i in resampler.torch_rows(len(labels))]
        offsets = torch.stack(replicas) - value

    if method == "auto" and metric in AREAS:  # "basic" turns a tail below into one beyond 1
        interval = holding_value(_interval(value, offsets, level, "percentile"))
    else:
        interval = _interval(value, offsets, level, method)
    return within_range(metric, interval)


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

    >>> from toosure.metrics import ece_from_confidence
    >>> confidence, correct = torch.tensor([0.9, 0.8, 0.7]), torch.tensor([True, True, False])
    >>> interval = confidence_interval_from_confidence(ece_from_confidence, confidence, correct)
    >>> round(float(interval.value), 6)
    0.333333
    """
    confidence, correct = as_confidence(confidence, correct)
    check_count("samples", samples)
    check_choice("method", method, METHODS)
    confidence = confidence.detach()
    resampler = Resampler(seed, samples)
    value = _as_tensor(metric(confidence, correct, **options), metric)

    if metric in WITHOUT_BOUND and method == "auto":
        return without_interval(value)
    if metric in BINNED:
        error = BINNED[metric]._replace(**options)
        cells = gather_cells(confidence, correct, error.adaptive, error.bins, error.edge)
        if method == "auto":
            return interval_over_rows(error, value, cells, level, resampler)
        sums, bin_replicas = error.sums_and_replicas(cells, resampler)
        offsets = error.of_sums(bin_replicas, error.norm) - error.of_sums(sums, error.norm)
    elif metric in RANKED:
        offsets = _rank_offsets(RANKED[metric], confidence, correct, resampler)
    elif metric is smooth.smece_from_confidence and method == "auto":
        return _interval_of_smece(value, confidence, correct, level, resampler, **options)
    elif is_plain_mmce(metric, options) and method == "auto":
        width = options.get("bandwidth", 0.4)
        return mmce_interval(value, confidence, correct, level, *resampler, width)
    else:
        draws = (i.to(correct.device) for i in resampler.torch_rows(len(correct)))
        replicas = [metric(confidence[i], correct[i], **options) for i in draws]
        offsets = torch.stack(replicas) - value

    return within_range(metric, _interval(value, offsets, level, method))


def _interval(value: Tensor, offsets: Tensor, level: float, method: str) -> Interval:
    """Return the interval around `value` from the replicas' offsets, replica less value."""
    check_choice("method", method, METHODS)
    lower, upper = quantiles(offsets, level).to(value.device)
    if method == "percentile":
        return Interval(value, value + lower, value + upper)

    basic = Interval(value, value - upper, value - lower)
    return holding_value(basic) if method == "auto" else basic


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


def _interval_of_classwise(
    metric: Metric,
    logits: Tensor,
    labels: Tensor,
    probs: ArrayLike | None,
    level: float,
    resampler: Resampler,
    options: dict[str, Any],
) -> Interval:
    """Return classwise ECE with an interval that bounds the bias of absolute gaps."""
    value = on_rows(metric, logits, labels, probs, options)(slice(None))
    given = class_bins(rows_of_classes(metric, logits, probs), labels, **options)
    return classwise_interval_over_rows(value, given, level, *resampler)


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
