"""Isotonic regression: an increasing curve per class, or one for all that keeps their order."""

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from toosure.posthoc.calibrator import restore_top_class
from toosure.posthoc.curves import FrequencyCurves, evaluate_curves


class Isotonic(FrequencyCurves):
    """Fit an increasing curve to each class against the rest, and renormalise.

    f_k minimises sum_i (f_k(p_ik) - 1[y_i = k])^2 over increasing functions (scikit-learn's pool
    adjacent violators; a line between its knots, constant outside).

    Reference: Zadrozny and Elkan (2002), Transforming classifier scores into accurate multiclass
    probability estimates

    >>> import torch
    >>> logits = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    >>> bool((Isotonic().fit(logits, logits.argmax(1)).values.diff(dim=1) >= 0).all())
    True
    """

    steps = False

    def curve(self, probs: np.ndarray, hits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the knots of the increasing curve."""
        return increasing_curve(probs, hits)


def increasing_curve(probs: np.ndarray, hits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the knots of the increasing curve nearest to the hits, at least two."""
    from sklearn.isotonic import IsotonicRegression

    regression = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(probs, hits)
    at = regression.X_thresholds_
    values = regression.y_thresholds_
    if len(at) > 1:
        return at, values
    return np.array([0.0, 1.0]), np.repeat(values, 2)


class RankIsotonic(FrequencyCurves):
    """Fit one increasing curve to all classes, and renormalise; the order of classes stays.

    f minimises sum_ik (f(p_ik) - 1[y_i = k])^2 over increasing functions, one for all classes, and
    q_k is proportional to max(f(p_k), floor) + floor p_k, so that no two classes swap places.

    Reference: Zhang et al. (2020), Mix-n-Match: ensemble and compositional methods for uncertainty
    calibration in deep learning, arXiv 2003.07329

    >>> import torch
    >>> logits = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    >>> calibrator = RankIsotonic().fit(logits, logits.argmax(1))
    >>> bool((calibrator(logits).argmax(1) == logits.argmax(1)).all())
    True
    """

    keeps_top = True
    needs_every_class = False
    per_class = ()  # one curve for all
    steps = False

    def solve(self, logits: Tensor, labels: Tensor) -> None:
        """Fit one curve to all N C pairs."""
        probs = logits.double().softmax(1).flatten().cpu().numpy()
        hits = F.one_hot(labels, logits.shape[1]).double().flatten().cpu().numpy()
        self.set_curves([increasing_curve(probs, hits)], len(logits), logits.device)

    def calibrated(self, logits: Tensor) -> Tensor:
        """Return the logarithm of the renormalised q, the top class kept above the others."""
        if self.at.shape[1] == 1:
            return logits.log_softmax(1)
        probs = logits.double().softmax(1)
        column = probs.reshape(-1, 1)  # as of one class: all share the curve
        q = evaluate_curves(self.at, self.values, column, self.steps).view_as(probs)
        q = q.clamp(min=self.floor) + self.floor * probs
        return restore_top_class(q.log().log_softmax(1).to(logits.dtype), logits)
