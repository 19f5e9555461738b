"""Bootstrap intervals for any metric, vectorised where the metric is a function of sums."""

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from toosure.metrics.binned_interval import binned_interval, binned_offsets
from toosure.metrics.bootstrap import Bootstrap, as_bootstrap
from toosure.metrics.classwise_interval import bins_of_classes, classwise_interval, rows_of_classes
from toosure.metrics.confidence import top_label, top_odds
from toosure.metrics.group_draws import group_count
from toosure.metrics.inputs import (
    ArrayLike,
    as_confidence,
    as_distributions,
    as_metric_inputs,
    check_one_column,
    known_outputs,
)
from toosure.metrics.interval_ends import Interval, union, without_interval
from toosure.metrics.interval_tables import (
    FROM_CONFIDENCE,
    INTERVALS,
    Metric,
    MetricInterval,
    is_plain_mmce,
)
from toosure.metrics.kernel_interval import mmce_interval
from toosure.metrics.mean_interval import interval_of_mean, mean_and_rows, mean_offsets
from toosure.metrics.rank_interval import rank_offsets
from toosure.metrics.smooth_interval import smece_interval


def confidence_interval(
    metric: Metric,
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    level: float = 0.95,
    seed: int = 0,
    samples: int = 1000,
    method: str = "auto",
    *,
    groups: ArrayLike | None = None,
    probs: ArrayLike | None = None,
    **options: Any,
) -> Interval:
    r"""Return `metric(logits, labels, **options)` with a seeded bootstrap interval (Efron 1979).

    "basic": [2v - q_high, 2v - q_low] with q the quantiles over resampled rows;
    "percentile": [q_low, q_high]. Both fail a calibration error near 0, where noise alone pushes
    the value up and resampling pushes again: at 95 %, less than 70 % of them hold an ECE of 0.
    "auto" therefore differs for `ece`, `mce`, `rmsce`, `adaptive_ece`, `classwise_ece` and `smece`.
    Their bias lies between 0, if the sign of each gap is certain, and the bias of a gap of 0. The
    high end takes the first. The low end takes the second where chance explains the gap, and is 0
    where labels drawn from the probabilities show such an error. The interval always holds the
    value. It covers as often as it says or more often, at the price of width (docs/metrics.md),
    except for `mce` where several bins share the largest gap, and for `rmsce` of few rows: with 30
    it held a true error of 0.1 in 88 % of 300 sets.

    `debiased_ece` estimates the same error as `ece` and has its interval. `mmce`, a length, bounds
    its bias likewise (unless `weighted`). `dece`, `sece` and `kde_ece` have no such bound: their
    ends are NaN. A mean over rows joins both textbook intervals, with Student's quantile; with one
    row its ends are NaN. `auroc_ovr` and `auroc_ovr_binned` have "percentile", any other metric
    "basic". All are widened to hold the value, and end where the metric does: no NLL is below 0.

    `groups` (N,), names or numbers, is the sequence, image or person of each row. Then whole groups
    are resampled, and `method` must be "auto". An interval that bounds a bias is never narrower
    over groups than over rows.

    Binned errors, AURC, misclassification AUROC and means over rows resample counts, all at once.
    This is exact up to 256 distinct values (512 for ranks and means); more values are merged with
    their neighbours into about that many cells. Equal-mass bins keep their edges. Any other metric
    is called `samples` times. If it returns several numbers in a tensor (`reduction="none"`), each
    has an interval. `auroc_ood` and `fpr95_ood` compare two sets of logits and have none.

    >>> from toosure.metrics import ece
    >>> logits = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    >>> value, low, high = confidence_interval(ece, logits, logits.argmax(1))
    >>> bool(low < value < high)
    True
    """
    entry = INTERVALS.get(metric, MetricInterval())
    if entry.kind == "two sets":
        raise ValueError(f"{_name(metric)} compares two sets of logits and has no interval")
    check_one_column(logits)
    # A metric that is called checks logits itself; without a call they are checked here. So are
    # probabilities, whose logarithm a metric of your own is called with.
    checks_itself = entry.kind not in ("mean", "ranks") and probs is None
    with known_outputs() if checks_itself else nullcontext():
        logits, labels = as_metric_inputs(logits, labels, probs)
    logits = logits.detach()

    by_confidence = entry.needs_confidence_only or (entry.kind == "ranks" and probs is not None)
    if by_confidence and entry.from_confidence is not None:
        pair = top_label(logits, labels) if probs is None else top_label(probs=probs, labels=labels)
        return confidence_interval_from_confidence(
            entry.from_confidence, *pair, level, seed, samples, method, groups=groups, **options
        )

    bootstrap = as_bootstrap(level, seed, samples, method, groups, len(labels))
    # Means and ranks take no options: called with one, they raise.
    if entry.row_score is not None and not options:
        value, rows = mean_and_rows(entry.row_score, logits, labels)
        return _interval_of_mean(entry, value, rows, bootstrap)
    if entry.ranking is not None and not options:
        odds, correct = top_odds(logits, labels)
        return _interval_of_pairs(entry.ranking.of_scores, entry, odds, correct, bootstrap, options)

    return _interval_by_calls(metric, entry, logits, labels, probs, bootstrap, options)


def confidence_interval_from_confidence(
    metric: Metric,
    confidence: ArrayLike,
    correct: ArrayLike,
    level: float = 0.95,
    seed: int = 0,
    samples: int = 1000,
    method: str = "auto",
    *,
    groups: ArrayLike | None = None,
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
    bootstrap = as_bootstrap(level, seed, samples, method, groups, len(confidence))
    entry = FROM_CONFIDENCE.get(metric, MetricInterval())
    return _interval_of_pairs(metric, entry, confidence.detach(), correct, bootstrap, options)


def on_rows(
    metric: Metric,
    logits: Tensor,
    labels: Tensor,
    probs: ArrayLike | None,
    options: dict[str, Any],
) -> Callable[[Tensor | slice], Tensor]:
    """Return the metric as a function of the rows to take.

    Probabilities go to a metric that takes them, else their logarithm.
    """
    if probs is not None and "probs" in inspect.signature(metric).parameters:
        rows = as_distributions(probs).detach()
        return lambda i: metric(probs=rows[i], labels=labels[i], **options)

    return lambda i: metric(logits[i], labels[i], **options)


def over_rows_and_groups(
    interval: Callable[[Tensor | None], Interval], groups: Tensor | None
) -> Interval:
    """Return the interval over rows, or the one over groups, widened to hold the one over rows.

    Rows of a group are alike, so they never say more than independent rows.
    """
    over_rows = interval(None)
    return over_rows if groups is None else union(interval(groups), over_rows)


def _interval_of_mean(
    entry: MetricInterval, value: Tensor, rows: Tensor, bootstrap: Bootstrap
) -> Interval:
    """Return a mean over rows with its interval."""
    offsets = mean_offsets(rows, bootstrap.resampler, bootstrap.groups)
    if bootstrap.method != "auto":
        return bootstrap.interval(entry, value, offsets)

    count = len(rows) if bootstrap.groups is None else group_count(bootstrap.groups)
    return entry.within_range(interval_of_mean(value, offsets, count, bootstrap.level))


def _interval_by_calls(
    metric: Metric,
    entry: MetricInterval,
    logits: Tensor,
    labels: Tensor,
    probs: ArrayLike | None,
    bootstrap: Bootstrap,
    options: dict[str, Any],
) -> Interval:
    """Return a metric of checked logits with its interval: it is called on resampled rows.

    Classwise ECE has an interval of its own, which bounds the bias.
    """
    of_rows = on_rows(metric, logits, labels, probs, options)
    value = _as_tensor(of_rows(slice(None)), metric)
    if entry.kind == "no bound" and bootstrap.method == "auto":
        return without_interval(value)

    if entry.kind == "classwise" and bootstrap.method == "auto":
        classes = bins_of_classes(rows_of_classes(logits, probs), labels, **options)
        level, resampler = bootstrap.level, bootstrap.resampler
        return over_rows_and_groups(
            lambda groups: classwise_interval(value, classes, level, *resampler, groups),
            bootstrap.groups,
        )

    with known_outputs():
        replicas = [of_rows(i) for i in bootstrap.rows(labels)]
    return bootstrap.interval(entry, value, torch.stack(replicas) - value)


def _interval_of_pairs(
    metric: Metric,
    entry: MetricInterval,
    confidence: Tensor,
    correct: Tensor,
    bootstrap: Bootstrap,
    options: dict[str, Any],
) -> Interval:
    """Return a metric of checked confidences, or other scores, and hits with its interval."""
    value = _as_tensor(metric(confidence, correct, **options), metric)
    if bootstrap.method == "auto":
        if entry.kind == "no bound":
            return without_interval(value)
        bounds = _interval_with_bias_bounds(entry, value, confidence, correct, bootstrap, options)
        if bounds is not None:
            return over_rows_and_groups(bounds, bootstrap.groups)

    if entry.ranking is not None:
        offsets = rank_offsets(
            entry.ranking.of_counts, confidence, correct, bootstrap.resampler, bootstrap.groups
        )
    elif entry.error is not None:
        error = entry.error._replace(**options)
        offsets = binned_offsets(error, confidence, correct, bootstrap.resampler)
    else:
        draws = bootstrap.rows(correct)
        replicas = [metric(confidence[i], correct[i], **options) for i in draws]
        offsets = torch.stack(replicas) - value
    return bootstrap.interval(entry, value, offsets)


def _interval_with_bias_bounds(
    entry: MetricInterval,
    value: Tensor,
    confidence: Tensor,
    correct: Tensor,
    bootstrap: Bootstrap,
    options: dict[str, Any],
) -> Callable[[Tensor | None], Interval] | None:
    """Return, as a function of the groups, the interval that bounds a bias; None if none does."""
    pair = (confidence, correct)
    level, resampler = bootstrap.level, bootstrap.resampler
    if entry.error is not None:
        error = entry.error._replace(**options)
        return lambda groups: binned_interval(error, value, *pair, level, resampler, groups)
    if entry.kind == "smece":
        return lambda groups: smece_interval(
            value, *pair, level, *resampler, **options, groups=groups
        )
    if entry.kind == "mmce" and is_plain_mmce(options):
        width = options.get("bandwidth", 0.4)
        return lambda groups: mmce_interval(value, *pair, level, *resampler, width, groups)
    return None


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
