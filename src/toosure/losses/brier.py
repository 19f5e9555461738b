"""Squared distance of the probabilities from the one-hot label."""

from torch import Tensor

from toosure.losses.loss import Loss


class BrierLoss(Loss):
    """Take the Brier score: squared distance of the probabilities from the one-hot label.

    Formula: sum_k (p_k - e_k)^2, between 0 and 2.
    Reference: Brier (1950), Verification of forecasts expressed in terms of probability.

    >>> import torch
    >>> BrierLoss()(torch.zeros(1, 2), torch.tensor([0]))
    tensor(0.5000)
    """

    def each(self, logits: Tensor, labels: Tensor) -> Tensor:
        probs = logits.softmax(1)
        true = probs.gather(1, labels[:, None]).squeeze(1)
        return probs.square().sum(1) - 2 * true + 1
