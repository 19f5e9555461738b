"""Vector, matrix and Dirichlet calibration: softmax(W x + b), fitted by a trust-region Newton."""

import math

import torch
from torch import Tensor

from toosure.metrics import accuracy
from toosure.metrics.inputs import known_outputs
from toosure.posthoc.affine_loss import AffineLoss
from toosure.posthoc.calibrator import Calibrator
from toosure.posthoc.temperature import fit_temperature

OFF_DIAGONAL_STD = 0.03  # expected for the weights, if no penalty is given


class Affine(Calibrator):
    """Shared by the three methods: weight (C, C) or (C,), bias (C,), and the convex fit.

    The fit starts at W = I/T, b = 0, so that it is never worse than temperature scaling. If it gets
    every row right without a penalty, the NLL has no minimum, and it stays the identity.
    """

    fitted_names = ("weight", "bias")
    per_class = ("bias",)
    weight: Tensor
    bias: Tensor
    full = True
    lam: float | None = 0.0
    mu: float | None = 0.0

    def features(self, logits: Tensor) -> Tensor:
        """Return the inputs of the weight."""
        return logits

    def calibrated(self, logits: Tensor) -> Tensor:
        """Return W x + b."""
        x = self.features(logits)
        weight = self.weight.to(x.dtype)
        bias = self.bias.to(logits.dtype)
        if not self.full:
            return x * weight + bias
        if not torch.is_autocast_enabled(x.device.type):
            return x @ weight.T + bias
        with torch.autocast(x.device.type, enabled=False):  # which would round W x to bfloat16
            return x @ weight.T + bias

    def least_rows(self, classes: int) -> int:
        """Return the number of free parameters; 2 rows are enough with a penalty."""
        if self.lam != 0 and self.mu != 0:
            return 2
        parameters_per_class = classes + 1 if self.full else 2
        return parameters_per_class * classes

    def penalties(self, n: int, classes: int) -> tuple[float, float]:
        """Return lam and mu for n rows."""
        lam = self.lam
        if lam is None:
            lam = classes * (classes - 1) / (2 * OFF_DIAGONAL_STD**2 * n)
        return lam, lam if self.mu is None else self.mu

    def identifiable(self, change: Tensor) -> Tensor:
        """Return a change of W without the part that changes no probability.

        This part is the same vector in every row of W.
        """
        return change - change.mean(0, keepdim=True)

    def become_identity(self, classes: int, device: torch.device) -> None:
        """Set W = I, b = 0."""
        self.set_temperature(classes, 1.0, device)

    def set_temperature(self, classes: int, temperature: float, device: torch.device) -> None:
        """Set W = I/T, b = 0: temperature scaling."""
        ones = torch.ones(classes, dtype=torch.float64, device=device)
        weight = torch.diag(ones) if self.full else ones
        self.set_fitted(weight=weight / temperature, bias=torch.zeros_like(ones))

    def solve(self, logits: Tensor, labels: Tensor) -> None:
        """Minimise NLL + penalty over weight and bias."""
        classes = logits.shape[1]
        self.set_temperature(classes, fit_temperature(logits, labels).temperature, logits.device)
        lam, mu = self.penalties(*logits.shape)
        loss = AffineLoss(self.features(logits.double()), labels, self.full, lam, mu)
        start = torch.cat([self.weight.flatten(), self.bias]).cpu().numpy()

        weight, bias = loss.unflatten(loss.minimize(start))
        if self.lam == 0 and self.full:
            weight = self.weight + self.identifiable(weight - self.weight)
        self.set_fitted(weight=weight, bias=bias - bias.mean())

        # If all rows can be right there is no minimum, and the fit stopped somewhere.
        with known_outputs():
            separable = self.lam == 0 and float(accuracy(self(logits), labels)) == 1
        if separable:
            self.become_identity(classes, logits.device)
            self.note = (
                "left the logits as they are: it can get every row right, so that the NLL has no "
                "minimum; give more rows, or use Dirichlet"
            )


class Vector(Affine):
    """Scale and shift each class's logit.

    q = softmax(w * z + b), with w and b (C,) that minimise the NLL.

    Reference: Guo et al. (2017), On calibration of modern neural networks, arXiv 1706.04599

    >>> logits = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    >>> Vector().fit(logits, torch.arange(200) % 3).weight.shape
    torch.Size([3])
    """

    full = False
    sees_offset = True


class Matrix(Affine):
    """Apply a matrix and a shift to the logits.

    q = softmax(W (z - mean z) + b), with W (C, C) and b (C,) that minimise the NLL + ODIR as in
    `Dirichlet`; `lam = 0`, the default, is plain matrix scaling and needs C (C + 1) rows at least.
    Each row's mean is subtracted first, because softmax does not see it. If the mean hardly varies,
    a matrix would grow without bound to make a feature of it.

    Reference: Guo et al. (2017), On calibration of modern neural networks, arXiv 1706.04599

    >>> logits = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    >>> Matrix().fit(logits, torch.arange(200) % 3).weight.shape
    torch.Size([3, 3])
    """

    def __init__(self, lam: float = 0.0, mu: float | None = None) -> None:
        super().__init__()
        check_penalties(lam, mu)
        self.lam = lam
        self.mu = mu

    def features(self, logits: Tensor) -> Tensor:
        """Return the logits less their row's mean."""
        return logits - logits.mean(1, keepdim=True)

    def identifiable(self, change: Tensor) -> Tensor:
        """Take away also a vector added to every column: it meets features of mean 0."""
        change = super().identifiable(change)
        return change - change.mean(1, keepdim=True)


class Dirichlet(Affine):
    """Apply a matrix and a shift to the log-probabilities, off-diagonals and shift kept small.

    q = softmax(W log p + b), which minimises NLL + lam/(C(C-1)) sum_{i != j} W_ij^2
    + mu/C sum_j b_j^2 (ODIR); `lam = None` takes lam = C(C-1)/(2 * 0.03^2 N), which expects
    off-diagonals of 0.03, and `mu = None` takes mu = lam. W = I, b = 0 is the identity. The paper
    searches both by cross-validation; `choose` does so over several `Dirichlet(lam)`.

    Reference: Kull et al. (2019), Beyond temperature scaling: obtaining well-calibrated
    multi-class probabilities with Dirichlet calibration, arXiv 1910.12656

    >>> logits = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    >>> Dirichlet().fit(logits, torch.arange(200) % 3).weight.shape
    torch.Size([3, 3])
    """

    def __init__(self, lam: float | None = None, mu: float | None = None) -> None:
        super().__init__()
        check_penalties(lam, mu)
        self.lam = lam
        self.mu = mu

    def features(self, logits: Tensor) -> Tensor:
        """Return log p."""
        return logits.log_softmax(1)


def check_penalties(lam: float | None, mu: float | None) -> None:
    """Refuse negative and infinite weights of ODIR."""
    if not all(0 <= weight < math.inf for weight in (lam, mu) if weight is not None):
        raise ValueError(f"lam and mu must be 0 or more, and finite; got lam={lam}, mu={mu}")
