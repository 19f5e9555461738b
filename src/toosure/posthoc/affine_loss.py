"""The loss of an affine calibrator, NLL + ODIR of softmax(W x + b), with both derivatives."""

import numpy as np
import torch
from torch import Tensor

MAX_DENSE_CLASSES = 20  # up to this number the Hessian of a full matrix is formed


def odir(weight: Tensor, bias: Tensor, lam: float, mu: float) -> Tensor:
    """Return the off-diagonal and intercept penalty of `Dirichlet`.

    >>> weight = torch.eye(3)
    >>> weight[0, 1] = 0.2
    >>> round(float(odir(weight, torch.tensor([0.1, 0.0, -0.1]), 0.1, 0.01)), 8)
    0.00073333
    """
    c = len(bias)
    off_diagonal = weight.square().sum() - weight.diagonal().square().sum()
    return lam / (c * (c - 1)) * off_diagonal + mu / c * bias.square().sum()


class AffineLoss:
    """NLL + ODIR as a function of one flat array, weight then bias, for scipy's minimizers.

    The weight is a matrix (C, C) if `full`, else one factor per class (C,), without penalty.
    """

    def __init__(self, x: Tensor, labels: Tensor, full: bool, lam: float, mu: float) -> None:
        self.x = x  # (N, C)
        self.labels = labels
        self.full = full
        self.lam = lam
        self.mu = mu

        # Probabilities at the last point, which value, gradient and Hessian share.
        self.point = np.array(np.nan)
        self.log_probs = x
        self.probs = x

    def minimize(self, start: np.ndarray) -> np.ndarray:
        """Return the flat array with the lowest loss, by a trust-region Newton method."""
        from scipy.optimize import minimize

        if self.full and self.x.shape[1] <= MAX_DENSE_CLASSES:
            result = minimize(
                self.loss,
                start,
                method="trust-exact",
                jac=self.gradient,
                hess=self.hessian,
                options={"gtol": 1e-9, "maxiter": 200},
            )
            return np.asarray(result.x)

        # Conjugate gradients need few Hessian products where all curvatures are alike.
        unit = self.diagonal_scale(start)
        result = minimize(
            lambda u: self.loss(u * unit),
            start / unit,
            method="trust-ncg",
            jac=lambda u: self.gradient(u * unit) * unit,
            hessp=lambda u, v: self.hessian_product(u * unit, v * unit) * unit,
            options={"gtol": 1e-5, "maxiter": 200},
        )
        return np.asarray(result.x * unit)

    def unflatten(self, flat: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return weight and bias of a flat array."""
        values = torch.from_numpy(flat).to(self.x.device)
        classes = self.x.shape[1]
        weight = values[:-classes]
        bias = values[-classes:]
        return (weight.view(classes, classes) if self.full else weight), bias

    def scores(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Return W x + b."""
        return self.x @ weight.T + bias if self.full else self.x * weight + bias

    def move_to(self, flat: np.ndarray) -> None:
        """Compute the probabilities at a point, once."""
        if not np.array_equal(flat, self.point):
            self.point = flat.copy()
            self.log_probs = self.scores(*self.unflatten(flat)).log_softmax(1)
            self.probs = self.log_probs.exp()

    def penalty(self, flat: np.ndarray) -> Tensor:
        """Return ODIR."""
        weight, bias = self.unflatten(flat)
        return odir(weight, bias, self.lam, self.mu) if self.full else bias.new_zeros(())

    def penalty_gradient(self, flat: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return ODIR's gradient for weight and bias.

        It is linear, so that at a direction it is the product of ODIR's Hessian with that
        direction, and at ones the diagonal of the Hessian.
        """
        weight, bias = self.unflatten(flat)
        if not self.full:
            return torch.zeros_like(weight), torch.zeros_like(bias)
        c = self.x.shape[1]
        off_diagonal = weight - torch.diag(weight.diagonal())
        return 2 * self.lam / (c * (c - 1)) * off_diagonal, 2 * self.mu / c * bias

    def loss(self, flat: np.ndarray) -> float:
        """Return NLL + ODIR."""
        self.move_to(flat)
        rows = self.log_probs.gather(1, self.labels[:, None])
        return float(self.penalty(flat) - rows.mean())

    def gradient(self, flat: np.ndarray) -> np.ndarray:
        """Return the gradient: (p - e_y) x^T and (p - e_y), averaged, and ODIR's."""
        self.move_to(flat)
        ones = torch.ones_like(self.probs[:, :1])
        residual = self.probs.scatter_add(1, self.labels[:, None], -ones)
        return self.flat_mean(residual, flat)

    def hessian_product(self, flat: np.ndarray, direction: np.ndarray) -> np.ndarray:
        """Return the Hessian times a direction: p (u - p.u) in place of p - e_y."""
        self.move_to(flat)
        u = self.scores(*self.unflatten(direction))
        change = self.probs * (u - (self.probs * u).sum(1, keepdim=True))
        return self.flat_mean(change, direction)

    def flat_mean(self, rows: Tensor, penalised: np.ndarray) -> np.ndarray:
        """Return the means of (rows x^T, rows) plus ODIR's gradient at `penalised`, flat."""
        n = len(self.x)
        weight = rows.T @ self.x if self.full else (rows * self.x).sum(0)
        weight = weight / n
        bias = rows.sum(0) / n

        weight_penalty, bias_penalty = self.penalty_gradient(penalised)
        return torch.cat([(weight + weight_penalty).flatten(), bias + bias_penalty]).cpu().numpy()

    def diagonal_scale(self, flat: np.ndarray) -> np.ndarray:
        """Return 1 / sqrt of the Hessian's diagonal: in these units all curvatures are alike."""
        self.move_to(flat)
        variance = self.probs * (1 - self.probs)
        square = self.x.square()
        weight = variance.T @ square if self.full else (variance * square).sum(0)

        weight_penalty, bias_penalty = self.penalty_gradient(np.ones_like(flat))
        n = len(self.x)
        diagonal = torch.cat(
            [(weight / n + weight_penalty).flatten(), variance.mean(0) + bias_penalty]
        )
        return diagonal.clamp(min=1e-6 * float(diagonal.max())).rsqrt().cpu().numpy()

    def hessian(self, flat: np.ndarray) -> np.ndarray:
        """Return the whole Hessian: blocks mean((p_i 1[i = j] - p_i p_j) x x^T), and ODIR's."""
        self.move_to(flat)
        n, c = self.x.shape
        x = torch.cat([self.x, torch.ones_like(self.x[:, :1])], 1)  # (n, c + 1)
        blocks = x.new_empty(c, c + 1, c, c + 1)
        for i in range(c):
            for j in range(i + 1):
                weight = self.probs[:, i] * (float(i == j) - self.probs[:, j])
                blocks[i, :, j] = blocks[j, :, i] = x.T @ (weight[:, None] * x) / n

        # The blocks hold each class's weights and its bias; the flat array has all biases last.
        order = torch.arange(c * (c + 1)).view(c, c + 1)
        order = torch.cat([order[:, :c].flatten(), order[:, c]]).to(x.device)
        dense: np.ndarray = blocks.reshape(c * (c + 1), -1)[order][:, order].cpu().numpy()

        weight_penalty, bias_penalty = self.penalty_gradient(np.ones_like(flat))
        return dense + np.diag(torch.cat([weight_penalty.flatten(), bias_penalty]).cpu().numpy())
