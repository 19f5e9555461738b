"""SECE as the whole loss: what a network learns from a calibration error alone."""

from typing import Literal

from toosure.losses import SECELoss
from toosure.losses.loss import PenaltyTerm, Reduction
from toosure.losses.soft import Form


class SECEAlone(PenaltyTerm):
    """Train on SECE without cross-entropy.

    A network that gives every image the same class, with the share of that class as its confidence,
    has SECE 0 and has learned nothing. Written
    `loss=toosure.recipes.gamma_net.sece_alone:SECEAlone`.

    >>> import torch
    >>> SECEAlone()(torch.zeros(2, 2), torch.tensor([0, 1])).item()  # always class 0, half right
    0.0
    """

    def __init__(
        self,
        bandwidth: float | Literal["auto"] = 0.01,
        form: Form = "points",
        leave_one_out: bool = False,
        detach: bool = False,
        reduction: Reduction = "mean",
    ) -> None:
        whole = SECELoss(
            bandwidth=bandwidth,
            form=form,
            leave_one_out=leave_one_out,
            detach=detach,
            reduction=reduction,
        )
        super().__init__(whole, reduction)
