"""Last-layer Laplace: a Gaussian over the weights of the head, after training."""

import math
from typing import Literal

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from toosure.metrics.inputs import check_positive

Structure = Literal["auto", "full", "kronecker"]
MAX_FULL = 6500  # weights of a head whose whole matrix is used: 338 MB in float64
RANGE = (1e-6, 1e8)  # of the prior precision that is searched for
CHUNK = 1024


class LastLayerLaplace:
    r"""Spread the logits by what the training data leave open about the head.

    Formula: H = sum_n (diag p_n - p_n p_n^T) (x) phi_n phi_n^T + tau I over the head's weights and
    biases, phi the features and, where there is a bias, a 1; a logit z_k has variance
    V_k = phi^T (H^-1)_kk phi, and the prediction is softmax(z / sqrt(1 + pi V / 8)) (probit). tau,
    the precision of the prior, maximises the marginal likelihood unless it is given. Past 6,500
    weights H is approximated as
    mean_n(diag p_n - p_n p_n^T) (x) sum_n phi_n phi_n^T + tau I (Kronecker).
    Reference: Daxberger et al. (2021), Laplace Redux, arXiv 2106.14806; MacKay (1992).

    >>> features, head = torch.randn(50, 2), torch.randn(3, 2)
    >>> logits = features @ head.T
    >>> laplace = LastLayerLaplace(precision=1.0).fit(features, logits, logits.argmax(1), head)
    >>> laplace.predict(features, logits).shape, bool((laplace.variance(features) > 0).all())
    (torch.Size([50, 3]), True)
    """

    def __init__(self, precision: float | None = None, structure: Structure = "auto") -> None:
        if precision is not None:
            check_positive("precision", precision)
        if structure not in ("auto", "full", "kronecker"):
            raise ValueError(f"structure must be auto, full or kronecker; got {structure!r}")
        self.given_precision = precision  # None: searched for by each fit
        self.precision = precision
        self.structure = structure
        self.evidence = math.nan  # the log marginal likelihood, up to a constant
        self.has_bias = True
        self.curvature: FullCurvature | KroneckerCurvature | None = None

    @torch.no_grad()
    def fit(
        self,
        features: Tensor,
        logits: Tensor,
        labels: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
    ) -> "LastLayerLaplace":
        """Fit to the training data: features (N, D), logits (N, C), labels, the head's weights."""
        if len(features) != len(logits) or len(logits) != len(labels) or not len(labels):
            raise ValueError("features, logits and labels must be of the same examples, at least 1")
        self.has_bias = bias is not None
        phi = self.inputs_of_head(features)
        log_p = logits.double().log_softmax(1)
        p = log_p.exp()
        size = phi.shape[1] * p.shape[1]
        full = self.structure == "full" or (self.structure == "auto" and size <= MAX_FULL)
        self.curvature = FullCurvature(phi, p) if full else KroneckerCurvature(phi, p)

        squared = float(weight.double().square().sum())
        if bias is not None:
            squared += float(bias.double().square().sum())
        log_likelihood = float(log_p.gather(1, labels[:, None]).sum())
        self.choose_precision(log_likelihood, squared, size)
        return self

    def choose_precision(self, log_likelihood: float, squared: float, size: int) -> None:
        """Set the precision to the one with the largest evidence, unless it was given."""
        assert self.curvature is not None
        curvature = self.curvature

        def evidence(log_precision: float) -> float:
            precision = math.exp(log_precision)
            complexity = size * log_precision - curvature.log_determinant(precision)
            return log_likelihood - precision * squared / 2 + complexity / 2

        precision = self.given_precision
        if precision is None:
            bounds = tuple(math.log(end) for end in RANGE)
            best = minimize_scalar(lambda t: -evidence(t), bounds=bounds, method="bounded")
            precision = math.exp(float(best.x))
        self.precision = precision
        self.evidence = evidence(math.log(precision))

    @torch.no_grad()
    def variance(self, features: Tensor) -> Tensor:
        """Return the variance of each logit, (N, C)."""
        if self.curvature is None or self.precision is None:
            raise ValueError("call fit(features, logits, labels, weight) first")
        parts = self.inputs_of_head(features).split(CHUNK)
        return torch.cat([self.curvature.variance(phi, self.precision) for phi in parts])

    def inputs_of_head(self, features: Tensor) -> Tensor:
        """Return the features in float64, with an appended 1 if there is a bias."""
        features = features.double()
        ones = features.new_ones(len(features), int(self.has_bias))
        return torch.cat([features, ones], 1)

    def predict(self, features: Tensor, logits: Tensor) -> Tensor:
        """Return the log of the predictive probabilities, (N, C)."""
        scale = (1 + math.pi / 8 * self.variance(features)).sqrt()
        return (logits.double() / scale).log_softmax(1)


class FullCurvature:
    """The whole matrix of the head, as eigenvalues and eigenvectors, weights ordered by class."""

    def __init__(self, phi: Tensor, p: Tensor) -> None:
        width, classes = phi.shape[1], p.shape[1]
        matrix = phi.new_zeros(classes, width, classes, width)
        for k in range(classes):
            for m in range(k, classes):
                weights = p[:, k] * ((1.0 if k == m else 0.0) - p[:, m])
                block = phi.T @ (weights[:, None] * phi)
                matrix[k, :, m] = block
                matrix[m, :, k] = block
        size = width * classes
        self.values, self.vectors = torch.linalg.eigh(matrix.reshape(size, size))
        self.values = self.values.clamp(min=0)
        self.classes = classes
        self.blocks: tuple[float, Tensor] | None = None  # the inverse's, at a precision

    def log_determinant(self, precision: float) -> float:
        return float((self.values + precision).log().sum())

    def variance(self, phi: Tensor, precision: float) -> Tensor:
        """Return phi^T (H^-1)_kk phi for every class, (N, C)."""
        if self.blocks is None or self.blocks[0] != precision:
            per_class = self.vectors.unflatten(0, (self.classes, -1))  # (C, D, P)
            scaled = per_class / (self.values + precision)
            self.blocks = precision, scaled @ per_class.transpose(1, 2)  # (C, D, D)
        return torch.einsum("nd,cde,ne->nc", phi, self.blocks[1], phi)


class KroneckerCurvature:
    """The matrix as B (x) A, with the mean of diag p - p p^T and the sum of phi phi^T."""

    def __init__(self, phi: Tensor, p: Tensor) -> None:
        outputs = p.mean(0).diag() - p.T @ p / len(p)
        self.a, self.a_vectors = torch.linalg.eigh(phi.T @ phi)
        self.b, self.b_vectors = torch.linalg.eigh(outputs)
        self.a = self.a.clamp(min=0)
        self.b = self.b.clamp(min=0)

    def log_determinant(self, precision: float) -> float:
        return float((self.b[:, None] * self.a + precision).log().sum())

    def variance(self, phi: Tensor, precision: float) -> Tensor:
        """Return phi^T (H^-1)_kk phi for every class, (N, C)."""
        squares = (phi @ self.a_vectors).square()  # (N, D)
        inverse = 1 / (self.b[:, None] * self.a + precision)  # (C, D), in the eigenvectors
        along = squares @ inverse.T  # (N, C)
        variance: Tensor = along @ self.b_vectors.square().T
        return variance
