"""Differentiable relatives of ECE as penalties: DECE, SECE and soft-binned ECE."""

from typing import Literal

import torch
from torch import Tensor, nn

from toosure.losses.loss import Penalty, Reduction, top_label_rows
from toosure.metrics.bandwidth import Bandwidth, check_kernel_bandwidth
from toosure.metrics.differentiable import FORMS, dece_of_rows, sece_of_rows, soft_correct_rows
from toosure.metrics.inputs import check_bins, check_choice, check_positive
from toosure.metrics.kernel import root

Form = Literal["points", "grid", "gap", "unbiased"]


class DECELoss(Penalty):
    """Penalise the differentiable ECE of the batch: soft bins and soft accuracy.

    Formula: L + weight DECE, see `toosure.metrics.dece`. A statistic of the batch.
    Reference: Bohdal et al. (2023), Meta-Calibration, arXiv 2106.09613.

    >>> round(DECELoss().penalty(torch.tensor([[0.0, 1.0]]), torch.tensor([0])).item(), 3)
    0.731
    """

    per_example = False

    def __init__(
        self,
        weight: float = 0.5,
        bins: int = 15,
        accuracy_slope: float = 100.0,
        bin_temperature: float = 0.01,
        base: nn.Module | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(weight, base, reduction)
        check_bins(bins)
        check_positive("bin_temperature", bin_temperature)
        self.bins = bins
        self.accuracy_slope = accuracy_slope
        self.bin_temperature = bin_temperature

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        confidence, _ = top_label_rows(logits, labels)
        accuracy = soft_correct_rows(logits, labels, self.accuracy_slope)
        return dece_of_rows(confidence, accuracy, self.bins, self.bin_temperature)


class SECELoss(Penalty):
    """Penalise the smooth ECE of the batch: a Gaussian kernel instead of bins.

    Formula: L + weight mean_i |pi(c_i) - c_i|, pi(c) = sum_j G(c - c_j) a_j / sum_j G(c - c_j);
    see `toosure.metrics.sece` for `form`, `bandwidth="auto"`, `leave_one_out` and `detach`. A
    statistic of the batch.
    Reference: Wang and Golebiowski (2024), Towards Unbiased Calibration using
    Meta-Regularization, arXiv 2303.15057.

    >>> SECELoss().penalty(torch.zeros(1, 2), torch.tensor([0]))
    tensor(0.5000, dtype=torch.float64)
    """

    per_example = False

    def __init__(
        self,
        weight: float = 0.5,
        bandwidth: float | Literal["auto"] = 0.01,
        form: Form = "points",
        bins: int = 15,
        soft_accuracy: bool = False,
        leave_one_out: bool = False,
        detach: bool = False,
        base: nn.Module | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(weight, base, reduction)
        check_choice("form", form, FORMS)
        check_bins(bins)
        check_kernel_bandwidth(bandwidth)
        self.bandwidth: Bandwidth = bandwidth
        self.form = form
        self.bins = bins
        self.soft_accuracy = soft_accuracy
        self.leave_one_out = leave_one_out
        self.detach = detach

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        confidence, correct = top_label_rows(logits, labels)
        accuracy = soft_correct_rows(logits, labels) if self.soft_accuracy else correct
        return sece_of_rows(
            confidence,
            accuracy,
            self.bandwidth,
            self.form,
            self.bins,
            self.leave_one_out,
            self.detach,
        )


class SoftBinnedECELoss(Penalty):
    """Penalise ECE with every row in every bin, by its distance from the bin's centre.

    Formula: L + weight (sum_m S_m/N |A_m - C_m|^norm)^(1/norm), S_m the mass, A_m and C_m accuracy
    and confidence of bin m by weights softmax_m(-(c - centre_m)^2 / temperature).
    Reference: Karandikar et al. (2021), Soft Calibration Objectives, arXiv 2108.00106.

    >>> SoftBinnedECELoss().penalty(torch.zeros(1, 2), torch.tensor([0]))
    tensor(0.5000, dtype=torch.float64)
    """

    per_example = False

    def __init__(
        self,
        weight: float = 0.5,
        bins: int = 15,
        temperature: float = 0.01,
        norm: Literal[1, 2] = 2,
        base: nn.Module | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(weight, base, reduction)
        check_bins(bins)
        check_choice("norm", norm, (1, 2))
        check_positive("temperature", temperature)
        self.bins = bins
        self.temperature = temperature
        self.norm = norm

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        confidence, correct = top_label_rows(logits, labels)
        c = confidence.double()
        a = correct.double()

        centres = (torch.arange(self.bins, device=c.device, dtype=c.dtype) + 0.5) / self.bins
        weights = (-((c[:, None] - centres) ** 2) / self.temperature).softmax(1)  # (N, bins)
        mass = weights.sum(0)  # (bins,)
        gaps = (a - c) @ weights / mass.clamp(min=1e-30)

        if self.norm == 1:
            return (mass * gaps.abs()).sum() / len(c)
        return root((mass * gaps.square()).sum() / len(c))
