"""Cross-entropy that adds and scales as the other losses do."""

from torch import Tensor

from toosure.losses.loss import Loss, log_likelihood


class CrossEntropyLoss(Loss):
    """Take minus the log probability of the label: torch's loss as a term, `0.5 * this + that`.

    Formula: -log p_y. On its own, torch's `nn.CrossEntropyLoss` is the same and does more.
    Reference: Good (1952), Rational decisions.

    >>> import torch
    >>> (0.5 * CrossEntropyLoss())(torch.zeros(1, 2), torch.tensor([0]))
    tensor(0.3466)
    """

    def each(self, logits: Tensor, labels: Tensor) -> Tensor:
        return -log_likelihood(logits, labels)
