"""Bootstrap intervals for any metric, vectorised where the metric is a function of sums."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor

from toosure.metrics import binned, debiased, kernel, ranking, scores, smooth
from toosure.metrics.confidence import chunked_pairs, top_label
from toosure.metrics.inputs import as_confidence, as_pair, check_choice

Metric = Callable[..., Tensor]
_CELLS = 2048  # more rows than this are resampled as that many cells of nearly equal rows


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
    method: str = "basic",
    **options: Any,
) -> Interval:
    r"""Return `metric(logits, labels, **options)` with a seeded bootstrap interval (Efron 1979).

    "basic": [2v - q_high, 2v - q_low] with q the quantiles over resampled rows;
    "percentile": [q_low, q_high]. Resampling adds noise and so pushes calibration errors up;
    "basic" turns that bias around, where "percentile" may leave even the value outside.

    Binned errors, AURC, misclassification AUROC and means over rows resample counts, all at once:
    exact up to 2048 distinct values, beyond that neighbours in value are drawn as one of about
    2048 cells. Equal-mass bins keep their edges. Any other metric is called `samples` times.

    >>> logits = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    >>> value, low, high = confidence_interval(binned.ece, logits, logits.argmax(1))
    >>> bool(low < value < high)
    True
    """
    logits, labels = as_pair(logits, labels)
    logits, draws = logits.detach(), _Draws(seed, samples)
    if metric in _ON_CONFIDENCE:
        reduced = _ON_CONFIDENCE[metric]
        pair = top_label(logits, labels)
        return confidence_interval_from_confidence(
            reduced, *pair, level, seed, samples, method, **options
        )
    if metric in _ROWS:
        rows = [_ROWS[metric](*pair) for pair in chunked_pairs(logits, labels)]
        offsets = _mean_offsets(torch.cat(rows).double(), draws)
        value = metric(logits, labels)
    else:
        value = metric(logits, labels, **options)
        drawn = [metric(logits[i], labels[i], **options) for i in draws.rows(labels)]
        offsets = torch.stack(drawn) - value
    return _interval(value, offsets, level, method, unit=metric is scores.accuracy)


def confidence_interval_from_confidence(
    metric: Metric,
    confidence: Any,
    correct: Any,
    level: float = 0.95,
    seed: int = 0,
    samples: int = 1000,
    method: str = "basic",
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
    confidence, draws = confidence.detach(), _Draws(seed, samples)
    value = metric(confidence, correct, **options)
    if metric in _ON_CELLS:
        offsets = _cell_offsets(_ON_CELLS[metric], confidence, correct, draws, options)
    else:
        drawn = [metric(confidence[i], correct[i], **options) for i in draws.rows(correct)]
        offsets = torch.stack(drawn) - value
    return _interval(value, offsets, level, method, unit=True)


def _interval(value: Tensor, offsets: Tensor, level: float, method: str, unit: bool) -> Interval:
    """Return value and interval; `unit` metrics stay in [0, 1]."""
    check_choice("method", method, ("basic", "percentile"))
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, such as 0.95; got {level}")
    tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    lower, upper = offsets.double().cpu().nanquantile(tails).to(value.device)
    low, high = (
        (value - upper, value - lower) if method == "basic" else (value + lower, value + upper)
    )
    return (
        Interval(value, low.clamp(0, 1), high.clamp(0, 1)) if unit else Interval(value, low, high)
    )


class _Draws(NamedTuple):
    seed: int
    samples: int

    def counts(self, sizes: Tensor) -> Tensor:
        """Return how often each cell is drawn in each replica, (samples, *sizes.shape) float64."""
        share = sizes.double().cpu().flatten().numpy()
        generator = numpy.random.default_rng(self.seed)
        drawn = generator.multinomial(int(share.sum()), share / share.sum(), size=self.samples)
        return torch.from_numpy(drawn).double().view(self.samples, *sizes.shape).to(sizes.device)

    def rows(self, like: Tensor) -> Iterator[Tensor]:
        """Yield the row numbers of each replica, (N,)."""
        generator = torch.Generator().manual_seed(self.seed)
        for _ in range(self.samples):
            yield torch.randint(len(like), (len(like),), generator=generator).to(like.device)


def _mean_offsets(values: Tensor, draws: _Draws) -> Tensor:
    """Return resampled means less the mean; neighbours in value share a cell when N is large."""
    cells = values.sort().values.tensor_split(min(len(values), _CELLS))
    means = torch.stack([cell.mean() for cell in cells])
    sizes = torch.tensor([len(cell) for cell in cells], device=values.device)
    return draws.counts(sizes) @ means / len(values) - values.mean()


class _Cells(NamedTuple):
    """Rows gathered by confidence level and by hit."""

    counts: Tensor  # (..., levels, 2), float64: wrong, right
    confidence: Tensor  # (levels, 2) mean confidence
    bins: Tensor  # (levels,) the bin each level lies in


OnCells = Callable[..., Tensor]


def _cell_offsets(
    on_cells: OnCells, confidence: Tensor, correct: Tensor, draws: _Draws, options: dict[str, Any]
) -> Tensor:
    cells = _gather(confidence, correct, adaptive=on_cells is _adaptive_on_cells, **options)
    replicas = on_cells(cells._replace(counts=draws.counts(cells.counts)), **options)
    return replicas - on_cells(cells, **options)


def _gather(
    confidence: Tensor,
    correct: Tensor,
    adaptive: bool = False,
    bins: int = 15,
    edge: str = "right",
    norm: float = 1,
) -> _Cells:
    """Gather rows into levels: their distinct confidences, or slices of each bin when many."""
    if adaptive:
        edges = binned.equal_mass_edges(confidence, bins)
    else:
        edges = binned.equal_width_edges(bins, confidence)
    levels, level = confidence.unique(return_inverse=True)
    if len(levels) > _CELLS:
        slices = -(-_CELLS // bins)
        steps = torch.arange(slices, dtype=torch.float64, device=edges.device) / slices
        starts = edges[:-1].double()
        fine = (starts[:, None] + (edges[1:].double() - starts)[:, None] * steps).flatten()
        fine = fine.to(edges.dtype)
        level = torch.bucketize(confidence, fine[1:], right=edge == "left")
        within = torch.arange(len(fine), device=edges.device) // slices
    else:
        within = torch.bucketize(levels, edges[1:-1], right=edge == "left")
    size = 2 * len(within)
    key = level * 2 + correct
    counts = torch.bincount(key, minlength=size).double()
    mean = torch.bincount(key, confidence.double(), minlength=size) / counts.clamp(min=1)
    return _Cells(counts.view(-1, 2), mean.view(-1, 2), within)


def _bin_sums(cells: _Cells, bins: int) -> binned.BinSums:
    """Return the bin sums of each replica, (..., bins)."""
    member = torch.nn.functional.one_hot(cells.bins, bins).double()  # (levels, bins)
    summed = (cells.counts * cells.confidence).sum(-1)
    return binned.BinSums(
        cells.counts.sum(-1) @ member, cells.counts[..., 1] @ member, summed @ member
    )


def _ece_on_cells(cells: _Cells, bins: int = 15, edge: str = "right", norm: float = 1) -> Tensor:
    return binned.error_of(_bin_sums(cells, bins), norm)


def _mce_on_cells(cells: _Cells, bins: int = 15, edge: str = "right") -> Tensor:
    return binned.error_of(_bin_sums(cells, bins), float("inf"))


def _rmsce_on_cells(cells: _Cells, bins: int = 15, edge: str = "right") -> Tensor:
    return binned.error_of(_bin_sums(cells, bins), 2)


def _adaptive_on_cells(cells: _Cells, bins: int = 15, norm: float = 1) -> Tensor:
    return binned.error_of(_bin_sums(cells, bins), norm)


def _debiased_on_cells(
    cells: _Cells, bins: int = 15, edge: str = "right", norm: float = 1
) -> Tensor:
    return debiased.debiased_error_of(_bin_sums(cells, bins), norm)


def _auroc_on_cells(cells: _Cells) -> Tensor:
    return ranking.auroc_of_counts(cells.counts[..., 1], cells.counts[..., 0])


def _aurc_on_cells(cells: _Cells) -> Tensor:
    """Sum (H + j a) / (K + j), j = 1 .. n, down the levels: n a + (H - K a) (psi - psi)."""
    counts = cells.counts.flip(-2)
    n, hits = counts.sum(-1), counts[..., 1]
    a = hits / n.clamp(min=1)
    before, hits_before = n.cumsum(-1) - n, hits.cumsum(-1) - hits
    spread = torch.digamma(before + n + 1) - torch.digamma(before + 1)
    area = (hits + (hits_before - before * a) * spread).sum(-1)
    return 1 - area / n.sum(-1)


_ON_CONFIDENCE: dict[Metric, Metric] = {
    binned.ece: binned.ece_from_confidence,
    binned.mce: binned.mce_from_confidence,
    binned.rmsce: binned.rmsce_from_confidence,
    binned.adaptive_ece: binned.adaptive_ece_from_confidence,
    debiased.debiased_ece: debiased.debiased_ece_from_confidence,
    kernel.mmce: kernel.mmce_from_confidence,
    smooth.smece: smooth.smece_from_confidence,
    ranking.auroc_misclass: ranking.auroc_misclass_from_confidence,
    ranking.aurc: ranking.aurc_from_confidence,
}
_ON_CELLS: dict[Metric, OnCells] = {
    binned.ece_from_confidence: _ece_on_cells,
    binned.mce_from_confidence: _mce_on_cells,
    binned.rmsce_from_confidence: _rmsce_on_cells,
    binned.adaptive_ece_from_confidence: _adaptive_on_cells,
    debiased.debiased_ece_from_confidence: _debiased_on_cells,
    ranking.auroc_misclass_from_confidence: _auroc_on_cells,
    ranking.aurc_from_confidence: _aurc_on_cells,
}
_ROWS: dict[Metric, scores.Rows] = {
    scores.nll: scores.nll_rows,
    scores.brier: scores.brier_rows,
    scores.accuracy: scores.accuracy_rows,
    scores.binary_entropy: scores.binary_entropy_rows,
    scores.entropy: scores.entropy_rows,
}
