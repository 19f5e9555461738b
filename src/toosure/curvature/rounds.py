"""A basis in fixed memory that grows by rounds, each one a CUDA graph between two looks of the host.

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

from toosure.curvature.basis import (
    BREAKDOWN,
    DEPENDENT,
    INDEPENDENT,
    Basis,
    on_device,
    overlaps,
    solved,
)
from toosure.curvature.operators import Operator

ROWS = 48  # room for a basis of 30 and what comes after it
AT_ONCE = 2  # residuals in a round after the first, which takes those of all its vectors
POLISH = 3  # steps of Newton and Schulz: vectors .1 from orthonormal become so to rounding
ORTHONORMAL = 1e-5  # what is left between starting vectors after that, unless they are dependent


def begun(operator: Operator, candidates: Tensor, ahead: bool = True) -> "Basis | Rounds":
    """A basis that spans some vectors; on a GPU that replays, one that grows by rounds.

    `ahead` makes the first round along with it.
    """
    if operator.replays:
        return Rounds(operator, candidates, ahead)
    return Basis(operator, candidates)


class Rounds:
    """Rows in fixed memory, and the eigenpairs of the matrix that they project out.

    There is one such memory for an operator: making another basis ends the one before.
    """

    def __init__(self, operator: Operator, candidates: Tensor, ahead: bool = True) -> None:
        self.operator, self.products = operator, 0.0
        self.memory = operator.kept(lambda: room(operator, candidates))
        self._open(candidates, ahead)
        if self.finite and np.abs(self._overlap - np.eye(len(self))).max() > ORTHONORMAL:
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
        return Told(self.operator.replay(name, function, *arguments).cpu().numpy())

    def _opening(self, candidates: Tensor) -> Tensor:
        vectors, told, weighted = self._opened(candidates)
        products, outside = self.operator.products(weighted)
        residuals = products - told[1].to(vectors.dtype) @ vectors
        return joined(*told, *self._grown(len(vectors), residuals, outside))

    def _opening_only(self, candidates: Tensor) -> Tensor:
        return joined(*self._opened(candidates)[1])

    def _opened(self, candidates: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        vectors = normalised(candidates)
        for _ in range(POLISH if len(vectors) > 1 else 0):
            vectors = torch.addmm(vectors, vectors @ vectors.T, vectors, beta=1.5, alpha=-0.5)
        weighted, gram = self._placed(0, vectors)
        return vectors, [overlaps(vectors), gram], weighted

    def _placed(self, start: int, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Put rows with their images into memory; what is weighted, their rows of the matrix."""
        images = self.operator.images(vectors)
        weighted = self.operator.weighted(images)
        stop = start + len(vectors)
        for place, new in zip(self.memory, (vectors, images, weighted), strict=True):
            place[start:stop] = new
        return weighted, self.operator.gram(vectors, weighted, self.memory[1][:stop])

    def _round(self, plan: Tensor) -> Tensor:
        """Residuals of Ritz pairs, as `_plan` put them, and the rows that they become."""
        known = plan.shape[1] - 1
        vectors, _, weighted = (place[:known] for place in self.memory)
        pairs, inverse = plan[:-known], plan[-known:, :-1]
        turns, values = pairs[:, :-1], pairs[:, -1:]
        products, outside = self.operator.products(torch.tensordot(turns, weighted, 1))
        residuals = products - values * (turns @ vectors)
        return joined(*self._grown(known, residuals, outside, inverse))

    def _plan(self, start: int, stop: int) -> np.ndarray:
        pairs = np.vstack([self.turns[:, start:stop], self.values[start:stop]]).T
        inverse = np.pad(self.turns @ self.turns.T, ((0, 0), (0, 1)))  # of the overlaps
        return np.vstack([pairs, inverse])

    def _grown(
        self, known: int, residuals: Tensor, outside: Tensor, inverse: Tensor | None = None
    ) -> list[Tensor]:
        inner = [overlaps(residuals), (outside @ outside.T).double()]
        return inner + self._added(known, residuals, inverse)

    def _added(self, known: int, directions: Tensor, inverse: Tensor | None = None) -> list[Tensor]:
        """Place what is new in directions; its overlaps and its rows of the matrix."""
        vectors, new = self.memory[0][:known], normalised(directions)
        for _ in range(2):
            shares = new @ vectors.T
            new = new - (shares if inverse is None else shares @ inverse) @ vectors
        lengths = torch.linalg.vector_norm(new, dim=1, keepdim=True)
        new = torch.where(lengths > BREAKDOWN, new / lengths, 0.0)
        _, rows = self._placed(known, new)
        return [overlaps(new), rows]

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
        overlap = np.pad(self._overlap, (0, count))
        overlap[-count:, -count:] = told.take(count)
        gram = np.pad(self._gram, (0, count))
        gram[-count:] = told.take(count, self._rows + count)
        gram[:, -count:] = gram[-count:].T
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
        return joined(*self._added(len(inverse), candidates, inverse))

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
        vectors = normalised(candidates)
        squares, axes = solved(overlaps(vectors).cpu().numpy())
        kept = squares > DEPENDENT
        return on_device((axes[:, kept] / np.sqrt(squares[kept])).T, vectors) @ vectors


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


def normalised(vectors: Tensor) -> Tensor:
    lengths = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    return vectors / lengths.clamp_min(torch.finfo(vectors.dtype).tiny)


def pencil(gram: np.ndarray, overlap: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ritz values, largest first, and their combinations of rows with these overlaps."""
    if not (np.isfinite(gram).all() and np.isfinite(overlap).all()):
        return np.full(len(gram), np.nan), np.eye(len(gram))
    squares, axes = solved(overlap)
    kept = squares > INDEPENDENT
    axes = axes[:, kept] / np.sqrt(squares[kept])
    values, turns = solved(axes.T @ gram @ axes)
    return values, axes @ turns
