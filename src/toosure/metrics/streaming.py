"""Metrics that take batches: torchmetrics' update / compute / reset on sums, never on samples.

States are int64 and float64 sums, so batches and processes merge exactly. MMCE, SKCE, SECE, smECE
and the ranking metrics need every row at once and have no twin here. Importing loads torchmetrics.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from toosure.metrics.binned import (
    BinSums,
    Reliability,
    bin_sums,
    equal_width_edges,
    error_of,
    table_of,
)
from toosure.metrics.classwise import classwise_sums
from toosure.metrics.confidence import chunked_pairs, top_label
from toosure.metrics.inputs import as_pair, check_bins, check_choice, naming_rows
from toosure.metrics.scores import Rows, accuracy_rows, brier_rows, nll_rows


class _Sums(Metric):
    """Counts, hits and summed confidences, kept over batches."""

    full_state_update = False
    is_differentiable = False
    counts: Tensor
    correct: Tensor
    confidence: Tensor

    def _add_sums(self, *shape: int) -> None:
        for name, dtype in (("counts", torch.int64), ("correct", torch.int64)):
            self.add_state(name, torch.zeros(shape, dtype=dtype), dist_reduce_fx="sum")
        zeros = torch.zeros(shape, dtype=torch.float64)
        self.add_state("confidence", zeros, dist_reduce_fx="sum")

    def _take(self, sums: BinSums) -> None:
        self.counts += sums.counts.to(self.counts.device)
        self.correct += sums.correct.to(self.counts.device)
        self.confidence += sums.confidence.to(self.counts.device)

    def _sums(self) -> BinSums:
        if not self.counts.any():
            raise ValueError(f"{type(self).__name__} has seen no rows: call update first")
        return BinSums(self.counts, self.correct, self.confidence)


class ReliabilityTable(_Sums):
    """Gather `toosure.metrics.reliability` over batches; 3 numbers a bin.

    >>> table = ReliabilityTable(bins=2)
    >>> table.update(torch.tensor([[2.0, 0.5, -1.0]]), torch.tensor([0]))
    >>> table.compute().counts.tolist()
    [0, 1]
    """

    def __init__(
        self, bins: int = 15, edge: str = "right", level: float = 0.95, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        check_bins(bins)
        check_choice("edge", edge, ("right", "left"))
        self.bins, self.edge, self.level = bins, edge, level
        self._add_sums(bins)

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add a batch."""
        confidence, correct = top_label(logits.detach(), labels)
        edges = equal_width_edges(self.bins, confidence)
        self._take(bin_sums(confidence, correct, edges, self.edge))

    def compute(self) -> Any:
        """Return the table of all batches."""
        sums = self._sums()
        edges = equal_width_edges(self.bins, sums.confidence)
        table: Reliability = table_of(sums, edges, self.level)
        return table


class ECE(ReliabilityTable):
    """Gather `toosure.metrics.ece` over batches; 3 numbers a bin.

    >>> metric = ECE()
    >>> metric.update(torch.tensor([[2.0, 0.5, -1.0]]), torch.tensor([0]))
    >>> round(float(metric.compute()), 6)
    0.214403
    """

    higher_is_better = False

    def __init__(self, bins: int = 15, edge: str = "right", norm: float = 1, **kwargs: Any) -> None:
        super().__init__(bins, edge, **kwargs)
        check_choice("norm", norm, (1, 2, math.inf))
        self.norm = norm

    def compute(self) -> Tensor:
        """Return the error of all batches."""
        return error_of(self._sums(), self.norm)


class MCE(ECE):
    """Gather `toosure.metrics.mce` over batches.

    >>> metric = MCE()
    >>> metric.update(torch.tensor([[2.0, 0.5, -1.0]]), torch.tensor([0]))
    >>> round(float(metric.compute()), 6)
    0.214403
    """

    def __init__(self, bins: int = 15, edge: str = "right", **kwargs: Any) -> None:
        super().__init__(bins, edge, math.inf, **kwargs)


class ClasswiseECE(_Sums):
    """Gather `toosure.metrics.classwise_ece` over batches; 3 numbers a class and bin.

    >>> metric = ClasswiseECE(classes=3)
    >>> metric.update(torch.tensor([[2.0, 0.5, -1.0]]), torch.tensor([0]))
    >>> round(float(metric.compute()), 6)
    0.142935
    """

    higher_is_better = False

    def __init__(
        self,
        classes: int,
        bins: int = 15,
        edge: str = "right",
        norm: float = 1,
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_bins(bins)
        check_choice("edge", edge, ("right", "left"))
        check_choice("norm", norm, (1, 2, math.inf))
        check_choice("reduction", reduction, ("mean", "sum", "none"))
        self.classes, self.bins, self.edge = classes, bins, edge
        self.norm, self.reduction = norm, reduction
        self._add_sums(classes, bins)

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add a batch."""
        if logits.ndim == 2 and logits.shape[1] != self.classes:
            raise ValueError(f"expected {self.classes} classes; got {logits.shape[1]}")
        self._take(classwise_sums(logits, labels, self.bins, self.edge))

    def compute(self) -> Tensor:
        """Return the error of all batches."""
        errors = error_of(self._sums(), self.norm)
        return errors if self.reduction == "none" else getattr(errors, self.reduction)()


class AdaptiveECE(_Sums):
    r"""Gather `toosure.metrics.adaptive_ece` over batches, on a fixed fine grid of confidences.

    Confidences within one cell count as equal. Cells are even in 1000 c + 48 log2(c / (1 - c)): no
    wider than 0.001 and than 1.5 % of c and of 1 - c, so that they stay fine where networks crowd,
    near 1, and where rows of many classes do, near 0 (below 2^-10 they are one).
    The equal-mass edges therefore sit on cells: each bin's mass is off by less than its last cell.

    >>> metric = AdaptiveECE()
    >>> metric.update(torch.tensor([[2.0, 0.5, -1.0]]), torch.tensor([0]))
    >>> round(float(metric.compute()), 6)
    0.214403
    """

    higher_is_better = False
    cells = 1000 + 48 * (10 + 25)  # from 2^-10 to 1 - 2^-25, above float32's last step

    def __init__(self, bins: int = 15, norm: float = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_bins(bins)
        check_choice("norm", norm, (1, 2, math.inf))
        self.bins, self.norm = bins, norm
        self._add_sums(self.cells)

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add a batch."""
        self.take(*top_label(logits.detach(), labels))

    def take(self, confidence: Tensor, correct: Tensor) -> None:
        """Add confidences and hits already checked."""
        confidence = confidence.double()
        index = self.cell(confidence)
        split = torch.bincount(index * 2 + correct, minlength=2 * self.cells).view(-1, 2)
        summed = torch.bincount(index, confidence, minlength=self.cells)
        self._take(BinSums(split.sum(1), split[:, 1], summed))

    def cell(self, confidence: Tensor) -> Tensor:
        """Return the cell of each confidence, higher for higher."""
        octaves = torch.log2(confidence) - torch.log2(1 - confidence) + 10
        return (1000 * confidence + 48 * octaves).clamp(0, self.cells - 1).long()

    def compute(self) -> Tensor:
        """Return the error of all batches."""
        sums = self._sums()
        below = sums.counts.cumsum(0) - sums.counts
        index = below * self.bins // sums.counts.sum()
        index = index.clamp(max=self.bins - 1)  # empty cells past the last row
        merged = [torch.zeros(self.bins, dtype=s.dtype, device=s.device) for s in sums]
        return error_of(
            BinSums(*(m.index_add_(0, index, s) for m, s in zip(merged, sums, strict=True))),
            self.norm,
        )


class _RowMean(Metric):
    """The mean over rows of a per-row score, kept as a sum and a count."""

    full_state_update = False
    is_differentiable = False
    higher_is_better = False
    total: Tensor
    n: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("n", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def _rows(self) -> Rows:
        raise NotImplementedError

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add a batch."""
        logits, labels = as_pair(logits.detach(), labels)
        rows_of = self._rows()
        with naming_rows(logits):  # all chunks, before any of them counts
            sums = [
                rows_of(*pair).sum(dtype=torch.float64) for pair in chunked_pairs(logits, labels)
            ]
        self.total += torch.stack(sums).sum().to(self.total.device)
        self.n += len(logits)

    def compute(self) -> Tensor:
        """Return the mean over all batches."""
        if not self.n:
            raise ValueError(f"{type(self).__name__} has seen no rows: call update first")
        return self.total / self.n


class NLL(_RowMean):
    """Gather `toosure.metrics.nll` over batches.

    >>> metric = NLL()
    >>> metric.update(torch.tensor([[2.0, 0.5, -1.0]]), torch.tensor([0]))
    >>> round(float(metric.compute()), 6)
    0.241311
    """

    def _rows(self) -> Rows:
        return nll_rows


class Brier(_RowMean):
    """Gather `toosure.metrics.brier` over batches.

    >>> metric = Brier()
    >>> metric.update(torch.tensor([[2.0, 0.5, -1.0]]), torch.tensor([0]))
    >>> round(float(metric.compute()), 6)
    0.078225
    """

    def _rows(self) -> Rows:
        return brier_rows


class Accuracy(_RowMean):
    """Gather `toosure.metrics.accuracy` over batches.

    >>> metric = Accuracy()
    >>> metric.update(torch.tensor([[2.0, 0.5, -1.0]]), torch.tensor([0]))
    >>> float(metric.compute())
    1.0
    """

    higher_is_better = True

    def _rows(self) -> Rows:
        return accuracy_rows
