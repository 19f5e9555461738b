"""Platt scaling and beta calibration: logistic fits of each class against the rest, all at once."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from toosure.posthoc.calibrator import Calibrator
from toosure.posthoc.temperature import fit_temperature

MAX_NUMBERS = 2**24  # in the features of the classes fitted together
RIDGE = 1e-10  # of the mean loss: keeps the slope of a separable class finite
MAX_DECREMENT = 1e-8  # of the mean loss, that a further Newton step may promise after convergence


def log_pairs(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return log p and log(1 - p), (N, C) each, exact also where p rounds to 1.

    >>> log_p, log_rest = log_pairs(torch.tensor([[50.0, 0.0]], dtype=torch.float64))
    >>> log_rest.tolist()
    [[-50.0, -1.9...e-22]]
    """
    log_p = logits.log_softmax(1)
    top = logits.argmax(1, keepdim=True)
    others = logits.scatter(1, top, -torch.inf).logsumexp(1, keepdim=True)
    rest = others - logits.logsumexp(1, keepdim=True)
    return log_p, torch.log1p(-log_p.exp().clamp(max=0.75)).scatter(1, top, rest)


class OneVsRest(Calibrator):
    """Hold what Platt and beta calibration share: q_k = sigmoid(theta_k . (features, 1)).

    One logistic regression per class, with its own targets, then q_k / sum_j q_j.
    """

    fitted_names = ("theta",)
    per_class = ("theta",)
    theta: Tensor  # (C, features + 1)
    start: tuple[float, ...]  # the identity

    def features(self, logits: Tensor) -> Tensor:
        """Return (N, C, features)."""
        raise NotImplementedError

    def targets(self, labels: Tensor, classes: int) -> Tensor:
        """Return (N, C) in [0, 1]."""
        return F.one_hot(labels, classes).double()

    def solve(self, logits: Tensor, labels: Tensor) -> None:
        """Fit the classes, as many at a time as memory allows, from 1/T times the identity."""
        features = self.features(logits.double())
        targets = self.targets(labels, logits.shape[1])
        start = features.new_tensor(self.start) / fit_temperature(logits, labels).temperature

        step = max(1, MAX_NUMBERS // (len(labels) * (features.shape[2] + 1)))
        parts = zip(features.split(step, 1), targets.split(step, 1), strict=True)
        fits = [self.fit_classes(x, t, start) for x, t in parts]
        self.set_fitted(theta=torch.cat([theta for theta, _ in fits]))
        if not all(converged for _, converged in fits):
            self.keep_if_better(logits, labels)
            self.note = self.note or "stopped before the fit converged"

    def fit_classes(self, features: Tensor, targets: Tensor, start: Tensor) -> tuple[Tensor, bool]:
        """Return theta of some classes, (K, features + 1), and whether all converged."""
        return fit_logistic(with_one(features), targets, start)

    def become_identity(self, classes: int, device: torch.device) -> None:
        """Set every theta so that q = p."""
        theta = torch.tensor(self.start, dtype=torch.float64, device=device)
        self.set_fitted(theta=theta.repeat(classes, 1))

    def calibrated(self, logits: Tensor) -> Tensor:
        """Return the logarithm of the renormalised q, in float64 until the end.

        Where the logits are nearly equal, large slopes see differences that float32 rounds away.
        """
        theta = self.theta.double()
        scores = (self.features(logits.double()) * theta[:, :-1]).sum(2) + theta[:, -1]
        return F.logsigmoid(scores).log_softmax(1).to(logits.dtype)


class Platt(OneVsRest):
    """Fit a sigmoid to the log-odds of each class against the rest, and renormalise.

    q_k = sigmoid(A_k s_k + B_k), s_k = log p_k/(1 - p_k), with the targets (n+ + 1)/(n+ + 2) and
    1/(n- + 2) in place of 1 and 0. Two classes: q is Platt's sigmoid itself.

    Reference: Platt (1999), Probabilistic outputs for support vector machines

    >>> scores = torch.tensor([-2, -1, 0.5, 1, 2, -0.3])
    >>> logits = torch.stack([torch.zeros(6), scores], 1)
    >>> Platt().fit(logits, torch.tensor([0, 0, 1, 1, 1, 1])).theta[1].tolist()
    [0.8939..., 0.7093...]
    """

    start = (1.0, 0.0)

    def features(self, logits: Tensor) -> Tensor:
        """Return the log-odds."""
        log_p, log_rest = log_pairs(logits)
        return (log_p - log_rest)[..., None]

    def targets(self, labels: Tensor, classes: int) -> Tensor:
        """Return Platt's targets."""
        hits = super().targets(labels, classes)
        positive = hits.sum(0)
        negative = len(labels) - positive
        return torch.where(hits > 0, (positive + 1) / (positive + 2), 1 / (negative + 2))


class Beta(OneVsRest):
    """Fit a beta calibration map to each class against the rest, and renormalise.

    log q_k/(1 - q_k) = a_k log p_k - b_k log(1 - p_k) + c_k, a, b >= 0; where the free fit has a
    or b below 0, that one is 0 and the others are fitted again. a = b = 1, c = 0 is the identity.

    Reference: Kull et al. (2017), Beyond sigmoids: how to obtain well-calibrated probabilities
    from binary classifiers with beta calibration

    >>> logits = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    >>> Beta().fit(logits, (2 * logits).argmax(1).roll(1)).theta.shape
    torch.Size([3, 3])
    """

    start = (1.0, 1.0, 0.0)

    def features(self, logits: Tensor) -> Tensor:
        """Return log p and -log(1 - p)."""
        log_p, log_rest = log_pairs(logits)
        return torch.stack([log_p, -log_rest], 2)

    def fit_classes(self, features: Tensor, targets: Tensor, start: Tensor) -> tuple[Tensor, bool]:
        """Fit, and fit again without the slope that came out negative; at most twice."""
        used = features.new_ones(features.shape[1], 3)
        x = with_one(features)
        theta, converged = fit_logistic(x, targets, start)

        for _ in range(2):
            lowest = theta[:, :2].argmin(1, keepdim=True)
            negative = theta.gather(1, lowest) < 0
            if not negative.any():
                break
            used = used.scatter(1, lowest, torch.where(negative, 0.0, used.gather(1, lowest)))
            theta, converged = fit_logistic(x * used, targets, start * used)
            theta = theta * used
        return theta, converged


def with_one(features: Tensor) -> Tensor:
    """Append a feature that is always 1."""
    return torch.cat([features, torch.ones_like(features[..., :1])], 2)


def fit_logistic(x: Tensor, targets: Tensor, start: Tensor) -> tuple[Tensor, bool]:
    """Fit K logistic regressions on x (N, K, D) and targets (N, K) in [0, 1], all at once.

    Return theta (K, D), and whether all converged. The last feature is 1; the others are
    standardised meanwhile, so that the ridge and Newton's method see no units. Each regression has
    its own step length.
    """
    x, mean, std = standardised(x)
    theta = start.expand(x.shape[1], -1)
    slopes = theta[:, :-1]
    theta = torch.cat([slopes * std, theta[:, -1:] + (slopes * mean).sum(1, True)], 1)

    value = cross_entropy(x, targets, theta)
    for _ in range(100):
        q = torch.einsum("nkd,kd->nk", x, theta).sigmoid()
        gradient = torch.einsum("nkd,nk->kd", x, q - targets) / len(x) + RIDGE * theta
        hessian = torch.einsum("nkd,nk,nke->kde", x, q * (1 - q), x) / len(x)
        hessian += RIDGE * torch.eye(x.shape[2], dtype=x.dtype, device=x.device)
        step = torch.linalg.solve(hessian, gradient)
        theta, value = line_search(lambda t: cross_entropy(x, targets, t), theta, step, value)

        decrement = float((step * gradient).sum(1).max())
        if decrement < 1e-16:
            break

    slopes = theta[:, :-1] / std
    theta = torch.cat([slopes, theta[:, -1:] - (slopes * mean).sum(1, True)], 1)
    return theta, decrement < MAX_DECREMENT


def standardised(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Standardise all features of x except the last; return x, the means and stds (K, D - 1)."""
    features = x[..., :-1]
    mean = features.mean(0)
    std = features.std(0, correction=0)
    std = torch.where(std > 0, std, 1.0)
    return torch.cat([(features - mean) / std, x[..., -1:]], 2), mean, std


def cross_entropy(x: Tensor, targets: Tensor, theta: Tensor) -> Tensor:
    """Return the mean loss of each class, (K,), with the ridge."""
    scores = torch.einsum("nkd,kd->nk", x, theta)
    return (F.softplus(scores) - targets * scores).mean(0) + RIDGE / 2 * theta.square().sum(1)


def line_search(
    loss: Callable[[Tensor], Tensor], theta: Tensor, step: Tensor, value: Tensor
) -> tuple[Tensor, Tensor]:
    """Return theta - step and its loss, the step halved for each class until its loss falls."""
    for _ in range(40):
        after = loss(theta - step)
        worse = after > value
        if not worse.any():
            break
        step = torch.where(worse[:, None], step / 2, step)
    return torch.where(worse[:, None], theta, theta - step), torch.where(worse, value, after)
