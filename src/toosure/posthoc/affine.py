"""Vector, matrix and Dirichlet calibration: softmax(W x + b), fitted by a trust-region Newton."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from toosure.metrics import accuracy
from toosure.posthoc.calibrator import Calibrator
from toosure.posthoc.temperature import best_temperature

SPREAD = 0.03  # of an off-diagonal weight, where the penalty is not given
DENSE = 20  # classes up to which the Hessian of a full matrix is written out


class Affine(Calibrator):
    """Hold what the three share: weight (C, C) or (C,), bias (C,), and the convex fit.

    The fit starts at W = I/T, b = 0, so that it is never worse than temperature scaling. Where no
    penalty holds it and it gets every row right, the NLL has no minimum: it stays the identity.
    """

    fitted_names = ("weight", "bias")
    weight: Tensor
    bias: Tensor
    full = True
    lam: float | None = 0.0
    mu: float | None = 0.0

    def features(self, logits: Tensor) -> Tensor:
        """Return what the weight is applied to."""
        return logits

    def calibrated(self, logits: Tensor) -> Tensor:
        """Return W x + b."""
        x, weight, bias = self.features(logits), self.weight, self.bias.to(logits.dtype)
        return x @ weight.to(x.dtype).T + bias if self.full else x * weight.to(x.dtype) + bias

    def least_rows(self, classes: int) -> int:
        """Return the free numbers, unless a penalty holds them."""
        if self.lam != 0 and self.mu != 0:
            return 2
        return (classes + 1 if self.full else 2) * classes

    def penalties(self, n: int, classes: int) -> tuple[float, float]:
        """Return lam and mu for n rows."""
        lam = classes * (classes - 1) / (2 * SPREAD**2 * n) if self.lam is None else self.lam
        return lam, lam if self.mu is None else self.mu

    def seen(self, change: Tensor) -> Tensor:
        """Take away of W what no probability sees: the same added to every row of it."""
        return change - change.mean(0, keepdim=True)

    def become_identity(self, classes: int, device: torch.device) -> None:
        """Set W = I, b = 0."""
        self.set_start(classes, 1.0, device)

    def set_start(self, classes: int, temperature: float, device: torch.device) -> None:
        """Set W = I/T, b = 0."""
        options: dict[str, Any] = {"dtype": torch.float64, "device": device}
        weight = torch.eye(classes, **options) if self.full else torch.ones(classes, **options)
        self.set_fitted(weight=weight / temperature, bias=torch.zeros(classes, **options))

    def solve(self, logits: Tensor, labels: Tensor) -> None:
        """Minimise NLL + penalty over weight and bias."""
        from scipy.optimize import minimize

        self.set_start(logits.shape[1], best_temperature(logits, labels).temperature, logits.device)
        lam, mu = self.penalties(*logits.shape)
        problem = Problem(self.features(logits.double()), labels, self.full, lam, mu)
        start = torch.cat([self.weight.flatten(), self.bias]).cpu().numpy()
        dense = self.full and logits.shape[1] <= DENSE
        unit = np.ones_like(start) if dense else problem.units(start)
        found = minimize(
            lambda u: problem.loss(u * unit),
            start / unit,
            method="trust-exact" if dense else "trust-ncg",
            jac=lambda u: problem.gradient(u * unit) * unit,
            hess=problem.hessian if dense else None,
            hessp=None if dense else lambda u, v: problem.bend(u * unit, v * unit) * unit,
            options={"gtol": 1e-9 if dense else 1e-5, "maxiter": 200},
        )
        weight, bias = problem.split(found.x * unit)
        if self.lam == 0 and self.full:
            weight = self.weight + self.seen(weight - self.weight)
        self.set_fitted(weight=weight, bias=bias - bias.mean())
        if self.lam == 0 and float(accuracy(self(logits), labels)) == 1:
            self.become_identity(logits.shape[1], logits.device)
            self.note = (
                "left the logits as they are: it can get every row right, so that the NLL has no "
                "minimum; give more rows, or use Dirichlet"
            )


class Vector(Affine):
    r"""Scale and shift each class's logit.

    q = softmax(w * z + b), with w and b (C,) that minimise the NLL.

    Reference: Guo et al. (2017), On calibration of modern neural networks, arXiv 1706.04599

    >>> logits = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    >>> Vector().fit(logits, torch.arange(200) % 3).weight.shape
    torch.Size([3])
    """

    full = False


class Matrix(Affine):
    r"""Apply a matrix and a shift to the logits.

    q = softmax(W (z - mean z) + b), with W (C, C) and b (C,) that minimise the NLL + ODIR as in
    `Dirichlet`; `lam = 0`, the default, is plain matrix scaling and needs C (C + 1) rows at least.
    Each row's mean is taken away first: softmax does not see it, and where it hardly varies a
    matrix would grow without bound to make a feature of it.

    Reference: Guo et al. (2017), On calibration of modern neural networks, arXiv 1706.04599

    >>> logits = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    >>> Matrix().fit(logits, torch.arange(200) % 3).weight.shape
    torch.Size([3, 3])
    """

    def __init__(self, lam: float = 0.0, mu: float | None = None) -> None:
        super().__init__()
        check_penalties(lam, mu)
        self.lam, self.mu = lam, mu

    def features(self, logits: Tensor) -> Tensor:
        """Return the logits less their row's mean."""
        return logits - logits.mean(1, keepdim=True)

    def seen(self, change: Tensor) -> Tensor:
        """Take away also the same added to every column: it meets features of mean 0."""
        change = super().seen(change)
        return change - change.mean(1, keepdim=True)


class Dirichlet(Affine):
    r"""Apply a matrix and a shift to the log-probabilities, off-diagonals and shift kept small.

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
        self.lam, self.mu = lam, mu

    def features(self, logits: Tensor) -> Tensor:
        """Return log p."""
        return logits.log_softmax(1)


def check_penalties(lam: float | None, mu: float | None) -> None:
    """Refuse negative weights of ODIR."""
    if (lam is not None and lam < 0) or (mu is not None and mu < 0):
        raise ValueError(f"lam and mu must be 0 or more; got lam={lam}, mu={mu}")


def odir(weight: Tensor, bias: Tensor, lam: float, mu: float) -> Tensor:
    """Return the off-diagonal and intercept penalty of `Dirichlet`.

    >>> weight = torch.eye(3)
    >>> weight[0, 1] = 0.2
    >>> round(float(odir(weight, torch.tensor([0.1, 0.0, -0.1]), 0.1, 0.01)), 8)
    0.00073333
    """
    c = len(bias)
    off = weight.square().sum() - weight.diagonal().square().sum()
    return lam / (c * (c - 1)) * off + mu / c * bias.square().sum()


class Problem:
    """The NLL + ODIR of softmax(W x + b) as a function of one flat array: value, slope, bend."""

    def __init__(self, x: Tensor, labels: Tensor, full: bool, lam: float, mu: float) -> None:
        self.x, self.labels, self.full, self.lam, self.mu = x, labels, full, lam, mu
        self.at, self.log_probs, self.probs = np.array(np.nan), x, x

    def split(self, flat: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return weight and bias of a flat array."""
        values = torch.from_numpy(flat).to(self.x.device)
        classes = self.x.shape[1]
        weight, bias = values[:-classes], values[-classes:]
        return (weight.view(classes, classes) if self.full else weight), bias

    def scores(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Return W x + b."""
        return self.x @ weight.T + bias if self.full else self.x * weight + bias

    def gathered(self, parts: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sum over rows of (parts x^T, parts), divided by their number."""
        n = len(self.x)
        weight = parts.T @ self.x if self.full else (parts * self.x).sum(0)
        return weight / n, parts.sum(0) / n

    def move(self, flat: np.ndarray) -> None:
        """Compute the probabilities at a point, once."""
        if not np.array_equal(flat, self.at):
            self.at = flat.copy()
            self.log_probs = self.scores(*self.split(flat)).log_softmax(1)
            self.probs = self.log_probs.exp()

    def penalty(self, flat: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        """Return ODIR and its slope, which is linear and so its own bend."""
        (weight, bias), c = self.split(flat), self.x.shape[1]
        if not self.full:
            return bias.new_zeros(()), torch.zeros_like(weight), torch.zeros_like(bias)
        off = weight - torch.diag(weight.diagonal())
        ours = odir(weight, bias, self.lam, self.mu)
        return ours, 2 * self.lam / (c * (c - 1)) * off, 2 * self.mu / c * bias

    def loss(self, flat: np.ndarray) -> float:
        """Return NLL + ODIR."""
        self.move(flat)
        rows = self.log_probs.gather(1, self.labels[:, None])
        return float(self.penalty(flat)[0] - rows.mean())

    def gradient(self, flat: np.ndarray) -> np.ndarray:
        """Return the slope, (p - e_y) x^T and (p - e_y) averaged, and ODIR's."""
        self.move(flat)
        ones = torch.ones_like(self.probs[:, :1])
        return self.flat(self.probs.scatter_add(1, self.labels[:, None], -ones), flat)

    def bend(self, flat: np.ndarray, direction: np.ndarray) -> np.ndarray:
        """Return the Hessian times a direction: p (u - p.u) in place of p - e_y."""
        self.move(flat)
        u = self.scores(*self.split(direction))
        return self.flat(self.probs * (u - (self.probs * u).sum(1, keepdim=True)), direction)

    def units(self, flat: np.ndarray) -> np.ndarray:
        """Return 1 / sqrt of the Hessian's diagonal: in these units all directions bend alike."""
        self.move(flat)
        spread = self.probs * (1 - self.probs)
        square = self.x.square()
        weight = spread.T @ square if self.full else (spread * square).sum(0)
        _, more, shift = self.penalty(np.ones_like(flat))
        n = len(self.x)
        found = torch.cat([(weight / n + more).flatten(), spread.mean(0) + shift])
        return found.clamp(min=1e-6 * float(found.max())).rsqrt().cpu().numpy()

    def hessian(self, flat: np.ndarray) -> np.ndarray:
        """Return the whole Hessian: blocks mean((p_i 1[i = j] - p_i p_j) x x^T), and ODIR's."""
        self.move(flat)
        n, c = self.x.shape
        x = torch.cat([self.x, torch.ones_like(self.x[:, :1])], 1)  # (n, c + 1)
        blocks = x.new_empty(c, c + 1, c, c + 1)
        for i in range(c):
            for j in range(i + 1):
                weight = self.probs[:, i] * (float(i == j) - self.probs[:, j])
                blocks[i, :, j] = blocks[j, :, i] = x.T @ (weight[:, None] * x) / n
        order = torch.arange(c * (c + 1)).view(c, c + 1)
        order = torch.cat([order[:, :c].flatten(), order[:, c]]).to(x.device)  # weight, then bias
        dense = blocks.reshape(c * (c + 1), -1)[order][:, order].cpu().numpy()
        _, more, shift = self.penalty(np.ones_like(flat))
        return dense + np.diag(torch.cat([more.flatten(), shift]).cpu().numpy())

    def flat(self, parts: Tensor, at: np.ndarray) -> np.ndarray:
        """Return the parts gathered, with ODIR's slope at a point, as one flat array."""
        weight, bias = self.gathered(parts)
        _, more, shift = self.penalty(at)
        return torch.cat([(weight + more).flatten(), bias + shift]).cpu().numpy()
