"""Ensemble temperature scaling: the softmax at T, the softmax as it came, and the uniform one."""

import math

import numpy as np
import torch
from torch import Tensor

from toosure.metrics.confidence import chunked_pairs
from toosure.posthoc.calibrator import Calibrator, restore_top_class
from toosure.posthoc.temperature import fit_temperature

MIN_SOFTMAX_WEIGHT = 1e-3  # not on the uniform part, so that the order of classes stays


class EnsembleTemperature(Calibrator):
    r"""Mix the softmax at a temperature, the softmax as it came, and the uniform distribution.

    q = w_1 softmax(z / T) + w_2 softmax(z) + w_3 / C, with T that minimises the NLL of the first
    part alone and then weights, w >= 0 with sum 1, that minimise the NLL of q, a convex problem.

    Reference: Zhang et al. (2020), Mix-n-Match: ensemble and compositional methods for uncertainty
    calibration in deep learning, arXiv 2003.07329

    >>> logits = torch.tensor([[2, 0.5, -1], [0.2, 1, 0.1], [-0.5, 0, 3], [1.2, 1, -0.3]])
    >>> calibrator = EnsembleTemperature().fit(logits, torch.tensor([0, 2, 2, 1]))
    >>> round(float(calibrator.weights.sum()), 6)
    1.0
    """

    keeps_top = True
    needs_every_class = False
    fitted_names = ("temperature", "weights")
    temperature: Tensor  # ()
    weights: Tensor  # (3,)

    def solve(self, logits: Tensor, labels: Tensor) -> None:
        """Find the temperature, then the weights."""
        temperature, self.note, _ = fit_temperature(logits, labels)
        pairs = chunked_pairs(logits, labels)
        own = torch.cat([own_log_parts(rows, targets, temperature) for rows, targets in pairs])
        weights = torch.from_numpy(best_weights(own.cpu().numpy())).to(own)
        self.set_fitted(temperature=own.new_tensor(temperature), weights=weights)

    def become_identity(self, classes: int, device: torch.device) -> None:
        """Put all weight on the unscaled softmax."""
        self.set_fitted(
            temperature=torch.ones((), device=device),
            weights=torch.tensor([0.0, 1.0, 0.0], device=device),
        )

    def calibrated(self, logits: Tensor) -> Tensor:
        """Return log q, of the mixture of both softmaxes and the uniform distribution."""
        log_w = self.weights.log().to(logits.dtype)
        scaled = (logits / self.temperature.to(logits.dtype)).log_softmax(1)
        plain = logits.log_softmax(1)
        uniform = torch.full_like(plain, -math.log(logits.shape[1]))
        parts = torch.stack([scaled + log_w[0], plain + log_w[1], uniform + log_w[2]])
        return restore_top_class(parts.logsumexp(0), logits)


def own_log_parts(rows: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """Return the log-probability of each row's label in the three parts, (N, 3)."""
    z = rows.double()
    parts = [each.log_softmax(1).gather(1, labels[:, None]) for each in (z / temperature, z)]
    return torch.cat([*parts, torch.full_like(parts[0], -math.log(z.shape[1]))], 1)


def best_weights(log_parts: np.ndarray) -> np.ndarray:
    """Return the weights (M,) on the simplex that maximise the mean of log sum_m w_m p_im."""
    from scipy.optimize import minimize

    # Dividing a row by its largest part does not change which weights are best.
    top = log_parts.max(1, keepdims=True)
    parts: np.ndarray = np.exp(log_parts - top)  # (N, M)
    count = parts.shape[1]

    def loss(w: np.ndarray) -> float:
        return float(-np.log(np.maximum(parts @ w, 1e-300)).mean())

    def gradient(w: np.ndarray) -> np.ndarray:
        ratios: np.ndarray = parts / np.maximum(parts @ w, 1e-300)[:, None]
        mean: np.ndarray = ratios.mean(0)
        return -mean

    sum_is_one = {"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(count)}
    result = minimize(
        loss,
        np.array([0.9, 0.05, 0.05]),
        method="SLSQP",
        jac=gradient,
        bounds=[(0.0, 1.0)] * (count - 1) + [(0.0, 1.0 - MIN_SOFTMAX_WEIGHT)],
        constraints=sum_is_one,
        options={"ftol": 1e-14, "maxiter": 500},
    )
    weights: np.ndarray = np.clip(result.x, 0.0, None)
    weights /= weights.sum()
    return weights
