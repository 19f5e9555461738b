"""Metrics over batches: torchmetrics' update / compute / reset on sums, never on samples.

States are int64 and float64 sums, so batches and processes merge exactly. MMCE, SKCE, SECE, smECE
and the ranking metrics need every row at once and are not here. Importing loads torchmetrics.
"""

import math
from typing import Any

import torch
from torch import Tensor

from toosure.binary import is_one_column
from toosure.metrics.binned import (
    EDGES,
    NORMS,
    BinSums,
    Reliability,
    bin_sums,
    equal_width_edges,
    error_of,
    table_of,
)
from toosure.metrics.classwise import REDUCTIONS, classwise_sums, reduced
from toosure.metrics.confidence import top_label
from toosure.metrics.inputs import check_bins, check_choice
from toosure.metrics.scores import accuracy_rows, brier_rows, nll_rows
from toosure.metrics.streaming_sums import RowMean, SummedBins


class _TopLabelBins(SummedBins):
    """Sums of the top label in equal-width bins."""

    def __init__(self, bins: int, edge: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_bins(bins)
        check_choice("edge", edge, EDGES)
        self.bins = bins
        self.edge = edge
        self._add_states(bins, edge=edge)

    def update(
        self,
        logits: Tensor | None = None,
        labels: Tensor | None = None,
        *,
        probs: Tensor | None = None,
    ) -> None:
        """Add a batch."""
        with self.check_first_batch(logits), torch.no_grad():
            confidence, correct = top_label(logits, labels, probs=probs)
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
        check_choice("norm", norm, NORMS)
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


class ClasswiseECE(SummedBins):
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
        check_choice("edge", edge, EDGES)
        check_choice("norm", norm, NORMS)
        check_choice("reduction", reduction, REDUCTIONS)

        self.classes = classes
        self.bins = bins
        self.edge = edge
        self.norm = norm
        self.reduction = reduction
        self._add_states(classes, bins, edge=edge)

    def update(
        self,
        logits: Tensor | None = None,
        labels: Tensor | None = None,
        *,
        probs: Tensor | None = None,
    ) -> None:
        """Add a batch."""
        outputs = logits if probs is None else probs
        if outputs is not None and outputs.ndim <= 2:
            classes = 2 if is_one_column(outputs) else outputs.shape[1]
            if classes != self.classes:
                raise ValueError(f"expected {self.classes} classes; got {classes}")
        with self.check_first_batch(logits):
            self._add(classwise_sums(logits, labels, self.bins, self.edge, probs=probs))

    def compute(self) -> Tensor:
        """Return the error of all batches."""
        return reduced(error_of(self._sums(), self.norm), self.reduction)


class AdaptiveECE(SummedBins):
    """Gather `toosure.metrics.adaptive_ece` over batches, on a fixed fine grid of confidences.

    Confidences within one cell count as equal. Cells have equal steps in
    1000 c + 48 log2(c / (1 - c)): no wider than 0.001, and than 1.5 % of c and of 1 - c. So they
    stay fine near 1, where networks crowd, and near 0, where rows of many classes do (one cell
    holds all below 2^-10). The edges of the equal-mass bins lie between cells: the mass of a bin is
    off by less than its last cell.

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
        check_choice("norm", norm, NORMS)
        self.bins = bins
        self.norm = norm
        self._add_states(self.cells)

    def update(
        self,
        logits: Tensor | None = None,
        labels: Tensor | None = None,
        *,
        probs: Tensor | None = None,
    ) -> None:
        """Add a batch."""
        with self.check_first_batch(logits), torch.no_grad():
            confidence, correct = top_label(logits, labels, probs=probs)
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


class NLL(RowMean):
    """Gather `toosure.metrics.nll` over batches.

    >>> metric = NLL()
    >>> metric.update(torch.tensor([[2.0, 0.5, -1.0]]), torch.tensor([0]))
    >>> round(float(metric.compute()), 6)
    0.241311
    """

    row_score = staticmethod(nll_rows)


class Brier(RowMean):
    """Gather `toosure.metrics.brier` over batches.

    >>> metric = Brier()
    >>> metric.update(torch.tensor([[2.0, 0.5, -1.0]]), torch.tensor([0]))
    >>> round(float(metric.compute()), 6)
    0.078225
    """

    row_score = staticmethod(brier_rows)


class Accuracy(RowMean):
    """Gather `toosure.metrics.accuracy` over batches.

    >>> metric = Accuracy()
    >>> metric.update(torch.tensor([[2.0, 0.5, -1.0]]), torch.tensor([0]))
    >>> float(metric.compute())
    1.0
    """

    higher_is_better = True
    row_score = staticmethod(accuracy_rows)
