"""A basis in fixed memory that grows by rounds, each a CUDA graph between two looks of the host.

A look costs a GPU more than a product. So every row of this basis comes with its product: the host
then knows the residual of any combination of rows from inner products alone, and a space of some
vectors is opened together with the residuals of all of them as further rows. What is wasted in
products is saved in looks.

A row v is kept with its defect d, what its product has outside the rows known when it was made:
A v = d + sum_j M_j v_j. For a Ritz pair x = sum c_i v_i the residual is then c d + (c M - theta c)
v, without the cancellation of A x - theta x. Its length comes from inner products and is known to
the root of their rounding: 1e-8 of the value in float64, 1e-4 in float32, whose tolerance asks for
1e-2. Rows need not be orthonormal: the host knows their overlaps.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from toosure.curvature.basis import (
    BREAKDOWN,
    DEPENDENT,
    INDEPENDENT,
    PIECE,
    ROUNDING,
    Basis,
    on_device,
    overlaps,
)
from toosure.curvature.linearise import tensor_cores
from toosure.curvature.operators import Operator

ROWS = 40  # room for a basis of 30 and what comes after it
PAST = 3  # rows before these, for up to six vectors from outside
TF32 = 3e-4  # relative rounding of a value made with it; 1.5e-4 seen on a dense network
NOISE = 10  # residuals of so many roundings of the value are nothing but that
KNOWN = 0.3  # of the root of a rounding: shorter residuals are not known well enough to scale
AT_ONCE = 2  # residuals that a later round adds
POLISH = 3  # steps of Newton and Schulz: vectors .1 from orthonormal become so to rounding
ORTHONORMAL = 1e-5  # what is left between starting vectors after that, unless they are dependent


def begun(
    operator: Operator,
    candidates: Tensor,
    depth: int = 2,
    coarse: bool = False,
    past: Tensor | None = None,
) -> "Basis | Rounds":
    """A basis that spans some vectors; on a GPU that replays, one that grows by rounds.

    There `depth` 0 makes the images of the vectors, 1 their products too, 2 also rows of their
    residuals; `coarse` lets all these use TF32. `past` are vectors whose overlaps with the leading
    ones are wanted in the end.
    """
    if operator.replays:
        return Rounds(operator, candidates, depth, coarse, past)
    return Basis(operator, candidates, past)


@dataclass
class Memory:
    """Where the rows of all bases of an operator lie, one basis at a time.

    Rows are padded with zeros: a GPU multiplies matrices faster that begin at round addresses.
    """

    all: Tensor  # (PAST + ROWS, 2, width): a vector and its defect; past vectors first
    images: Tensor
    outside: Tensor  # (ROWS, q)

    @property
    def rows(self) -> Tensor:
        return self.all[PAST:]

    def upto(self, stop: int) -> Tensor:
        """Past vectors, then vectors and defects in turns, to a row: (2 PAST + 2 stop, width)."""
        return self.all[: PAST + stop].flatten(0, 1)


class Rounds:
    """Rows with their products, and the eigenpairs of the matrix that they project out.

    There is one memory for an operator: making another basis ends the one before.
    """

    def __init__(
        self,
        operator: Operator,
        candidates: Tensor,
        depth: int = 2,
        coarse: bool = False,
        past: Tensor | None = None,
    ) -> None:
        self.operator, self.coarse, self.products = operator, coarse, 0.0
        self.memory: Memory = operator.kept(lambda: room(operator, candidates))
        self.size, self.past = candidates.shape[1], 0
        if past is not None:
            self.past = len(past)
            self.memory.upto(0)[: self.past, : self.size] = past
        self._candidates = candidates
        self._open(depth)
        count = len(candidates)
        left = np.abs(self._overlap[:count, :count] - np.eye(count)).max()
        if not left <= ORTHONORMAL:  # also where the iteration overflowed
            independent = self._independent(candidates)
            if independent is not None:
                self._candidates = independent
                self._open(depth)

    # -- on the device ----------------------------------------------------------------------

    def _open_images(self, candidates: Tensor) -> Tensor:
        overlap, vectors = self._orthonormal(candidates)
        return joined(overlap, self._placed(0, vectors)[1])

    def _open_rows(self, candidates: Tensor) -> Tensor:
        return joined(*self._added(0, self._orthonormal(candidates)[1]))

    def _open_wide(self, candidates: Tensor) -> Tensor:
        count = len(candidates)
        told = self._added(0, self._orthonormal(candidates)[1])
        defects = self.memory.rows[:count, 1]  # residuals: the rows are orthonormal
        lengths = torch.linalg.vector_norm(defects, dim=1, keepdim=True)
        least = NOISE * torch.finfo(defects.dtype).eps * told[0].diagonal().abs().max()
        directions = torch.where(lengths > least, defects / lengths, 0.0)
        return joined(*told, *self._added(count, self._outside_of(count, directions)))

    def _orthonormal(self, candidates: Tensor) -> tuple[Tensor, Tensor]:
        padded = self._padded(candidates)
        overlap, turn = polished(overlaps(padded))
        return overlap, turn.to(padded.dtype) @ padded

    def _padded(self, vectors: Tensor) -> Tensor:
        return F.pad(vectors, (0, self.memory.all.shape[2] - self.size))

    def _round(self, plan: Tensor) -> Tensor:
        """Rows of directions that the host names as combinations of rows and defects."""
        known = plan.shape[1] // 2
        directions = plan[:-known] @ self.memory.rows[:known].flatten(0, 1)
        inverse = plan[-known:, :known]
        return joined(*self._added(known, self._outside_of(known, directions, inverse)))

    def _joining(self, candidates: Tensor, inverse: Tensor) -> Tensor:
        new = self._padded(candidates)
        new = lengths_of(overlaps(new)).to(new.dtype) * new
        for _ in range(2):
            new = self._outside_of(len(inverse), new, inverse)
        new = lengths_of(overlaps(new), BREAKDOWN).to(new.dtype) * new
        return joined(*self._added(len(inverse), new))

    def _outside_of(self, known: int, new: Tensor, inverse: Tensor | None = None) -> Tensor:
        """Vectors without what the rows hold of them; `inverse` is that of the rows' overlaps."""
        vectors = self.memory.rows[:known, 0]
        shares = overlaps(new, vectors).to(new.dtype)
        shares = shares if inverse is None else shares @ inverse
        return torch.addmm(new, shares, vectors, alpha=-1)

    def _added(self, known: int, new: Tensor) -> list[Tensor]:
        """Make vectors rows; their part of the matrix, of all inner products, and outside."""
        memory, stop = self.memory, known + len(new)
        weighted, gram = self._placed(known, new)
        with tensor_cores(self.coarse):
            products, outside = self.operator.products(weighted)
        rows, vectors = memory.rows[known:stop], memory.rows[:stop, 0, : self.size]
        rows[:, 1, : self.size] = torch.addmm(products, gram.to(new.dtype), vectors, alpha=-1)
        memory.outside[known:stop] = outside
        inner = overlaps(rows.flatten(0, 1), memory.upto(stop))
        return [gram, inner, overlaps(outside, memory.outside[:stop])]

    def _placed(self, known: int, new: Tensor) -> tuple[Tensor, Tensor]:
        stop, vectors = known + len(new), new[:, : self.size]
        with tensor_cores(self.coarse):
            images = self.operator.images(vectors)
        weighted = self.operator.weighted(images)
        self.memory.rows[known:stop, 0] = new
        self.memory.images[known:stop] = images
        return weighted, self.operator.gram(vectors, weighted, self.memory.images[:stop])

    # -- on the host ------------------------------------------------------------------------

    def _open(self, depth: int) -> None:
        count = len(self._candidates)
        function = (self._open_images, self._open_rows, self._open_wide)[depth]
        self.finite = True
        told = self._told(f"open {count} to {depth}", function, self._candidates)
        self._gram, self._made, self._inner, self._beyond = np.zeros((4, 0, 0))
        self._shares = np.zeros((0, 2 * PAST))
        if depth:
            for _ in range(depth):
                self._take(told, count)
        else:
            self._overlap, self._gram = told.take(count, count), told.take(count, count)
            self.products += self.operator.image_cost * count
        self._solve()

    def _told(self, name: str, function: Callable[..., Tensor], *arguments: Tensor) -> "Told":
        name += ", coarse" * self.coarse
        told = Told(self.operator.told(name, function, *arguments))
        self.finite = self.finite and bool(np.isfinite(told.numbers).all())
        return told

    def _take(self, told: "Told", count: int) -> None:
        """Note what the device told of new rows."""
        known = len(self._made)
        total = known + count
        self._gram = bordered(self._gram[:known, :known], told.take(count, total))
        made = np.zeros((total, total))  # M: the part of the matrix that a row's defect is without
        made[:known, :known], made[known:] = self._made, self._gram[known:]
        self._made = made
        inner = told.take(2 * count, 2 * (PAST + total))
        self._shares = np.concatenate([self._shares, inner[:, : 2 * PAST]])
        self._inner = bordered(self._inner, inner[:, 2 * PAST :])
        self._overlap = self._inner[::2, ::2]
        self._beyond = bordered(self._beyond, told.take(count, total))
        self.products += (self.operator.image_cost + self.operator.product_cost) * count

    @property
    def vectors(self) -> Tensor:
        return self.memory.rows[: len(self._gram), 0, : self.size]

    @property
    def rounding(self) -> float:
        kind = self.memory.all.dtype
        rounded = self.coarse and self.memory.all.is_cuda and kind == torch.float32
        return TF32 if rounded else ROUNDING[kind]

    def __len__(self) -> int:
        return len(self.values)

    def _solve(self) -> None:
        """Find the Ritz pairs, and their residuals in rows and defects, these in turns."""
        self.values, self.turns = pencil(self._gram, self._overlap)
        turns = self.turns.T
        if len(self._made) and self.finite:
            mixed = np.empty((*turns.shape, 2))
            mixed[..., 0] = turns @ self._made - self.values[:, None] * turns
            mixed[..., 1] = turns
            self.residuals = mixed.reshape(len(turns), 2 * len(self._made))
            parts = (self.residuals, self._inner), (turns, self._beyond)
            squares = [np.einsum("ij,ij->i", c @ inner, c) for c, inner in parts]
            self._norms = np.sqrt(np.maximum(squares, 0.0)).T.tolist()

    def residual(self, index: int) -> tuple[float, float]:
        """The norm of A x - theta x of one Ritz pair, and that of its part outside the space."""
        if not len(self._made):  # only images were made
            self._open(1)
        if not self.finite:
            return float("nan"), float("nan")
        inside, outside = self._norms[index]
        return inside, outside

    def expand(self, index: int) -> bool:
        """Add residuals from that of a pair on; False where nothing was new in them."""
        self._make_room(AT_ONCE)
        count = min(AT_ONCE, len(self) - index)
        lengths = [self.residual(i)[0] for i in range(index, index + count)]
        known = len(self._made)
        least = KNOWN * torch.finfo(self.memory.all.dtype).eps ** 0.5 * abs(self.values[index])
        scale = np.array([1 / length if length > least else 0.0 for length in lengths])
        plan = np.zeros((count + known, 2 * known))
        plan[:count] = scale[:, None] * self.residuals[index : index + count]
        plan[count:, :known] = self.turns @ self.turns.T  # the inverse of the overlaps
        told = self._told(f"round {count} of {known}", self._round, on_device(plan, self.vectors))
        return self._grown(told, count)

    def _grown(self, told: "Told", count: int) -> bool:
        before = len(self)
        self._take(told, count)
        self._solve()
        return len(self) > before

    def add(self, direction: Tensor) -> bool:
        """Add a direction; False where nothing new was left of it."""
        return self.join(direction[None])

    def join(self, candidates: Tensor) -> bool:
        """Add vectors that may be nearly those already here; False where all of them are."""
        self._make_room(len(candidates))
        inverse = on_device(self.turns @ self.turns.T, self.vectors)
        name = f"join {len(candidates)} to {len(inverse)}"
        return self._grown(self._told(name, self._joining, candidates, inverse), len(candidates))

    def _make_room(self, count: int) -> None:
        if len(self._gram) + count > ROWS:
            self.restart(min(len(self), ROWS // 2))

    def restart(self, keep: int) -> None:
        """Keep only the leading Ritz vectors."""
        self._candidates = on_device(self.turns[:, :keep].T, self.vectors) @ self.vectors
        self._open(1)

    def leading(self, count: int, refresh: int) -> tuple[Tensor, Tensor, np.ndarray]:
        """Leading Ritz vectors, these moved along their residuals, shares: see `Basis.leading`."""
        if not len(self._made) or not self.finite:
            vectors = on_device(self.turns[:, :count].T, self.vectors) @ self.vectors
            return vectors, vectors, np.full((count + 1, self.past + 1), np.nan)
        rows = len(self._made)
        turns = np.zeros((2, count, 2 * rows))
        turns[:, :, ::2] = self.turns[:, :count].T
        shift = 0.5 * max(float(self.values[-1]), 0.0) if len(self) > 1 else 0.0
        distances = self.values[:count] - shift
        noise = NOISE * torch.finfo(self.memory.all.dtype).eps ** 0.5 * abs(self.values[0])
        lengths = np.array(self._norms)[:count, 0]
        far = distances > np.maximum(lengths, noise)  # else a step would be noise, or too long
        reach = np.divide(1.0, distances, out=np.zeros(count), where=far)
        turns[1] += reach[:, None] * self.residuals[:count]
        turns[1] /= np.sqrt(np.einsum("ij,ij->i", turns[1] @ self._inner, turns[1]))[:, None]
        both = turns.reshape(2 * count, -1)
        vectors = on_device(both, self.vectors) @ self.memory.rows[:rows].flatten(0, 1)
        vectors, improved = vectors[:, : self.size].split(count)
        first = both[: count + 1] @ self._inner @ both[count]
        shares = np.column_stack([both[: count + 1] @ self._shares[:, : self.past], first])
        return vectors, improved.contiguous(), shares

    def _independent(self, candidates: Tensor) -> Tensor | None:
        """Orthonormal vectors of the same span, without what adds only rounding noise.

        None where they are not finite.
        """
        overlap = overlaps(candidates).cpu().numpy()
        if not np.isfinite(overlap).all():
            return None
        scale = 1 / np.sqrt(np.diag(overlap))
        squares, axes = descending(overlap * scale[:, None] * scale)
        kept = squares > DEPENDENT
        turn = (axes[:, kept] / np.sqrt(squares[kept])).T * scale
        return on_device(turn, candidates) @ candidates


class Told:
    """Numbers that came from the device in one piece, taken off matrix by matrix."""

    def __init__(self, numbers: np.ndarray) -> None:
        self.numbers, self.place = numbers, 0

    def take(self, rows: int, columns: int) -> np.ndarray:
        start, self.place = self.place, self.place + rows * columns
        return self.numbers[start : self.place].reshape(rows, columns)


def room(operator: Operator, candidates: Tensor) -> Memory:
    images = operator.images(candidates[:1])
    _, outside = operator.products(operator.weighted(images))
    width = -(-candidates.shape[1] // PIECE) * PIECE
    rows = torch.zeros(PAST + ROWS, 2, width).to(candidates)
    return Memory(rows, *(torch.zeros(ROWS, *t.shape[1:]).to(t) for t in (images, outside)))


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


def bordered(matrix: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """A symmetric matrix with new rows, and columns, behind its own."""
    known, total = len(matrix), rows.shape[1]
    whole = np.empty((total, total))
    whole[:known, :known], whole[known:], whole[:, known:] = matrix, rows, rows.T
    return whole


def descending(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, vectors = np.linalg.eigh(matrix)  # small: faster than torch's, and of one thread
    return values[::-1], vectors[:, ::-1]


def pencil(gram: np.ndarray, overlap: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ritz values, largest first, and their combinations of rows with these overlaps."""
    if not (np.isfinite(gram).all() and np.isfinite(overlap).all()):
        return np.full(len(gram), np.nan), np.eye(len(gram))
    axes = whitening(overlap)
    inside = axes.T @ gram @ axes
    values, turns = descending((inside + inside.T) / 2)
    return values, axes @ turns


def whitening(overlap: np.ndarray) -> np.ndarray:
    """Columns that combine rows with these overlaps to orthonormal ones, without dependent ones."""
    try:
        root = np.linalg.cholesky(overlap)
    except np.linalg.LinAlgError:
        root = np.zeros((1, 1))
    if np.diag(root).min() ** 2 > INDEPENDENT:
        return np.linalg.inv(root).T
    squares, axes = descending(overlap)
    kept = squares > INDEPENDENT
    return axes[:, kept] / np.sqrt(squares[kept])
