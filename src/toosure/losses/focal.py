"""The focal family: cross-entropy weighted by how sure the network is of the label."""

import torch
from torch import Tensor

from toosure.losses.loss import Loss, Reduction, log_likelihood

MIN_BASE = 1e-12  # what is raised to gamma: for gamma < 1 the slope at 0 would be infinite


def focal_rows(log_p: Tensor, gamma: float | Tensor) -> Tensor:
    """Return -(1 - p)^gamma log p for each log p, (N,); gamma may differ from row to row."""
    return -((-torch.expm1(log_p)).clamp(min=MIN_BASE) ** gamma) * log_p


def inverse_focal_rows(log_p: Tensor, gamma: float | Tensor) -> Tensor:
    """Return -(1 + p)^gamma log p for each log p, (N,); gamma may differ from row to row."""
    return -((1 + log_p.exp()) ** gamma) * log_p


def check_gamma(gamma: float | Tensor) -> None:
    """Raise for a negative number; a tensor is not read, as that would wait for the device."""
    if not isinstance(gamma, Tensor) and not gamma >= 0:
        raise ValueError(f"gamma must not be negative; got {gamma}")


class FocalLoss(Loss):
    """Weigh cross-entropy by (1 - p_y)^gamma, which is small where the network is sure and right.

    Formula: -(1 - p_y)^gamma log p_y; `gamma=0` is cross-entropy, 3 the recommended single value.
    `gamma` may be a tensor (N,), one value per example.
    Reference: Mukhoti et al. (2020), Calibrating Deep Neural Networks using Focal Loss,
    arXiv 2002.09437; Lin et al. (2017), arXiv 1708.02002.

    >>> FocalLoss(gamma=1.0)(torch.zeros(1, 2), torch.tensor([0]))
    tensor(0.3466)
    """

    def __init__(self, gamma: float | Tensor = 3.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        check_gamma(gamma)
        self.gamma = gamma

    def each(self, logits: Tensor, labels: Tensor) -> Tensor:
        return focal_rows(log_likelihood(logits, labels), self.gamma)


class FLSD53Loss(Loss):
    """Choose the focal gamma by the probability of the label: 5 below 0.2, 3 above.

    Formula: gamma_i = 5 if p_y < 0.2, 3 if 0.2 <= p_y < 0.5, else `gamma` (3 makes it FLSD-53).
    The choice has no gradient. Reference: Mukhoti et al. (2020), arXiv 2002.09437.

    >>> FLSD53Loss()(torch.zeros(1, 2), torch.tensor([0]))
    tensor(0.0866)
    """

    def __init__(self, gamma: float = 3.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        check_gamma(gamma)
        self.gamma = gamma

    def gammas(self, p: Tensor) -> Tensor:
        """Return the gamma for each probability of the label."""
        above_a_fifth = torch.where(p >= 0.5, self.gamma, 3.0)
        return torch.where(p < 0.2, 5.0, above_a_fifth).to(p.dtype)

    def each(self, logits: Tensor, labels: Tensor) -> Tensor:
        log_p = log_likelihood(logits, labels)
        return focal_rows(log_p, self.gammas(log_p.detach().exp()))


class DualFocalLoss(Loss):
    """Weigh cross-entropy by the gap between the label and the next class below it.

    Formula: -(1 - p_y + p_j)^gamma log p_y, p_j the largest probability strictly below p_y (0 if
    there is none): not the runner-up where the label is not on top. `gamma=0` is cross-entropy.
    Reference: Tao et al. (2023), Dual Focal Loss for Calibration, arXiv 2305.13665.

    >>> DualFocalLoss(gamma=1.0)(torch.zeros(1, 2), torch.tensor([0]))
    tensor(0.3466)
    """

    def __init__(self, gamma: float = 5.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        check_gamma(gamma)
        self.gamma = gamma

    def each(self, logits: Tensor, labels: Tensor) -> Tensor:
        log_probs = logits.log_softmax(1)
        log_p = log_probs.gather(1, labels[:, None])  # (N, 1)

        probs = log_probs.exp()
        next_below = probs.where(probs < log_p.exp(), 0.0).amax(1)  # (N,)

        log_p = log_p.squeeze(1)
        base = (next_below - torch.expm1(log_p)).clamp(min=MIN_BASE)
        return -(base**self.gamma) * log_p


class InverseFocalLoss(Loss):
    """Weigh cross-entropy up by (1 + p_y)^gamma: a remedy for under-confidence.

    Formula: -(1 + p_y)^gamma log p_y; `gamma=0` is cross-entropy. AdaFocal uses it where the
    validation set asks for more confidence.
    Reference: Ghosh et al. (2022), AdaFocal, arXiv 2211.11838.

    >>> InverseFocalLoss(gamma=1.0)(torch.zeros(1, 2), torch.tensor([0]))
    tensor(1.0397)
    """

    def __init__(self, gamma: float | Tensor = 1.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        check_gamma(gamma)
        self.gamma = gamma

    def each(self, logits: Tensor, labels: Tensor) -> Tensor:
        return inverse_focal_rows(log_likelihood(logits, labels), self.gamma)
