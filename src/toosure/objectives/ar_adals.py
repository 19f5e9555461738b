"""AR-AdaLS: labels are smoothed most where examples are easiest to attack."""

from typing import Literal

import torch
from torch import Tensor, nn

from toosure.binary import TwoColumns, binary_labels, is_one_column
from toosure.data import Dataset, Split
from toosure.losses import LabelSmoothingLoss
from toosure.losses.loss import top_label_rows
from toosure.losses.one_column import class_pair
from toosure.margins import normalised_margin
from toosure.objectives.contract import Batch, criterion_of
from toosure.objectives.network import outputs
from toosure.objectives.splits import Splits, splits_of, validation_split


class ARAdaLS(nn.Module):
    """Smooth the labels of each group of equal robustness as the validation set asks.

    Formula: examples are ranked by m / ||grad_x m||_2, to first order their distance from the
    border, and cut into `groups`; the label's target in group r moves after each epoch by q_r <-
    clip(q_r - rate (conf_r - acc_r), 1/K, 1) on the validation examples of the same rank, and the
    rest is spread over the other classes. Ranks are renewed every `refresh` epochs; the paper
    attacks a separate network once. Needs a validation split, which then is no longer unseen.
    Reference: Qin et al. (2021), Improving Calibration through the Relationship with Adversarial
    Robustness, arXiv 2006.16375.

    >>> objective, model = ARAdaLS(), nn.Linear(2, 3)
    >>> objective.remember(4)
    >>> batch = (torch.zeros(4, 2), torch.tensor([0, 1, 2, 0]), torch.arange(4))
    >>> objective(model, objective.prepare(model, batch)).shape
    torch.Size([])
    """

    targets: Tensor
    places: Tensor
    val_places: Tensor
    epochs: Tensor

    def __init__(
        self,
        rate: float = 0.005,
        groups: int = 10,
        refresh: int = 5,
        reduction: Literal["mean", "sum"] = "mean",
    ) -> None:
        super().__init__()
        if rate < 0 or groups < 1 or refresh < 1:
            raise ValueError(
                f"need rate >= 0, groups >= 1 and refresh >= 1; got {rate}, {groups}, {refresh}"
            )
        self.rate = rate
        self.groups = groups
        self.refresh = refresh

        smoothed = LabelSmoothingLoss(0.0, "others", reduction)
        self.loss: nn.Module = smoothed  # which CSAM may wrap
        self.smoothed = smoothed
        criterion_of(self.loss)

        self.register_buffer("targets", torch.ones(groups))  # q of each group
        self.register_buffer("epochs", torch.zeros((), dtype=torch.long))
        self.data: Dataset | Splits | None = None
        self.remember(0, 0)

    def remember(self, examples: int, held_out: int = 0) -> None:
        """Allocate the group of every training (`places`) and validation example (`val_places`)."""
        device = self.targets.device
        for name, size in (("places", examples), ("val_places", held_out)):
            self.register_buffer(name, torch.zeros(size, dtype=torch.long, device=device))

    def setup(self, model: nn.Module, data: object) -> None:
        """Remember both splits."""
        val = validation_split(data, "ar_adals")
        self.data = splits_of(data)
        self.remember(len(self.data.train), len(val))

    def prepare(self, model: nn.Module, batch: Batch) -> tuple[Tensor, ...]:
        """Look up how much each label is smoothed."""
        x, labels, indices = batch
        return x, labels, 1 - self.targets[self.places[indices]]

    def forward(self, model: nn.Module, prepared: tuple[Tensor, ...]) -> Tensor:
        x, labels, smoothing = prepared
        self.smoothed.smoothing = smoothing
        loss: Tensor = self.loss(model(x), labels)
        return loss

    def epoch_end(self, model: nn.Module) -> None:
        """Rank the examples if it is due, and correct each group's target."""
        assert self.data is not None
        val = validation_split(self.data, "ar_adals")
        if int(self.epochs) % self.refresh == 0:
            self.places.copy_(self.ranked(model, self.data.train))
            self.val_places.copy_(self.ranked(model, val))
        self.epochs += 1

        logits, labels = class_pair(None, outputs(model, val.x), val.y)
        confidence, correct = top_label_rows(logits, labels)
        self.correct(confidence, correct, classes=logits.shape[1])

    def ranked(self, model: nn.Module, split: Split) -> Tensor:
        """Return the group of each example, the least robust in group 0."""
        network, labels = model, split.y
        first = outputs(model, split.x[:1])
        if is_one_column(first):
            network = TwoColumns(model)
            labels = binary_labels(labels)
        return quantile_groups(normalised_margin(network, split.x, labels), self.groups)

    @torch.no_grad()
    def correct(self, confidence: Tensor, correct: Tensor, classes: int) -> None:
        """Move the targets by validation confidence and correctness, (N,) each."""
        groups = self.val_places
        zero = torch.zeros_like(self.targets, dtype=torch.float64)
        count = zero.index_add(0, groups, torch.ones_like(confidence.double()))
        total = zero.index_add(0, groups, confidence.double() - correct.double())
        gap = total / count.clamp(min=1)
        self.targets.copy_(next_target(self.targets.double(), gap, self.rate, classes))

    def report(self) -> dict[str, float]:
        """Return the smallest and the mean target of a label."""
        return {
            "objective/target_min": float(self.targets.min()),
            "objective/target_mean": float(self.targets.mean()),
        }


def next_target(target: Tensor, gap: Tensor, rate: float, classes: int) -> Tensor:
    """Return the label's target, corrected by the gap between confidence and accuracy.

    >>> next_target(torch.tensor([0.95]), torch.tensor([0.07]), 0.005, 10)
    tensor([0.9496])
    """
    return (target - rate * gap).clamp(1 / classes, 1)


def quantile_groups(values: Tensor, groups: int) -> Tensor:
    """Return the group of each value among `groups` of equal size, the smallest in group 0.

    >>> quantile_groups(torch.tensor([3.0, 1.0, 2.0, 4.0]), 2)
    tensor([1, 0, 0, 1])
    """
    rank = torch.empty_like(values, dtype=torch.long)
    rank[values.argsort()] = torch.arange(len(values), device=values.device)
    return rank * groups // len(values)
