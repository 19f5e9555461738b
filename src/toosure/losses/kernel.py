"""Kernel calibration errors as penalties: MMCE of the top label, SKCE of the whole vector."""

from typing import Literal

import torch
from torch import Tensor, nn

from toosure.losses.loss import Penalty, Reduction, top_label_rows
from toosure.metrics.inputs import check_choice, check_positive
from toosure.metrics.kernel import check_bandwidth, mmce_of_rows
from toosure.metrics.simplex import median_of_distances, skce_of_rows

MEDIAN_ROWS = 128  # evenly spaced rows of a batch whose median distance is the bandwidth


class MMCELoss(Penalty):
    """Penalise the maximum mean calibration error of the batch.

    Formula: L + weight MMCE, MMCE^2 = S_cc/m^2 + S_ww/n^2 - 2 S_cw/(m n) over the m right and n
    wrong rows with kernel exp(-|c_i - c_j| / bandwidth), or with `weighted=False` 1/N^2 sum_ij
    (a_i - c_i)(a_j - c_j) k_ij; `normalization="reference"` repeats the public code, whose
    unweighted form takes no root. A statistic of the batch, in O(N log N). See
    `toosure.metrics.mmce`.
    Reference: Kumar et al. (2018), Trainable Calibration Measures for Neural Networks, ICML.

    >>> MMCELoss(weighted=False).penalty(torch.zeros(1, 2), torch.tensor([0]))
    tensor(0.5000, dtype=torch.float64)
    """

    per_example = False

    def __init__(
        self,
        weight: float = 2.0,
        weighted: bool = True,
        normalization: Literal["paper", "reference"] = "paper",
        bandwidth: float = 0.4,
        base: nn.Module | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(weight, base, reduction)
        check_choice("normalization", normalization, ("paper", "reference"))
        check_bandwidth(bandwidth)
        self.weighted = weighted
        self.normalization = normalization
        self.bandwidth = bandwidth

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        confidence, correct = top_label_rows(logits, labels)
        return mmce_of_rows(confidence, correct, self.weighted, self.normalization, self.bandwidth)


class SKCELoss(Penalty):
    """Penalise the squared kernel calibration error of the batch.

    Formula: L + weight mean_ij exp(-TV(p_i, p_j) / bandwidth) <e_yi - p_i, e_yj - p_j>, over all
    pairs ("biased", never negative), over i != j ("unbiased") or over disjoint pairs ("linear",
    O(N)). Without `bandwidth`, it is the median distance of 128 rows of the batch. A single row has
    no pair, and its error is 0.
    Reference: Widmann et al. (2019), Calibration tests in multi-class classification,
    arXiv 1910.11385.

    >>> SKCELoss().penalty(torch.zeros(1, 2), torch.tensor([0]))
    tensor(0.5000, dtype=torch.float64)
    """

    per_example = False

    def __init__(
        self,
        weight: float = 1.0,
        estimator: Literal["biased", "unbiased", "linear"] = "biased",
        bandwidth: float | None = None,
        base: nn.Module | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(weight, base, reduction)
        check_choice("estimator", estimator, ("biased", "unbiased", "linear"))
        if bandwidth is not None:
            check_positive("bandwidth", bandwidth)
        self.estimator = estimator
        self.bandwidth = bandwidth

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        if len(logits) < 2 and self.estimator != "biased":
            return 0 * logits.sum()

        probs = torch.softmax(logits, 1)
        bandwidth: float | Tensor | None = self.bandwidth
        if bandwidth is None:
            bandwidth = median_of_distances(probs, MEDIAN_ROWS)
        return skce_of_rows(probs, labels, self.estimator, bandwidth)
