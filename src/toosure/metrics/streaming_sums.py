"""The states of streaming metrics: sums over batches, and the check of the first batch."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor
from torchmetrics import Metric

from toosure.metrics.binned import BinSums
from toosure.metrics.confidence import chunked_pairs
from toosure.metrics.inputs import as_metric_inputs, known_outputs, row_numbers_of_all


class Streaming(Metric):
    """A metric over batches; only in the first one logits are checked for being probabilities."""

    full_state_update = False
    is_differentiable = False
    inputs_checked = False

    @contextmanager
    def check_first_batch(self, logits: Tensor | None) -> Iterator[None]:
        """Check inside whether logits are probabilities, until one batch of logits has passed."""
        if self.inputs_checked and logits is not None:
            with known_outputs():
                yield
        else:
            yield
            self.inputs_checked = logits is not None

    def _keep_apart(self, name: str) -> None:
        """Keep a MetricCollection from taking this metric for another with the same sums.

        It merges metrics whose states are alike after the first batch, such as NLL and Brier score
        of rows that are right for sure, and from then on updates only one of them. States with
        different names are never alike.
        """
        self.add_state(f"is_{name}", torch.zeros((), dtype=torch.int64), dist_reduce_fx="max")


class SummedBins(Streaming):
    """Counts, hits and summed confidences per bin, added up over batches."""

    counts: Tensor
    correct: Tensor
    confidence: Tensor

    def _add_states(self, *shape: int, edge: str = "right") -> None:
        dtypes = {"counts": torch.int64, "correct": torch.int64, "confidence": torch.float64}
        for name, dtype in dtypes.items():
            self.add_state(name, torch.zeros(shape, dtype=dtype), dist_reduce_fx="sum")
        if edge == "left":
            self._keep_apart(edge)

    def _add(self, sums: BinSums) -> None:
        self.counts += sums.counts.to(self.counts.device)
        self.correct += sums.correct.to(self.counts.device)
        self.confidence += sums.confidence.to(self.counts.device)

    def _sums(self) -> BinSums:
        if not self.counts.any():
            raise ValueError(f"{type(self).__name__} has seen no rows: call update first")
        return BinSums(self.counts, self.correct, self.confidence)


class RowMean(Streaming):
    """The mean over rows of a per-row score, as a sum and a count over batches."""

    higher_is_better = False
    row_score: ClassVar["staticmethod[[Tensor, Tensor], Tensor]"]
    total: Tensor
    n: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("n", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")
        self._keep_apart(type(self).__name__)

    def update(
        self,
        logits: Tensor | None = None,
        labels: Tensor | None = None,
        *,
        probs: Tensor | None = None,
    ) -> None:
        """Add a batch."""
        with self.check_first_batch(logits):
            logits, labels = as_metric_inputs(logits, labels, probs)
        logits = logits.detach()

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
