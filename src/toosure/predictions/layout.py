"""The shape of scores of tokens or pixels: each position as a row, and back."""

from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from toosure.metrics.distributions import distribution_problem
from toosure.metrics.positions import class_axis


class Layout(NamedTuple):
    """The shape that scores of tokens or pixels had before each position became a row."""

    shape: tuple[int, ...]
    axis: int | None  # of the classes; None if there is one score per position
    empty: Tensor | None = None  # (M,) bool: positions without scores, which stay NaN

    def rows(self, scores: Tensor) -> Tensor:
        """Return the scores as rows (M, C), or (M,)."""
        if self.axis is None:
            return scores.reshape(-1)
        return scores.movedim(self.axis, -1).reshape(-1, self.shape[self.axis])

    def restored(self, rows: np.ndarray) -> np.ndarray:
        """Return rows (M, C), or (M,), in the shape of the scores.

        >>> Layout((2, 3, 4, 4), axis=1).restored(np.zeros((32, 3))).shape
        (2, 3, 4, 4)
        """
        if self.empty is not None:
            rows = rows.copy()
            rows[self.empty.numpy()] = np.nan
        if self.axis is None:
            return rows.reshape(self.shape)
        others = [size for place, size in enumerate(self.shape) if place != self.axis]
        return np.moveaxis(rows.reshape(*others, -1), -1, self.axis)


def layout_of(scores: Tensor, labels: Any) -> Layout:
    """Return where the classes are: by the shape of the labels, or without them as usual.

    Usual are (N, T, C) and (N, C, H, W), and (N, H, W) where the last axis holds probabilities
    that do not sum to 1.
    """
    shape = tuple(scores.shape)
    if labels is not None:
        return Layout(shape, class_axis(shape, np.shape(labels)))
    if len(shape) > 3:
        return Layout(shape, 1)

    inside = bool(((scores >= 0) & (scores <= 1)).all())
    one_each = inside and distribution_problem(scores.reshape(-1, shape[-1])) is not None
    return Layout(shape, None if one_each else 2)
