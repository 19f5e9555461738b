"""Curves that turn a class's probability into its frequency, one a class, then renormalised."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from toosure.posthoc.calibrator import Calibrator


class Frequencies(Calibrator):
    r"""Hold what the curves share: q_k = f_k(p_k) at least `floor`, then q_k / sum_j q_j.

    A frequency of 0 among N rows does not show a probability of 0: nothing goes below 1/(2N), the
    `floor`, so that logarithms stay finite. f_k is given by its corners `at` and `values`, one row
    a class: a line between corners, or a step that holds from just above one corner to the next.
    """

    fitted_names = ("at", "values", "floor")
    at: Tensor  # (C, corners) ascending
    values: Tensor  # (C, corners)
    floor: Tensor  # ()
    steps = True

    def curve(self, probs: np.ndarray, hits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the corners (at, values) of one class."""
        raise NotImplementedError

    def solve(self, logits: Tensor, labels: Tensor) -> None:
        """Fit the curve of every class."""
        probs = logits.double().softmax(1).cpu().numpy()
        hits = F.one_hot(labels, logits.shape[1]).double().cpu().numpy()
        self.set_curves([self.curve(p, y) for p, y in zip(probs.T, hits.T, strict=True)], logits)

    def set_curves(self, curves: list[tuple[np.ndarray, np.ndarray]], logits: Tensor) -> None:
        """Store curves of different lengths side by side, their last corner repeated."""
        longest = max(len(at) for at, _ in curves)
        at, values = (
            np.stack([np.pad(curve[i], (0, longest - len(curve[i])), "edge") for curve in curves])
            for i in (0, 1)
        )
        made = {"at": torch.from_numpy(at), "values": torch.from_numpy(values)}
        made["floor"] = torch.tensor(1 / (2 * len(logits)), dtype=torch.float64)
        self.set_fitted(**{name: value.to(logits.device) for name, value in made.items()})

    def become_identity(self, classes: int, device: torch.device) -> None:
        """Set f(p) = p: a curve of one corner is read so."""
        one = torch.zeros(classes, 1, device=device)
        self.set_fitted(at=one, values=one, floor=torch.zeros((), device=device))

    def calibrated(self, logits: Tensor) -> Tensor:
        """Return the logarithm of the renormalised q."""
        if self.at.shape[1] == 1:
            return logits.log_softmax(1)
        probs = logits.double().softmax(1)
        q = read_curves(self.at, self.values, probs, self.steps).clamp(min=self.floor)
        return q.log().log_softmax(1).to(logits.dtype)


def read_curves(at: Tensor, values: Tensor, probs: Tensor, steps: bool) -> Tensor:
    """Return each class's curve at its probabilities, (N, C); NaN stays NaN.

    >>> at, values = torch.tensor([[0.0, 0.5, 1.0]]), torch.tensor([[0.0, 0.2, 1.0]])
    >>> read_curves(at, values, torch.tensor([[0.5], [0.75]]), steps=False).flatten().tolist()
    [0.2..., 0.6...]
    """
    columns = probs.T.contiguous()  # (C, N)
    right = torch.searchsorted(at, columns).clamp(1, at.shape[1] - 1)  # at[right - 1] < p <= ...
    low, high = values.gather(1, right - 1), values.gather(1, right)
    if steps:
        return torch.where(columns.isnan(), columns, low).T
    left, end = at.gather(1, right - 1), at.gather(1, right)
    share = ((columns - left) / (end - left).clamp(min=1e-300)).clamp(0, 1)
    return (low + share * (high - low)).T
