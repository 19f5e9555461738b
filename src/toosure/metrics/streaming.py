"""Metrics over batches: torchmetrics' update / compute / reset on sums, never on samples.

States are int64 and float64 sums, so batches and processes merge exactly. MMCE, SKCE, SECE, smECE
and the ranking metrics need every row at once and are not here. Importing loads torchmetrics.
"""

import math
from typing import Any, ClassVar

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
from toosure.metrics.classwise import classwise_sums, reduced_error
from toosure.metrics.confidence import chunked_pairs, top_label
from toosure.metrics.inputs import as_pair, check_bins, check_choice, row_numbers_of_all
from toosure.metrics.scores import accuracy_rows, brier_rows, nll_rows


class _SummedBins(Metric):
    """Counts, hits and summed confidences per bin, added up over batches."""

    full_state_update = False
    is_differentiable = False
    counts: Tensor
    correct: Tensor
    confidence: Tensor

    def _add_states(self, *shape: int) -> None:
        dtypes = {"counts": torch.int64, "correct": torch.int64, "confidence": torch.float64}
        for name, dtype in dtypes.items():
            self.add_state(name, torch.zeros(shape, dtype=dtype), dist_reduce_fx="sum")

    def _add(self, sums: BinSums) -> None:
        self.counts += sums.counts.to(self.counts.device)
        self.correct += sums.correct.to(self.counts.device)
        self.confidence += sums.confidence.to(self.counts.device)

    def _sums(self) -> BinSums:
        if not self.counts.any():
            raise ValueError(f"{type(self).__name__} has seen no rows: call update first")
        return BinSums(self.counts, self.correct, self.confidence)


class _TopLabelBins(_SummedBins):
    """Sums of the top label in equal-width bins."""

    def __init__(self, bins: int, edge: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_bins(bins)
        check_choice("edge", edge, ("right", "left"))
        self.bins = bins
        self.edge = edge
        self._add_states(bins)

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add a batch."""
        confidence, correct = top_label(logits.detach(), labels)
        edges = equal_width_edges(self.bins, confidence)
        self._add(bin_sums(confidence, correct, edges, self.edge))


class ReliabilityTable(_TopLabelBins):
    """Gather `toosure.metrics.reliability` over batches; 3 numbers per bin.

    >>> table = ReliabilityTable(bins=2)
    >>> table.update(torch.tensor([[2.0, 0.5, -1.0]]), torch.tensor([0]))
    >>> table.compute().counts.tolist()
    [0, 1]
    """

    def __init__(
        self, bins: int = 15, edge: str = "right", level: float = 0.95, **kwargs: Any
    ) -> None:
        super().__init__(bins, edge, **kwargs)
        self.level = level

    def compute(self) -> Reliability:
        """Return the table of all batches."""
        sums = self._sums()
        edges = equal_width_edges(self.bins, sums.confidence)
        return table_of(sums, edges, self.level)


class ECE(_TopLabelBins):
    """Gather `toosure.metrics.ece` over batches; 3 numbers per bin.

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


class ClasswiseECE(_SummedBins):
    """Gather `toosure.metrics.classwise_ece` over batches; 3 numbers per class and bin.

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

        self.classes = classes
        self.bins = bins
        self.edge = edge
        self.norm = norm
        self.reduction = reduction
        self._add_states(classes, bins)

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add a batch."""
        if logits.ndim == 2 and logits.shape[1] != self.classes:
            raise ValueError(f"expected {self.classes} classes; got {logits.shape[1]}")
        self._add(classwise_sums(logits, labels, self.bins, self.edge))

    def compute(self) -> Tensor:
        """Return the error of all batches."""
        return reduced_error(self._sums(), self.norm, self.reduction)


class AdaptiveECE(_SummedBins):
    """Gather `toosure.metrics.adaptive_ece` over batches, on a fixed fine grid of confidences.

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
        self.bins = bins
        self.norm = norm
        self._add_states(self.cells)

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add a batch."""
        confidence, correct = top_label(logits.detach(), labels)
        self.take(confidence, correct)

    def take(self, confidence: Tensor, correct: Tensor) -> None:
        """Add confidences and hits already checked."""
        confidence = confidence.double()
        index = self.cell(confidence)
        wrong_right = torch.bincount(index * 2 + correct, minlength=2 * self.cells).view(-1, 2)
        summed = torch.bincount(index, confidence, minlength=self.cells)
        self._add(BinSums(wrong_right.sum(1), wrong_right[:, 1], summed))

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

        def merge(cells: Tensor) -> Tensor:
            """Add up the cells of each bin."""
            bins = torch.zeros(self.bins, dtype=cells.dtype, device=cells.device)
            return bins.index_add_(0, index, cells)

        merged = BinSums(merge(sums.counts), merge(sums.correct), merge(sums.confidence))
        return error_of(merged, self.norm)


class _RowMean(Metric):
    """The mean over rows of a per-row score, as a sum and a count over batches."""

    full_state_update = False
    is_differentiable = False
    higher_is_better = False
    row_score: ClassVar["staticmethod[[Tensor, Tensor], Tensor]"]
    total: Tensor
    n: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("n", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add a batch."""
        logits, labels = as_pair(logits.detach(), labels)
        # All chunks are computed before any is added: one that raises leaves the state unchanged.
        with row_numbers_of_all(logits):
            chunks = chunked_pairs(logits, labels)
            sums = [self.row_score(*pair).sum(dtype=torch.float64) for pair in chunks]
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

    row_score = staticmethod(nll_rows)


class Brier(_RowMean):
    """Gather `toosure.metrics.brier` over batches.

    >>> metric = Brier()
    >>> metric.update(torch.tensor([[2.0, 0.5, -1.0]]), torch.tensor([0]))
    >>> round(float(metric.compute()), 6)
    0.078225
    """

    row_score = staticmethod(brier_rows)


class Accuracy(_RowMean):
    """Gather `toosure.metrics.accuracy` over batches.

    >>> metric = Accuracy()
    >>> metric.update(torch.tensor([[2.0, 0.5, -1.0]]), torch.tensor([0]))
    >>> float(metric.compute())
    1.0
    """

    higher_is_better = True
    row_score = staticmethod(accuracy_rows)
