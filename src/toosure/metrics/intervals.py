"""Bootstrap intervals for any metric, vectorised where the metric is a function of sums."""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor

from toosure.metrics import binned, cells, debiased, kernel, ranking, scores, smooth
from toosure.metrics.confidence import chunked_pairs, top_label, top_odds
from toosure.metrics.inputs import as_confidence, as_pair, check_choice, check_count

Metric = Callable[..., Tensor]
METHODS = ("auto", "basic", "percentile")


class Interval(NamedTuple):
    """A value and the interval around it."""

    value: Tensor
    low: Tensor
    high: Tensor


def confidence_interval(
    metric: Metric,
    logits: Any,
    labels: Any,
    level: float = 0.95,
    seed: int = 0,
    samples: int = 1000,
    method: str = "auto",
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
    logits, labels = as_pair(logits, labels)
    check_count("samples", samples)
    logits, draws = logits.detach(), _Draws(seed, samples)
    if metric in _ON_CONFIDENCE:
        reduced = _ON_CONFIDENCE[metric]
        pair = top_label(logits, labels)
        return confidence_interval_from_confidence(
            reduced, *pair, level, seed, samples, method, **options
        )
    value = _as_tensor(metric(logits, labels, **options), metric)
    if metric in _ROWS:
        rows = [_ROWS[metric](*pair) for pair in chunked_pairs(logits, labels)]
        offsets = _mean_offsets(torch.cat(rows).double(), draws)
    elif metric in _RANKED:
        offsets = _rank_offsets(_RANKED[metric], *top_odds(logits, labels), draws)
    else:
        drawn = [metric(logits[i], labels[i], **options) for i in draws.rows(labels)]
        offsets = torch.stack(drawn) - value
    unit = metric is scores.accuracy or metric in _RANKED
    return _interval(value, offsets, level, method, unit)


def confidence_interval_from_confidence(
    metric: Metric,
    confidence: Any,
    correct: Any,
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
    confidence, draws = confidence.detach(), _Draws(seed, samples)
    check_choice("method", method, METHODS)
    value = _as_tensor(metric(confidence, correct, **options), metric)
    if metric in _NORMS and method == "auto":
        return _of_gaps(metric, value, confidence, correct, level, draws, **options)
    if metric in _RANKED:
        offsets = _rank_offsets(_RANKED[metric], confidence, correct, draws)
    elif metric in _ON_CELLS or metric in _NORMS:
        offsets = _cell_offsets(metric, confidence, correct, draws, options)
    else:
        drawn = [metric(confidence[i], correct[i], **options) for i in draws.rows(correct)]
        offsets = torch.stack(drawn) - value
    return _interval(value, offsets, level, method, unit=True)


def _interval(value: Tensor, offsets: Tensor, level: float, method: str, unit: bool) -> Interval:
    """Return value and interval; `unit` metrics stay in [0, 1]."""
    check_choice("method", method, METHODS)
    lower, upper = _tails(offsets, level).to(value.device)
    if method == "percentile":
        low, high = value + lower, value + upper
    else:
        low, high = value - upper, value - lower
    if method == "auto":  # NaN, where nothing could be resampled, stays
        low, high = torch.minimum(low, value), torch.maximum(high, value)
    return (
        Interval(value, low.clamp(0, 1), high.clamp(0, 1)) if unit else Interval(value, low, high)
    )


def _tails(offsets: Tensor, level: float) -> Tensor:
    """Return the quantiles over the replicas that leave (1 - level) / 2 on either side, (2, ..)."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, such as 0.95; got {level}")
    tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    return offsets.double().cpu().nanquantile(tails, 0)


def _of_gaps(
    metric: Metric,
    value: Tensor,
    confidence: Tensor,
    correct: Tensor,
    level: float,
    draws: "_Draws",
    bins: int = 15,
    edge: str = "right",
    norm: float | None = None,
) -> Interval:
    """Return a binned error with an interval that knows the bias of absolute gaps."""
    norm = norm or _NORMS[metric]
    found = cells.gather(confidence, correct, metric in _EQUAL_MASS, bins, edge)
    sums, replicas = (cells.bin_sums(each, bins) for each in (found, draws.cells(found)))
    above = cells.error_along(sums, replicas, norm) - binned.error_of(sums, norm)
    centre = cells.with_claimed_hits(found, bins)
    sums, replicas = (cells.bin_sums(each, bins) for each in (centre, draws.cells(centre)))
    below = binned.error_of(replicas, norm) - binned.error_of(sums, norm)
    low = value - _tails(below, level)[1].to(value.device)
    high = value - _tails(above, level)[0].to(value.device)
    if norm == math.inf:  # the largest gap is no smaller than the mean one
        mean = binned.error_of(cells.bin_sums(found, bins), 1).to(value)
        low = low.maximum(
            _of_gaps(metric, mean, confidence, correct, level, draws, bins, edge, 1).low
        )
    low, high = torch.minimum(low, value), torch.maximum(high, value)
    return Interval(value, low.clamp(0, 1), high.clamp(0, 1))


class _Draws(NamedTuple):
    seed: int
    samples: int

    def counts(self, sizes: Tensor) -> Tensor:
        """Return how often each cell is drawn in each replica, (samples, *sizes.shape) float64."""
        share = sizes.double().cpu().flatten().numpy()
        generator = numpy.random.default_rng(self.seed)
        drawn = generator.multinomial(round(share.sum()), share / share.sum(), size=self.samples)
        return torch.from_numpy(drawn).double().view(self.samples, *sizes.shape).to(sizes.device)

    def cells(self, found: cells.Cells) -> cells.Cells:
        """Return the replicas of gathered rows."""
        return found._replace(counts=self.counts(found.counts))

    def rows(self, like: Tensor) -> Iterator[Tensor]:
        """Yield the row numbers of each replica, (N,)."""
        generator = torch.Generator().manual_seed(self.seed)
        for _ in range(self.samples):
            yield torch.randint(len(like), (len(like),), generator=generator).to(like.device)


def _mean_offsets(values: Tensor, draws: _Draws) -> Tensor:
    """Return resampled means less the mean; NaN where that is infinite."""
    if not values.mean().isfinite():
        return values.new_full((draws.samples,), torch.nan)
    levels, counts = cells.gather_values(values)
    return draws.counts(counts) @ levels / len(values) - values.mean()


def _rank_offsets(
    of_ranks: Callable[[Tensor], Tensor], score: Tensor, correct: Tensor, draws: _Draws
) -> Tensor:
    """Return a ranking of replicas less that of the rows."""
    counts = cells.gather_ranks(score, correct)
    return of_ranks(draws.counts(counts)) - of_ranks(counts.double())


def _as_tensor(value: Any, metric: Metric) -> Tensor:
    """Return a metric's value, or say that an interval needs a number."""
    if isinstance(value, Tensor):
        return value
    raise ValueError(
        f"an interval needs a metric that returns a tensor; {_name(metric)} returns "
        f"{type(value).__name__}: pass a function that returns one of its fields"
    )


def _name(metric: Metric) -> str:
    return getattr(metric, "__name__", repr(metric))


def _cell_offsets(
    metric: Metric, confidence: Tensor, correct: Tensor, draws: _Draws, options: dict[str, Any]
) -> Tensor:
    found = cells.gather(confidence, correct, metric in _EQUAL_MASS, **options)
    if metric in _ON_CELLS:
        on_cells = _ON_CELLS[metric]
        return on_cells(draws.cells(found), **options) - on_cells(found, **options)
    bins, norm = options.get("bins", 15), options.get("norm", _NORMS[metric])
    sums, replicas = (cells.bin_sums(each, bins) for each in (found, draws.cells(found)))
    return binned.error_of(replicas, norm) - binned.error_of(sums, norm)


_ON_CONFIDENCE: dict[Metric, Metric] = {
    binned.ece: binned.ece_from_confidence,
    binned.mce: binned.mce_from_confidence,
    binned.rmsce: binned.rmsce_from_confidence,
    binned.adaptive_ece: binned.adaptive_ece_from_confidence,
    debiased.debiased_ece: debiased.debiased_ece_from_confidence,
    kernel.mmce: kernel.mmce_from_confidence,
    smooth.smece: smooth.smece_from_confidence,
}
_NORMS: dict[Metric, float] = {  # binned errors, with their norm where none is given
    binned.ece_from_confidence: 1,
    binned.mce_from_confidence: math.inf,
    binned.rmsce_from_confidence: 2,
    binned.adaptive_ece_from_confidence: 1,
}
_EQUAL_MASS = (binned.adaptive_ece_from_confidence,)
_ON_CELLS: dict[Metric, Callable[..., Tensor]] = {
    debiased.debiased_ece_from_confidence: cells.debiased_on_cells,
}
_RANKED: dict[Metric, Callable[[Tensor], Tensor]] = {
    ranking.auroc_misclass: cells.auroc_of_ranks,
    ranking.auroc_misclass_from_confidence: cells.auroc_of_ranks,
    ranking.aurc: cells.aurc_of_ranks,
    ranking.aurc_from_confidence: cells.aurc_of_ranks,
}
_OF_TWO_SETS = (ranking.auroc_ood, ranking.fpr95_ood)
_ROWS: dict[Metric, scores.Rows] = {
    scores.nll: scores.nll_rows,
    scores.brier: scores.brier_rows,
    scores.accuracy: scores.accuracy_rows,
    scores.binary_entropy: scores.binary_entropy_rows,
    scores.entropy: scores.entropy_rows,
}
