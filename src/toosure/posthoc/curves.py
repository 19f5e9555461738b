"""Curves that turn a class's probability into its frequency, one per class, then renormalised."""

from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from toosure.posthoc.calibrator import Calibrator


class FrequencyCurves(Calibrator):
    """Hold what the curves share: q_k = f_k(p_k) at least `floor`, then q_k / sum_j q_j.

    A frequency of 0 among N rows does not show a probability of 0: nothing goes below 1/(2N), the
    `floor`, so that logarithms stay finite. f_k is given by its knots `at` and `values`, one row
    per class: a line between knots, or a step that holds from just above one knot to the next.
    """

    fitted_names = ("at", "values", "floor")
    per_class: ClassVar[tuple[str, ...]] = ("at",)
    at: Tensor  # (C, knots) ascending
    values: Tensor  # (C, knots)
    floor: Tensor  # ()
    steps = True

    def curve(self, probs: np.ndarray, hits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the knots (at, values) of one class."""
        raise NotImplementedError

    def solve(self, logits: Tensor, labels: Tensor) -> None:
        """Fit the curve of every class."""
        probs = logits.double().softmax(1).cpu().numpy()
        hits = F.one_hot(labels, logits.shape[1]).double().cpu().numpy()
        curves = [self.curve(p, y) for p, y in zip(probs.T, hits.T, strict=True)]
        self.set_curves(curves, len(logits), logits.device)

    def set_curves(
        self, curves: list[tuple[np.ndarray, np.ndarray]], n: int, device: torch.device
    ) -> None:
        """Store the curves of a fit on n rows; short ones repeat their last knot."""
        longest = max(len(at) for at, _ in curves)

        def stacked(arrays: list[np.ndarray]) -> Tensor:
            padded = [np.pad(array, (0, longest - len(array)), "edge") for array in arrays]
            return torch.from_numpy(np.stack(padded)).to(device)

        self.set_fitted(
            at=stacked([at for at, _ in curves]),
            values=stacked([values for _, values in curves]),
            floor=torch.tensor(1 / (2 * n), dtype=torch.float64, device=device),
        )

    def become_identity(self, classes: int, device: torch.device) -> None:
        """Set f(p) = p: a curve of one knot means that."""
        knot = torch.zeros(classes, 1, device=device)
        self.set_fitted(at=knot, values=knot, floor=torch.zeros((), device=device))

    def calibrated(self, logits: Tensor) -> Tensor:
        """Return the logarithm of the renormalised q."""
        if self.at.shape[1] == 1:
            return logits.log_softmax(1)
        probs = logits.double().softmax(1)
        q = evaluate_curves(self.at, self.values, probs, self.steps).clamp(min=self.floor)
        return q.log().log_softmax(1).to(logits.dtype)


def evaluate_curves(at: Tensor, values: Tensor, probs: Tensor, steps: bool) -> Tensor:
    """Return each class's curve at its probabilities, (N, C); NaN stays NaN.

    >>> at, values = torch.tensor([[0.0, 0.5, 1.0]]), torch.tensor([[0.0, 0.2, 1.0]])
    >>> evaluate_curves(at, values, torch.tensor([[0.5], [0.75]]), steps=False).flatten().tolist()
    [0.2..., 0.6...]
    """
    columns = probs.T.contiguous()  # (C, N)
    right = torch.searchsorted(at, columns).clamp(1, at.shape[1] - 1)  # at[right - 1] < p <= ...
    low = values.gather(1, right - 1)
    if steps:
        return torch.where(columns.isnan(), columns, low).T

    high = values.gather(1, right)
    start = at.gather(1, right - 1)
    end = at.gather(1, right)
    share = ((columns - start) / (end - start).clamp(min=1e-300)).clamp(0, 1)
    return (low + share * (high - low)).T
