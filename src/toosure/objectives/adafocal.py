"""AdaFocal: one focal gamma per bin of confidence, corrected on the validation set."""

from typing import Literal

import torch
from torch import Tensor, nn

from toosure.data import Split
from toosure.losses.focal import focal_rows, inverse_focal_rows
from toosure.losses.loss import Loss, Reduction, log_likelihood, top_label_rows
from toosure.losses.one_column import class_pair
from toosure.objectives.contract import Batch, criterion_of
from toosure.objectives.network import outputs
from toosure.objectives.splits import validation_split


class BinnedFocalLoss(Loss):
    """Take the focal loss with the gamma of the bin of p_y; for gamma < 0 the inverse focal loss.

    >>> loss = BinnedFocalLoss(bins=2, start=1.0)
    >>> loss(torch.zeros(1, 2), torch.tensor([0]))
    tensor(0.3466)
    """

    gamma: Tensor
    edges: Tensor

    def __init__(self, bins: int, start: float, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.register_buffer("gamma", torch.full((bins,), float(start)))
        self.register_buffer("edges", torch.arange(1, bins) / bins)  # between the bins

    def bins_of(self, confidence: Tensor) -> Tensor:
        """Return the bin of each value, (lo, hi], the first from 0 and the last to 1."""
        return torch.bucketize(confidence, self.edges.to(confidence.dtype))

    def each(self, logits: Tensor, labels: Tensor) -> Tensor:
        log_p = log_likelihood(logits, labels)
        gamma = self.gamma[self.bins_of(log_p.detach().exp())].to(log_p.dtype)
        focal = focal_rows(log_p, gamma.clamp(min=0))
        inverse = inverse_focal_rows(log_p, gamma.neg().clamp(min=0))
        return torch.where(gamma >= 0, focal, inverse)


class AdaFocal(nn.Module):
    """Raise gamma in bins where validation examples are over-confident, lower it elsewhere.

    Formula: in each of `bins` equal-mass bins of validation confidence, after each epoch, gamma <-
    gamma exp(rate (conf - acc)), or exp(-rate ..) where gamma < 0; within `switch` of 0 it changes
    sign; it stays in [least, most]. An example takes the gamma of the bin of its p_y. Needs a
    validation split, which then is no longer unseen.
    Reference: Ghosh et al. (2022), AdaFocal, arXiv 2211.11838.

    >>> objective, model = AdaFocal(bins=2), nn.Linear(2, 3)
    >>> batch = (torch.zeros(4, 2), torch.tensor([0, 1, 2, 0]), torch.arange(4))
    >>> objective(model, objective.prepare(model, batch)).shape
    torch.Size([])
    """

    streams = True  # only the validation split is read

    def __init__(
        self,
        rate: float = 1.0,
        start: float = 1.0,
        bins: int = 15,
        switch: float = 0.2,
        least: float = -2.0,
        most: float = 20.0,
        reduction: Literal["mean", "sum"] = "mean",
    ) -> None:
        super().__init__()
        if bins < 1 or not 0 < switch <= most:
            raise ValueError(f"need bins >= 1 and 0 < switch <= most; got {bins}, {switch}, {most}")
        if not least <= start <= most:
            raise ValueError(f"need least <= start <= most; got {least}, {start} and {most}")
        self.rate = rate
        self.switch = switch
        self.least = least
        self.most = most

        focal = BinnedFocalLoss(bins, start, reduction)
        self.loss: nn.Module = focal  # which CSAM may wrap
        self.focal = focal
        criterion_of(self.loss)
        self.val: Split | None = None

    def setup(self, model: nn.Module, data: object) -> None:
        """Remember the validation split."""
        self.val = validation_split(data, "adafocal")

    def prepare(self, model: nn.Module, batch: Batch) -> Batch:
        """Return the batch: nothing needs to be drawn."""
        return batch

    def forward(self, model: nn.Module, prepared: Batch) -> Tensor:
        x, labels, _ = prepared
        loss: Tensor = self.loss(model(x), labels)
        return loss

    @torch.no_grad()
    def epoch_end(self, model: nn.Module) -> None:
        """Bin the validation confidences again and correct every gamma."""
        assert self.val is not None
        logits, labels = class_pair(None, outputs(model, self.val.x), self.val.y)
        confidence, correct = top_label_rows(logits, labels)
        self.correct(confidence.double(), correct.double())

    def correct(self, confidence: Tensor, correct: Tensor) -> None:
        """Move edges and gammas by confidence and correctness, (N,) each."""
        focal = self.focal
        bins = len(focal.gamma)
        focal.edges.copy_(interpolated_inner_edges(confidence, bins))

        bin_of = focal.bins_of(confidence)
        zero = torch.zeros(bins, dtype=confidence.dtype, device=confidence.device)
        count = zero.index_add(0, bin_of, torch.ones_like(confidence))
        gap = zero.index_add(0, bin_of, confidence - correct) / count.clamp(min=1)  # 0 where empty

        gamma = focal.gamma.double()
        focal.gamma.copy_(next_gamma(gamma, gap, self.rate, self.switch, self.least, self.most))

    def report(self) -> dict[str, float]:
        """Return the mean and the range of the gammas."""
        gamma = self.focal.gamma
        return {
            "objective/gamma_mean": float(gamma.mean()),
            "objective/gamma_min": float(gamma.min()),
            "objective/gamma_max": float(gamma.max()),
        }


def next_gamma(
    gamma: Tensor, gap: Tensor, rate: float, switch: float, least: float, most: float
) -> Tensor:
    """Return the gammas, corrected by the gap between confidence and accuracy of their bins.

    >>> next_gamma(torch.tensor([1.0, 0.21]), torch.tensor([0.1, -0.1]), 1.0, 0.2, -2.0, 20.0)
    tensor([ 1.1052, -0.2000])
    """
    direction = torch.where(gamma > 0, 1.0, -1.0)
    moved = gamma * (direction * rate * gap).exp()
    crossed = torch.where(moved > 0, -switch, switch).to(moved)

    # A gap of 0 moves nothing, not even a gamma that starts close to 0.
    moved = torch.where((moved.abs() < switch) & (rate * gap != 0), crossed, moved)
    return moved.clamp(least, most)


def interpolated_inner_edges(confidence: Tensor, bins: int) -> Tensor:
    """Return the edges between bins of equal mass, interpolated between sorted confidences."""
    ordered = confidence.sort().values
    last = len(ordered) - 1
    rank = torch.arange(1, bins, device=ordered.device, dtype=torch.float64) * len(ordered) / bins
    below = rank.floor().long().clamp(max=last)
    above = (below + 1).clamp(max=last)
    return ordered[below] + (ordered[above] - ordered[below]) * rank.frac()
