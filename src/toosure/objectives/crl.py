"""Correctness ranking: examples that are often right should have the higher confidence."""

import math
from typing import Literal

import torch
import torch.distributed
from torch import Tensor, nn

from toosure.losses.one_column import class_pair
from toosure.metrics.inputs import check_choice
from toosure.objectives.contract import Batch, criterion_of, reduction_factor
from toosure.objectives.splits import splits_of
from toosure.processes import Sharded, rows_of_all


class CRL(nn.Module):
    """Rank the confidences in a batch by how often each example was right so far.

    Formula: L + weight mean_i max(0, -sign(c_i - c_j) (kappa_i - kappa_j) + |c_i - c_j|) over
    neighbours j = i + 1 with c_i != c_j, c the normalised count of correct predictions, kappa the
    `score`: confidence, margin of the two largest probabilities, or negative entropy / log K.
    Counts are kept per example of the training split and are checkpointed. Under torchrun the whole
    batch is ranked. In one's own loop with DDP each process ranks its part alone, and the counts
    are joined at the end of each epoch.
    Reference: Moon et al. (2020), Confidence-Aware Learning, arXiv 2007.01458.

    >>> objective, model = CRL(), nn.Linear(2, 3)
    >>> objective.remember(4)
    >>> batch = (torch.zeros(4, 2), torch.tensor([0, 1, 2, 0]), torch.arange(4))
    >>> objective(model, objective.prepare(model, batch)).shape
    torch.Size([])
    """

    streams = True  # only how many training examples there are matters
    counts: Tensor  # how often each example was right in the epochs before
    fresh: Tensor  # and in this epoch
    epochs: Tensor

    def __init__(
        self,
        loss: nn.Module | None = None,
        weight: float = 1.0,
        score: Literal["confidence", "margin", "entropy"] = "confidence",
    ) -> None:
        super().__init__()
        check_choice("score", score, ("confidence", "margin", "entropy"))
        if weight < 0:
            raise ValueError(f"weight must not be negative; got {weight}")
        self.loss = criterion_of(loss)
        self.weight = weight
        self.score = score
        self.register_buffer("epochs", torch.zeros(()))
        self.remember(0)

    def setup(self, model: nn.Module, data: object) -> None:
        """Start the history of every training example."""
        self.remember(splits_of(data).examples)

    def remember(self, examples: int) -> None:
        """Start an empty history of that number of examples."""
        self.register_buffer("counts", torch.zeros(examples, device=self.epochs.device))
        self.register_buffer("fresh", torch.zeros(examples, device=self.epochs.device))

    def prepare(self, model: nn.Module, batch: Batch) -> tuple[Tensor, ...]:
        """Look up the examples' history; the last tensor is 1 until they have been counted."""
        x, labels, indices = batch
        if len(self.counts) == 0:
            raise ValueError("crl keeps a history of every training example: call setup first")
        return x, labels, indices, self.history(indices), torch.ones((), device=x.device)

    def history(self, indices: Tensor) -> Tensor:
        """Return how often each example was right, between 0 and 1."""
        counts = self.counts + self.fresh
        lowest = counts.min()
        return (counts[indices] - lowest) / (self.epochs.clamp(min=1) - lowest).clamp(min=1)

    def forward(self, model: nn.Module, prepared: tuple[Tensor, ...]) -> Tensor:
        x, labels, indices, history, uncounted = prepared
        logits, labels = class_pair(self.loss, model(x), labels)
        with torch.no_grad():
            correct = rows_of_all((logits.argmax(1) == labels).to(self.fresh))
            self.fresh.index_add_(0, rows_of_all(indices), correct * uncounted)
            uncounted.zero_()  # SAM's second pass does not count again

        score = rows_of_all(scores(logits, self.score))
        penalty = rank_penalty(score, rows_of_all(history))
        loss: Tensor = self.loss(logits, labels)
        return loss + reduction_factor(self.loss, len(x)) * self.weight * penalty

    def epoch_end(self, model: nn.Module) -> None:
        """Count the epoch; join the counts of several processes, unless each saw everything."""
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        if distributed and not isinstance(model, Sharded):
            torch.distributed.all_reduce(self.fresh)
        self.counts += self.fresh
        self.fresh.zero_()
        self.epochs += 1


def scores(logits: Tensor, score: str) -> Tensor:
    """Return the confidence of each row by one of three scores, (N,)."""
    if logits.dtype.itemsize < 4:
        logits = logits.float()
    log_probs = logits.log_softmax(1)
    probs = log_probs.exp()

    if score == "confidence":
        return probs.max(1).values
    if score == "margin":
        top = probs.topk(2, 1).values
        return top[:, 0] - top[:, 1]
    entropy = -(probs * log_probs).sum(1)
    return -entropy / math.log(logits.shape[1])


def rank_penalty(score: Tensor, history: Tensor) -> Tensor:
    """Return the mean penalty of wrongly ranked neighbours; the last row's neighbour is the first.

    >>> rank_penalty(torch.tensor([0.9, 0.6]), torch.tensor([0.0, 1.0]))
    tensor(1.3000)
    """
    gap = history - history.roll(-1)
    penalty = (gap.abs() - gap.sign() * (score - score.roll(-1))).relu()
    return (penalty * (gap != 0)).mean()
