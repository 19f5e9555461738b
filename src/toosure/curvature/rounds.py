"""A basis in fixed memory that grows by rounds, each a CUDA graph between two looks of the host.

A look costs a GPU more than a product. So a round takes the residuals of the leading Ritz vectors
and adds them as directions at once: where the host finds them too large, the wider space is there
already, and where it finds them small, the wider space holds better vectors to remember.

Rows are orthogonal to those of earlier rounds, but not to each other. The host knows their overlaps
and the matrix between them, and names Ritz vectors as combinations of rows.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from toosure.curvature.basis import BREAKDOWN, DEPENDENT, INDEPENDENT, Basis, on_device, overlaps
from toosure.curvature.linearise import tensor_cores
from toosure.curvature.operators import Operator

ROWS = 48  # room for a basis of 30 and what comes after it
AT_ONCE = 2  # residuals in a round after the first, which takes those of all its vectors
POLISH = 3  # steps of Newton and Schulz: vectors .1 from orthonormal become so to rounding
ORTHONORMAL = 1e-5  # what is left between starting vectors after that, unless they are dependent


def begun(
    operator: Operator, candidates: Tensor, ahead: bool = True, coarse: bool = False
) -> "Basis | Rounds":
    """A basis that spans some vectors; on a GPU that replays, one that grows by rounds.

    `ahead` makes the first round along with it, `coarse` lets the passes of a round use TF32.
    """
    if operator.replays:
        return Rounds(operator, candidates, ahead, coarse)
    return Basis(operator, candidates)


class Rounds:
    """Rows in fixed memory, and the eigenpairs of the matrix that they project out.

    There is one such memory for an operator: making another basis ends the one before.
    """

    def __init__(
        self, operator: Operator, candidates: Tensor, ahead: bool = True, coarse: bool = False
    ) -> None:
        self.operator, self.coarse, self.products = operator, coarse, 0.0
        self.memory = operator.kept(lambda: room(operator, candidates))
        self._open(candidates, ahead)
        if self.finite and np.abs(self._overlap - np.eye(len(self._overlap))).max() > ORTHONORMAL:
            self._open(self._independent(candidates), ahead)

    def _open(self, candidates: Tensor, ahead: bool) -> None:
        name = f"open {len(candidates)}" + " and on" * ahead
        told = self._told(name, self._opening if ahead else self._opening_only, candidates)
        self._rows = len(candidates)
        self._overlap, self._gram = told.take(self._rows), told.take(self._rows)
        self.products += self.operator.image_cost * self._rows
        self._changed()
        if ahead:
            self._look_ahead(told, self.turns)

    def _told(self, name: str, function: Callable[..., Tensor], *arguments: Tensor) -> "Told":
        name += ", coarse" * self.coarse
        return Told(self.operator.replay(name, function, *arguments).cpu().numpy())

    def _opening(self, candidates: Tensor) -> Tensor:
        vectors, told, weighted = self._opened(candidates)
        residuals, outside = self._pulled(weighted)
        residuals = torch.addmm(residuals, told[1].to(vectors.dtype), vectors, alpha=-1)
        return joined(*told, *self._grown(len(vectors), residuals, outside))

    def _opening_only(self, candidates: Tensor) -> Tensor:
        return joined(*self._opened(candidates)[1])

    def _opened(self, candidates: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        overlap, turn = polished(overlaps(candidates))
        vectors = turn.to(candidates.dtype) @ candidates
        weighted, gram = self._placed(0, vectors)
        return vectors, [overlap, gram], weighted

    def _placed(self, start: int, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Put rows with their images into memory; what is weighted, their rows of the matrix."""
        with tensor_cores(self.coarse):
            images = self.operator.images(vectors)
        weighted = self.operator.weighted(images)
        stop = start + len(vectors)
        for place, new in zip(self.memory, (vectors, images, weighted), strict=True):
            place[start:stop] = new
        return weighted, self.operator.gram(vectors, weighted, self.memory[1][:stop])

    def _pulled(self, weighted: Tensor) -> tuple[Tensor, Tensor]:
        with tensor_cores(self.coarse):
            return self.operator.products(weighted)

    def _round(self, plan: Tensor) -> Tensor:
        """Residuals of Ritz pairs, as `_plan` put them, and the rows that they become."""
        known = plan.shape[1] - 1
        vectors, _, weighted = (place[:known] for place in self.memory)
        pairs, inverse = plan[:-known], plan[-known:, :-1]
        turns, values = pairs[:, :-1], pairs[:, -1:]
        residuals, outside = self._pulled(torch.tensordot(turns, weighted, 1))
        residuals = torch.addmm(residuals, values * turns, vectors, alpha=-1)
        return joined(*self._grown(known, residuals, outside, inverse))

    def _plan(self, start: int, stop: int) -> np.ndarray:
        plan = np.zeros((stop - start + self._rows, self._rows + 1))
        plan[: stop - start, :-1] = self.turns[:, start:stop].T
        plan[: stop - start, -1] = self.values[start:stop]
        plan[stop - start :, :-1] = self.turns @ self.turns.T  # the inverse of the overlaps
        return plan

    def _grown(
        self, known: int, residuals: Tensor, outside: Tensor, inverse: Tensor | None = None
    ) -> list[Tensor]:
        """The residuals' inner products, inside and outside, and what they become as rows."""
        inside = overlaps(residuals)
        new = lengths_of(inside).to(residuals.dtype) * residuals
        return [inside, overlaps(outside), *self._added(known, new, inverse, passes=1)]

    def _added(
        self, known: int, new: Tensor, inverse: Tensor | None = None, passes: int = 2
    ) -> list[Tensor]:
        """Place what is new in unit vectors; its overlaps and its rows of the matrix."""
        vectors = self.memory[0][:known]
        for _ in range(
            passes
        ):  # one is enough for residuals, which are orthogonal but for rounding
            shares = overlaps(new, vectors).to(new.dtype)
            shares = shares if inverse is None else shares @ inverse
            new = torch.addmm(new, shares, vectors, alpha=-1)
        overlap = overlaps(new)
        scale = lengths_of(overlap, BREAKDOWN)
        new = scale.to(new.dtype) * new
        return [scale * overlap * scale.T, self._placed(known, new)[1]]

    # -- on the host ------------------------------------------------------------------------

    @property
    def vectors(self) -> Tensor:
        return self.memory[0][: self._rows]

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self._gram).all() and np.isfinite(self._overlap).all())

    def __len__(self) -> int:
        return len(self.values)

    def _changed(self) -> None:
        self.values, self.turns = pencil(self._gram, self._overlap)
        self.known: dict[int, tuple[float, float]] = {}  # residuals of the present pairs
        self._wider: tuple[np.ndarray, np.ndarray] | None = None  # with the rows they became

    def residual(self, index: int) -> tuple[float, float]:
        """The norm of A x - theta x of one Ritz pair, and that of its part outside the space."""
        if index not in self.known:
            self._make_room(AT_ONCE)
            stop = min(index + AT_ONCE, len(self))
            plan = on_device(self._plan(index, stop), self.vectors)
            told = self._told(f"round {stop - index} of {self._rows}", self._round, plan)
            self._look_ahead(told, np.eye(stop - index), index)
        return self.known[index]

    def _look_ahead(self, told: "Told", combinations: np.ndarray, first: int = 0) -> None:
        """Note residuals, each a combination of those that were told, and the rows they became."""
        count = len(combinations)
        inside, outside = told.take(count), told.take(count)
        for place, c in enumerate(combinations.T):
            norms = (max(float(c @ gram @ c), 0.0) ** 0.5 for gram in (inside, outside))
            self.known[first + place] = next(norms), next(norms)
        self._widen(told, count)
        self.products += (self.operator.product_cost + self.operator.image_cost) * count

    def _widen(self, told: "Told", count: int) -> None:
        known = self._rows
        overlap, gram = np.zeros((2, known + count, known + count))
        overlap[:known, :known], overlap[known:, known:] = self._overlap, told.take(count)
        gram[:known, :known], gram[known:] = self._gram, told.take(count, known + count)
        gram[:, known:] = gram[known:].T
        self._wider = gram, overlap

    def expand(self, index: int) -> bool:
        """Go on in the space that the residuals made; False where nothing was new in them."""
        self.residual(index)
        return self._adopt()

    def _adopt(self) -> bool:
        assert self._wider is not None
        before, rows = len(self), len(self._wider[0])
        self._gram, self._overlap = self._wider
        self._rows = rows
        self._changed()
        return len(self) > before

    def add(self, direction: Tensor) -> bool:
        """Add a direction; False where nothing new was left of it."""
        return self.join(direction[None])

    def join(self, candidates: Tensor) -> bool:
        """Add vectors that may be nearly those already here; False where all of them are."""
        count = len(candidates)
        self._make_room(count)
        inverse = on_device(self.turns @ self.turns.T, self.vectors)
        name = f"join {count} to {self._rows}"
        told = self._told(name, self._joining, candidates, inverse)
        self._widen(told, count)
        self.products += self.operator.image_cost * count
        return self._adopt()

    def _joining(self, candidates: Tensor, inverse: Tensor) -> Tensor:
        new = lengths_of(overlaps(candidates)).to(candidates.dtype) * candidates
        return joined(*self._added(len(inverse), new, inverse))

    def _make_room(self, count: int) -> None:
        if self._rows + count > ROWS:
            self.restart(len(self))

    def restart(self, keep: int) -> None:
        """Keep only the leading Ritz vectors."""
        turn = on_device(self.turns[:, :keep].T, self.vectors)
        for place in self.memory:
            place[:keep] = torch.tensordot(turn, place[: self._rows], 1)
        self._rows, self._gram = keep, np.diag(self.values[:keep])
        self._overlap = np.eye(keep)
        self._changed()

    def leading(self, count: int, refresh: int) -> tuple[Tensor, Tensor]:
        """The leading Ritz vectors, and those of the space that the residuals made."""
        turns = better = self.turns[:, :count]
        if self._wider is not None and np.isfinite(self._wider).all():
            better = pencil(*self._wider)[1][:, :count]
        rows = np.zeros((2, count, len(better)))
        rows[0, :, : len(turns)], rows[1] = turns.T, better.T
        vectors = (
            on_device(rows.reshape(2 * count, -1), self.vectors) @ self.memory[0][: len(better)]
        )
        return vectors[:count], vectors[count:]

    def _independent(self, candidates: Tensor) -> Tensor:
        """Orthonormal vectors of the same span, without what adds only rounding noise."""
        overlap = overlaps(candidates).cpu().numpy()
        scale = 1 / np.sqrt(np.diag(overlap))
        squares, axes = descending(overlap * scale[:, None] * scale)
        kept = squares > DEPENDENT
        turn = (axes[:, kept] / np.sqrt(squares[kept])).T * scale
        return on_device(turn, candidates) @ candidates


class Told:
    """Numbers that came from the device in one piece, taken off square by square."""

    def __init__(self, numbers: np.ndarray) -> None:
        self.numbers, self.place = numbers, 0

    def take(self, rows: int, columns: int | None = None) -> np.ndarray:
        shape = rows, rows if columns is None else columns
        start, self.place = self.place, self.place + shape[0] * shape[1]
        return self.numbers[start : self.place].reshape(shape)


def room(operator: Operator, candidates: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Memory for vectors, their images, and these weighted."""
    image = operator.images(candidates[:1])[0]
    vectors = torch.zeros(ROWS, candidates.shape[1], dtype=candidates.dtype, device=image.device)
    images, weighted = (torch.zeros(ROWS, *image.shape).to(image) for _ in range(2))
    return vectors, images, weighted


def joined(*parts: Tensor) -> Tensor:
    return torch.cat([part.double().flatten() for part in parts])


def lengths_of(overlap: Tensor, least: float = 0.0) -> Tensor:
    """1 / length of vectors with these overlaps, (k, 1); 0 for one no longer than `least`."""
    squares = overlap.diagonal()[:, None]
    return torch.where(squares > least**2, squares.rsqrt(), 0.0)


def polished(overlap: Tensor) -> tuple[Tensor, Tensor]:
    """Turn that makes vectors orthonormal to a float's rounding, and their overlaps after it.

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


def descending(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, vectors = np.linalg.eigh(matrix)  # small: faster than torch's, and of one thread
    return values[::-1], vectors[:, ::-1]


def pencil(gram: np.ndarray, overlap: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ritz values, largest first, and their combinations of rows with these overlaps."""
    if not (np.isfinite(gram).all() and np.isfinite(overlap).all()):
        return np.full(len(gram), np.nan), np.eye(len(gram))
    squares, axes = descending(overlap)
    kept = squares > INDEPENDENT
    axes = axes[:, kept] / np.sqrt(squares[kept])
    inside = axes.T @ gram @ axes
    values, turns = descending((inside + inside.T) / 2)
    return values, axes @ turns
