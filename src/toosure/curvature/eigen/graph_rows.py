"""Rows of a basis in preallocated GPU memory, and the CUDA graphs that extend them.

Each public method of `GraphRows` that returns numbers is one CUDA graph. It packs all its numbers
into one tensor, which the host unpacks with `PackedNumbers`. It writes rows behind those that it
reads, so that running it again changes nothing.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from toosure.curvature.eigen.basis import BREAKDOWN
from toosure.curvature.eigen.operator import Operator
from toosure.curvature.eigen.vectors import PIECE, overlaps

MAX_ROWS = 40  # room for a basis of 30 and what comes after it
PAST_ROWS = 3  # rows before these, for up to six vectors from outside
NOISE = 10  # a residual below this many roundings of the value is noise
POLISHING_STEPS = 3  # of Newton and Schulz: an error of 0.1 in orthonormality becomes rounding


class GraphRows:
    """Vectors with their defects (see `graph_basis`) and images, of one basis at a time.

    They are padded with zeros, since a GPU multiplies matrices at aligned addresses faster.
    `coarse` lets products round to TF32.
    """

    def __init__(self, operator: Operator, candidates: Tensor, coarse: bool) -> None:
        self.operator = operator
        self.coarse = coarse
        self.size = candidates.shape[1]

        images = operator.images(candidates[:1])
        _, outside = operator.products(operator.weighted(images))
        width = -(-self.size // PIECE) * PIECE
        self.memory = candidates.new_zeros(PAST_ROWS + MAX_ROWS, 2, width)  # past vectors first
        self.images = images.new_zeros(MAX_ROWS, *images.shape[1:])
        self.outside = outside.new_zeros(MAX_ROWS, outside.shape[1])
        self._past = self.up_to(0)[:, : self.size]

    @property
    def rows(self) -> Tensor:
        """(MAX_ROWS, 2, width): a vector and its defect in each row."""
        return self.memory[PAST_ROWS:]

    def up_to(self, stop: int) -> Tensor:
        """Return past vectors, then vectors and defects in turns, up to a row.

        The shape is (2 PAST_ROWS + 2 stop, width).
        """
        return self.memory[: PAST_ROWS + stop].flatten(0, 1)

    def set_past(self, past: Tensor) -> None:
        """Store vectors; their overlaps with the rows are computed later."""
        self._past[: len(past)].copy_(past)

    # -- each of these is one graph -----------------------------------------------------------

    def start(self, candidates: Tensor, depth: int) -> Tensor:
        """Make rows of orthonormal vectors, then of their residuals, and so on.

        `depth` is the number of such generations. Returns the matrices of `_append` for each.
        """
        count = len(candidates)
        numbers = self._append(0, self._orthonormal(candidates))
        noise = NOISE * torch.finfo(candidates.dtype).eps * numbers[0].diagonal().abs().max()
        for known in range(count, depth * count, count):
            defects = self.rows[known - count : known, 1]  # residuals: the rows are orthonormal
            lengths = torch.linalg.vector_norm(defects, dim=1, keepdim=True)
            directions = defects * torch.where(lengths > noise, 1 / lengths, 0.0)
            numbers += self._append(known, self._outside_of(known, directions))
        return packed(*numbers)

    def expand(self, plan: Tensor) -> Tensor:
        """Make rows of directions, which the host gives as combinations of rows and defects.

        Behind these combinations, `plan` holds the inverse of the rows' overlaps.
        """
        known = plan.shape[1] // 2
        directions = plan[:-known] @ self.rows[:known].flatten(0, 1)
        inverse = plan[-known:, :known]
        return packed(*self._append(known, self._outside_of(known, directions, inverse)))

    def join(self, candidates: Tensor, inverse: Tensor) -> Tensor:
        """Make rows of the parts of vectors outside the known rows."""
        new = self._padded(candidates)
        new = inverse_lengths(overlaps(new)).to(new.dtype) * new
        for _ in range(2):
            new = self._outside_of(len(inverse), new, inverse)
        new = inverse_lengths(overlaps(new), BREAKDOWN).to(new.dtype) * new
        return packed(*self._append(len(inverse), new))

    # -- parts of them ------------------------------------------------------------------------

    def _orthonormal(self, candidates: Tensor) -> Tensor:
        padded = self._padded(candidates)
        return polished(overlaps(padded))[1].to(padded.dtype) @ padded

    def _padded(self, vectors: Tensor) -> Tensor:
        return F.pad(vectors, (0, self.memory.shape[2] - self.size))

    def _outside_of(self, known: int, new: Tensor, inverse: Tensor | None = None) -> Tensor:
        """Subtract from vectors their part in the rows; `inverse` inverts the rows' overlaps."""
        vectors = self.rows[:known, 0]
        shares = overlaps(new, vectors).to(new.dtype)
        shares = shares if inverse is None else shares @ inverse
        return torch.addmm(new, shares, vectors, alpha=-1)

    def _append(self, known: int, new: Tensor) -> list[Tensor]:
        """Make vectors the rows behind the known ones.

        Returns their rows of three matrices: V^T A V, the inner products of all vectors and
        defects, and the inner products of the parts outside the space.
        """
        stop = known + len(new)
        vectors = new[:, : self.size]
        with self.operator.tensor_cores(self.coarse):
            images = self.operator.images(vectors)
        weighted = self.operator.weighted(images)
        self.images[known:stop] = images
        gram = self.operator.gram(vectors, weighted, self.images[:stop])
        with self.operator.tensor_cores(self.coarse):
            products, outside = self.operator.products(weighted)

        rows = self.rows[known:stop]
        rows[:, 0] = new
        vectors = self.rows[:stop, 0, : self.size]
        rows[:, 1, : self.size] = torch.addmm(products, gram.to(new.dtype), vectors, alpha=-1)
        self.outside[known:stop] = outside

        inner = overlaps(rows.flatten(0, 1), self.up_to(stop))
        return [gram, inner, overlaps(outside, self.outside[:stop])]


def packed(*parts: Tensor) -> Tensor:
    """Join matrices into one tensor, so that one copy brings them to the host."""
    return torch.cat([part.double().flatten() for part in parts])


class PackedNumbers:
    """The numbers of one graph on the host, taken off matrix by matrix."""

    def __init__(self, numbers: np.ndarray) -> None:
        self.numbers = numbers
        self._position = 0

    def take(self, rows: int, columns: int) -> np.ndarray:
        """Return the next matrix."""
        start = self._position
        self._position += rows * columns
        return self.numbers[start : self._position].reshape(rows, columns)


def inverse_lengths(overlap: Tensor, noise: float = 0.0) -> Tensor:
    """Return 1 / length of vectors with these overlaps, (k, 1); 0 for one no longer than noise."""
    squares = overlap.diagonal()[:, None]
    return torch.where(squares > noise**2, squares.rsqrt(), 0.0)


def polished(overlap: Tensor) -> tuple[Tensor, Tensor]:
    """Make nearly orthonormal vectors orthonormal: return the new overlaps, and the rotation.

    The iteration of Newton and Schulz does not need the host, unlike eigenvectors. If vectors are
    dependent it does not converge, and the overlaps show it.
    """
    scale = inverse_lengths(overlap)
    overlap = scale * overlap * scale.T
    rotation = torch.diag(scale[:, 0])
    once = 1.5 * torch.eye(len(overlap), dtype=overlap.dtype, device=overlap.device)
    for _ in range(POLISHING_STEPS if len(overlap) > 1 else 0):
        factor = once - 0.5 * overlap
        overlap = factor @ overlap @ factor
        rotation = factor @ rotation
    return overlap, rotation
