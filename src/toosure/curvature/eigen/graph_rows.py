"""Rows of a basis in fixed memory, and all that a device does with them between two looks.

Each function here is one CUDA graph: what it tells the host comes back as one piece of numbers. It
writes rows behind those it reads, so that to run it again changes nothing.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from toosure.curvature.eigen.eager_basis import BREAKDOWN, PIECE, overlaps
from toosure.curvature.operators import Operator
from toosure.curvature.products.precision import tensor_cores

ROWS = 40  # room for a basis of 30 and what comes after it
PAST = 3  # rows before these, for up to six vectors from outside
NOISE = 10  # residuals of so many roundings of the value are nothing but that
POLISH = 3  # steps of Newton and Schulz: vectors .1 from orthonormal become so to rounding


class Rows:
    """Vectors with their defects (see `rounds`) and images, of one basis at a time.

    They are padded with zeros: a GPU multiplies matrices faster that begin at round addresses.
    `coarse` lets products round to TF32.
    """

    def __init__(self, operator: Operator, candidates: Tensor, coarse: bool) -> None:
        self.operator, self.coarse, self.size = operator, coarse, candidates.shape[1]
        images = operator.images(candidates[:1])
        _, outside = operator.products(operator.weighted(images))
        width = -(-self.size // PIECE) * PIECE
        self.all = candidates.new_zeros(PAST + ROWS, 2, width)  # past vectors first
        self.images = images.new_zeros(ROWS, *images.shape[1:])
        self.outside = outside.new_zeros(ROWS, outside.shape[1])
        self._past = self.upto(0)[:, : self.size]

    @property
    def rows(self) -> Tensor:
        """(ROWS, 2, width): a vector and its defect each."""
        return self.all[PAST:]

    def upto(self, stop: int) -> Tensor:
        """Past vectors, then vectors and defects in turns, to a row: (2 PAST + 2 stop, width)."""
        return self.all[: PAST + stop].flatten(0, 1)

    def remember(self, past: Tensor) -> None:
        """Put vectors beside the rows whose overlaps with them are wanted."""
        self._past[: len(past)].copy_(past)

    def open_rows(self, candidates: Tensor, depth: int) -> Tensor:
        """Rows of orthonormal vectors, of their residuals, of the residuals of these: `depth` such.

        What `_added` tells of each.
        """
        count = len(candidates)
        told = self._added(0, self._orthonormal(candidates))
        least = NOISE * torch.finfo(candidates.dtype).eps * told[0].diagonal().abs().max()
        for known in range(count, depth * count, count):
            defects = self.rows[known - count : known, 1]  # residuals: the rows are orthonormal
            lengths = torch.linalg.vector_norm(defects, dim=1, keepdim=True)
            directions = defects * torch.where(lengths > least, 1 / lengths, 0.0)
            told += self._added(known, self._outside_of(known, directions))
        return joined(*told)

    def _orthonormal(self, candidates: Tensor) -> Tensor:
        padded = self._padded(candidates)
        return polished(overlaps(padded))[1].to(padded.dtype) @ padded

    def _padded(self, vectors: Tensor) -> Tensor:
        return F.pad(vectors, (0, self.all.shape[2] - self.size))

    def round(self, plan: Tensor) -> Tensor:
        """Rows of directions that the host names as combinations of rows and defects."""
        known = plan.shape[1] // 2
        directions = plan[:-known] @ self.rows[:known].flatten(0, 1)
        inverse = plan[-known:, :known]
        return joined(*self._added(known, self._outside_of(known, directions, inverse)))

    def join(self, candidates: Tensor, inverse: Tensor) -> Tensor:
        """Rows of what vectors have outside the known ones."""
        new = self._padded(candidates)
        new = lengths_of(overlaps(new)).to(new.dtype) * new
        for _ in range(2):
            new = self._outside_of(len(inverse), new, inverse)
        new = lengths_of(overlaps(new), BREAKDOWN).to(new.dtype) * new
        return joined(*self._added(len(inverse), new))

    def _outside_of(self, known: int, new: Tensor, inverse: Tensor | None = None) -> Tensor:
        """Vectors without what the rows hold of them; `inverse` is that of the rows' overlaps."""
        vectors = self.rows[:known, 0]
        shares = overlaps(new, vectors).to(new.dtype)
        shares = shares if inverse is None else shares @ inverse
        return torch.addmm(new, shares, vectors, alpha=-1)

    def _added(self, known: int, new: Tensor) -> list[Tensor]:
        """Make vectors rows; their part of the matrix, of all inner products, and outside."""
        stop, vectors = known + len(new), new[:, : self.size]
        with tensor_cores(self.coarse):
            images = self.operator.images(vectors)
        weighted = self.operator.weighted(images)
        self.images[known:stop] = images
        gram = self.operator.gram(vectors, weighted, self.images[:stop])
        with tensor_cores(self.coarse):
            products, outside = self.operator.products(weighted)
        rows = self.rows[known:stop]
        rows[:, 0] = new
        vectors = self.rows[:stop, 0, : self.size]
        rows[:, 1, : self.size] = torch.addmm(products, gram.to(new.dtype), vectors, alpha=-1)
        self.outside[known:stop] = outside
        inner = overlaps(rows.flatten(0, 1), self.upto(stop))
        return [gram, inner, overlaps(outside, self.outside[:stop])]


def joined(*parts: Tensor) -> Tensor:
    return torch.cat([part.double().flatten() for part in parts])


def lengths_of(overlap: Tensor, least: float = 0.0) -> Tensor:
    """1 / length of vectors with these overlaps, (k, 1); 0 for one no longer than `least`."""
    squares = overlap.diagonal()[:, None]
    return torch.where(squares > least**2, squares.rsqrt(), 0.0)


def polished(overlap: Tensor) -> tuple[Tensor, Tensor]:
    """Overlaps of vectors made orthonormal to a float's rounding, and the turn that does it.

    By the iteration of Newton and Schulz, which needs no look of the host, unlike eigenvectors.
    Where it does not converge (dependent vectors) the overlaps show it.
    """
    scale = lengths_of(overlap)
    overlap, turn = scale * overlap * scale.T, torch.diag(scale[:, 0])
    once = 1.5 * torch.eye(len(overlap), dtype=overlap.dtype, device=overlap.device)
    for _ in range(POLISH if len(overlap) > 1 else 0):
        factor = once - 0.5 * overlap
        overlap, turn = factor @ overlap @ factor, factor @ turn
    return overlap, turn
