"""Meta-Calibration: label smoothing learned from the calibration error of a virtual step."""

from typing import Literal

import torch
from torch import Tensor, nn

from toosure.data import Dataset
from toosure.losses import DECELoss, LabelSmoothingLoss
from toosure.objectives.bilevel import Bilevel, Scope
from toosure.objectives.contract import criterion_of
from toosure.objectives.network import head_of
from toosure.objectives.splits import Splits


class MetaSmoothing(Bilevel):
    """Learn how much to smooth labels, one share for all or one per class.

    Formula: target (1 - s) e_y + s/K, s in [0, most] moved by Adam down the gradient of CE + dece
    DECE on a meta batch after a virtual step of the head (or of everything, `scope="full"`).
    Reference: Bohdal et al. (2023), Meta-Calibration, arXiv 2106.09613.

    >>> from toosure.data import digits
    >>> from toosure.models import mlp
    >>> data, model, objective = digits(train=100), mlp((1, 8, 8), width=8), MetaSmoothing()
    >>> train = objective.setup(model, data).train
    >>> batch = (train.x[:4], train.y[:4], torch.arange(4))
    >>> objective(model, objective.prepare(model, batch, lr=0.1)).shape
    torch.Size([])
    """

    def __init__(
        self,
        start: float = 0.05,
        most: float = 0.5,
        per_class: bool = False,
        dece: float = 0.5,
        scope: Scope = "head",
        meta: float = 0.1,
        meta_batch: int = 128,
        every: int = 1,
        lr: float = 1e-3,
        virtual_lr: float | None = None,
        seed: int = 0,
        reduction: Literal["mean", "sum"] = "mean",
    ) -> None:
        super().__init__(meta, meta_batch, every, scope, lr, virtual_lr, seed)
        if not 0 <= start <= most <= 1:
            raise ValueError(f"need 0 <= start <= most <= 1; got {start} and {most}")
        self.start = start
        self.most = most
        self.per_class = per_class

        smoothed = LabelSmoothingLoss(start, reduction=reduction)
        self.loss = smoothed  # which CSAM may wrap
        self.criterion = smoothed
        self.smoothed = smoothed
        criterion_of(self.loss)
        self.outer = DECELoss(dece)

    def make_hyper(self, model: nn.Module, data: Dataset | Splits) -> nn.Module:
        return Shares(head_of(model).out_features if self.per_class else 1, self.start)

    @property
    def shares(self) -> Tensor:
        """The learned shares, (1,) or (K,)."""
        assert isinstance(self.hyper, Shares)
        return self.hyper.share

    def values(self, model: nn.Module, features: Tensor, x: Tensor, labels: Tensor) -> Tensor:
        return self.shares[labels] if self.per_class else self.shares.expand(len(labels))

    def assign(self, values: Tensor) -> None:
        self.smoothed.smoothing = values

    @torch.no_grad()
    def constrain(self) -> None:
        self.shares.clamp_(0, self.most)

    def report(self) -> dict[str, float]:
        """Return the mean smoothing, the norm of the meta-gradient and its signal-to-noise."""
        share = float(self.shares.detach().mean()) if self.optimizer else self.start
        return {
            "objective/smoothing": share,
            "objective/meta_gradient": float(self.slope),
            "objective/meta_signal_to_noise": self.signal.take().per_step,
        }


class Shares(nn.Module):
    """One learned share, or one per class."""

    def __init__(self, count: int, start: float) -> None:
        super().__init__()
        self.share = nn.Parameter(torch.full((count,), float(start)))
