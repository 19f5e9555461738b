"""Penalties on the means of a batch: MDCA for every class, DCA for the top label."""

import torch
from torch import Tensor, nn

from toosure.losses.loss import Penalty, Reduction, top_label_rows


class MDCALoss(Penalty):
    """Penalise, per class, the gap between mean probability and frequency in the batch.

    Formula: L + weight (1/K) sum_k |mean_i p_ik - mean_i [y_i = k]|. A statistic of the
    batch: shuffle, and keep batches large against the number of classes.
    Reference: Hebbalaguppe et al. (2022), A Stitch in Time Saves Nine, arXiv 2203.13834.

    >>> MDCALoss().penalty(torch.zeros(2, 2), torch.tensor([0, 0]))
    tensor(0.5000)
    """

    per_example = False

    def __init__(
        self, weight: float = 1.0, base: nn.Module | None = None, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(weight, base, reduction)

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        mean = logits.softmax(1).mean(0)  # (K,)
        share = torch.full_like(labels, 1, dtype=mean.dtype) / len(labels)
        frequency = torch.zeros_like(mean).index_add(0, labels, share)  # (K,)
        return (mean - frequency).abs().mean()


class DCALoss(Penalty):
    """Penalise the gap between mean confidence and accuracy of the batch.

    Formula: L + weight |mean_i c_i - mean_i a_i|. A statistic of the batch.
    Reference: Liang et al. (2020), Improved Trainable Calibration Method, arXiv 2009.04057.

    >>> DCALoss().penalty(torch.zeros(2, 2), torch.tensor([0, 0]))
    tensor(0.5000)
    """

    per_example = False

    def __init__(
        self, weight: float = 1.0, base: nn.Module | None = None, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(weight, base, reduction)

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        confidence, correct = top_label_rows(logits, labels)
        return (confidence.mean() - correct.to(confidence.dtype).mean()).abs()
