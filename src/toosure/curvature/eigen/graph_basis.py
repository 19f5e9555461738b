"""A basis in preallocated GPU memory; one expansion is one CUDA graph and one copy to the host.

On a GPU, waiting for numbers takes longer than a product. So every row of this basis comes with its
product: the host then knows the residual of any combination of rows from inner products alone. A
space is opened by several vectors together with the residuals of all of them as further rows. This
wastes products and saves waiting.

A row v is stored with its defect d, the part of its product outside the rows known when it was
made: A v = d + sum_j M_j v_j. For a Ritz pair x = sum c_i v_i the residual is then
c d + (c M - theta c) v, without the cancellation of A x - theta x. Its length comes from inner
products and is known to the root of their rounding: 1e-8 of the value in float64, 1e-4 in float32,
where the tolerance asks for 1e-2. Rows need not be orthonormal: the host knows their overlaps.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from toosure.curvature.eigen.basis import MIN_INDEPENDENT, ROUNDING, LeadingVectors
from toosure.curvature.eigen.graph_rows import (
    MAX_ROWS,
    NOISE,
    PAST_ROWS,
    GraphRows,
    PackedNumbers,
)
from toosure.curvature.eigen.operator import Operator
from toosure.curvature.eigen.small_eigen import bordered, generalised_eigh, lapack_eigh
from toosure.curvature.eigen.vectors import on_device, overlaps

ORTHONORMAL = 1e-5  # larger overlaps after polishing mean dependent starting vectors
TF32_ROUNDING = 3e-4  # relative, of a value made with it; 1.6e-4 seen on a dense network
MIN_KNOWN = 0.3  # times the root of a rounding: shorter residuals are too inexact to be scaled
MIN_IMPROVED = 0.5  # squared length of an improved vector
ROWS_PER_EXPANSION = 2  # residuals that an expansion adds


class GraphBasis:
    """Rows with their products, and the Ritz pairs of the operator in their span.

    `depth` 1 makes rows of the candidates, 2 also of their residuals, and so on: from one vector,
    `depth` steps of Lanczos. `coarse` lets products round to TF32. In the end, the overlaps of
    `past` vectors with the leading ones are returned, too. There is one memory per operator: making
    another basis overwrites the one before.
    """

    def __init__(
        self,
        operator: Operator,
        candidates: Tensor,
        depth: int = 2,
        coarse: bool = False,
        past: Tensor | None = None,
    ) -> None:
        self.operator = operator
        self.coarse = coarse
        self.products = 0.0
        name = "rows" + ", coarse" * coarse
        self.rows = operator.cached(name, lambda: GraphRows(operator, candidates, coarse))
        self.past = 0 if past is None else len(past)
        if past is not None:
            self.rows.set_past(past)

        self._candidates = candidates
        count = len(candidates)
        depth = max(1, min(depth, MAX_ROWS // count))
        self._start(depth)

        # Dependent candidates cannot be polished: make them independent on the host and restart.
        left = np.abs(self._overlap[:count, :count] - np.eye(count)).max()
        if not left <= ORTHONORMAL:  # also where the iteration overflowed
            independent = _independent(candidates)
            if independent is not None:
                self._candidates = independent
                self._start(depth)

    def _start(self, depth: int) -> None:
        """Make rows of the candidates and further generations of residuals, in one graph."""
        count = len(self._candidates)
        start = partial(self.rows.start, depth=depth)
        self.is_finite = True
        numbers = self._to_host(f"open {count} to {depth}", start, self._candidates)

        self._gram = np.zeros((0, 0))  # V^T A V of the rows' vectors
        self._inside = np.zeros((0, 0))  # M: the part of a row's product that its defect lacks
        self._inner = np.zeros((0, 0))  # inner products of vectors and defects, in turns
        self._outside = np.zeros((0, 0))  # inner products of the parts outside the space
        self._past_inner = np.zeros((0, 2 * PAST_ROWS))  # of vectors and defects with past ones
        for _ in range(depth):
            self._add_rows(numbers, count)
        self._update_ritz_pairs()

    def _to_host(
        self, name: str, function: Callable[..., Tensor], *arguments: Tensor
    ) -> PackedNumbers:
        """Call a function, as a graph once it is captured, and copy its numbers to the host."""
        name += ", coarse" * self.coarse
        numbers = self.operator.to_host(name, function, *arguments)
        self.is_finite = self.is_finite and bool(np.isfinite(numbers).all())
        return PackedNumbers(numbers)

    def _add_rows(self, numbers: PackedNumbers, count: int) -> None:
        """Store what the GPU computed of new rows."""
        known = len(self._inside)
        total = known + count
        self._gram = bordered(self._gram[:known, :known], numbers.take(count, total))
        inside = np.zeros((total, total))
        inside[:known, :known] = self._inside
        inside[known:] = self._gram[known:]
        self._inside = inside

        inner = numbers.take(2 * count, 2 * (PAST_ROWS + total))
        self._past_inner = np.concatenate([self._past_inner, inner[:, : 2 * PAST_ROWS]])
        self._inner = bordered(self._inner, inner[:, 2 * PAST_ROWS :])
        self._overlap = self._inner[::2, ::2]
        self._outside = bordered(self._outside, numbers.take(count, total))
        self.products += (self.operator.image_cost + self.operator.product_cost) * count

    @property
    def vectors(self) -> Tensor:
        return self.rows.rows[: len(self._gram), 0, : self.rows.size]

    @property
    def _dtype(self) -> torch.dtype:
        return self.rows.memory.dtype

    @property
    def rounding(self) -> float:
        in_tf32 = self.coarse and self.rows.memory.is_cuda and self._dtype == torch.float32
        return TF32_ROUNDING if in_tf32 else ROUNDING[self._dtype]

    def __len__(self) -> int:
        return len(self.values)

    # -- Ritz pairs and residuals, on the host ------------------------------------------------

    def _update_ritz_pairs(self) -> None:
        """Find the Ritz pairs, and their residuals as combinations of vectors and defects."""
        size = len(self._gram)
        if not self.is_finite:
            self.values = np.full(size, np.nan)
            self.coefficients = np.eye(size)
            self._norms = [[float("nan")] * 2] * size
            return

        # residual = (c M - theta c) v + c d, with vectors and defects in turns
        self.values, self.coefficients = generalised_eigh(self._gram, self._overlap)
        c = self.coefficients.T
        mixed = np.empty((*c.shape, 2))
        mixed[..., 0] = c @ self._inside - self.values[:, None] * c
        mixed[..., 1] = c
        self.residuals = mixed.reshape(len(c), 2 * size)

        squares = [self._squares(self.residuals, self._inner), self._squares(c, self._outside)]
        self._norms = np.sqrt(squares).T.tolist()

    def _squares(self, rows: np.ndarray, inner: np.ndarray) -> np.ndarray:
        """Return squared lengths of combinations, none below their rounding noise."""
        noise = torch.finfo(self._dtype).eps * ((abs(rows) @ abs(inner)) * abs(rows)).sum(1)
        squares: np.ndarray = np.maximum(((rows @ inner) * rows).sum(1), noise)
        return squares

    @property
    def residual_norms(self) -> np.ndarray:
        return np.array([norm for norm, _ in self._norms])

    def residual(self, index: int) -> tuple[float, float]:
        """Return |A x - theta x| of one Ritz pair, and the norm of A x outside the space."""
        norm, norm_outside = self._norms[index]
        return norm, norm_outside

    # -- growing ------------------------------------------------------------------------------

    def expand(self, index: int) -> bool:
        """Add the residuals of a pair and the next; return False if nothing in them was new."""
        self._make_room(ROWS_PER_EXPANSION)
        directions = self._directions(index, min(ROWS_PER_EXPANSION, len(self) - index))
        count = len(directions)
        known = len(self._inside)
        plan = np.zeros((count + known, 2 * known))
        plan[:count] = directions
        plan[count:, :known] = self.coefficients @ self.coefficients.T  # inverse of the overlaps

        name = f"round {count} of {known}"
        return self._grow(name, count, self.rows.expand, on_device(plan, self.vectors))

    def _directions(self, index: int, count: int) -> list[np.ndarray]:
        """Return residuals of length 1, each orthogonal to the earlier ones; 0 for noise.

        Two pairs often miss the same vector, and then their residuals are nearly parallel.
        """
        noise = MIN_KNOWN * torch.finfo(self._dtype).eps ** 0.5 * abs(self.values[index])
        directions: list[np.ndarray] = []
        for residual in self.residuals[index : index + count]:
            for other in directions:
                residual = residual - (residual @ self._inner @ other) * other
            length = np.sqrt(max(residual @ self._inner @ residual, 0.0))
            directions.append(residual / length if length > noise else np.zeros_like(residual))
        return directions

    def add(self, direction: Tensor) -> bool:
        """Add a direction; return False if it adds nothing new."""
        return self.join(direction[None])

    def join(self, candidates: Tensor) -> bool:
        """Add vectors that may nearly lie in the space; return False if all of them do."""
        self._make_room(len(candidates))
        inverse = on_device(self.coefficients @ self.coefficients.T, self.vectors)
        name = f"join {len(candidates)} to {len(inverse)}"
        return self._grow(name, len(candidates), self.rows.join, candidates, inverse)

    def _grow(
        self, name: str, count: int, function: Callable[..., Tensor], *arguments: Tensor
    ) -> bool:
        """Add `count` rows by a function of the GPU; return whether any was new."""
        before = len(self)
        self._add_rows(self._to_host(name, function, *arguments), count)
        self._update_ritz_pairs()
        return len(self) > before

    def _make_room(self, count: int) -> None:
        if len(self._gram) + count > MAX_ROWS:
            self.restart(min(len(self), MAX_ROWS // 2))

    def restart(self, keep: int) -> None:
        """Keep only the leading Ritz vectors."""
        self._candidates = self._ritz_vectors(keep)
        self._start(1)

    def _ritz_vectors(self, count: int) -> Tensor:
        return on_device(self.coefficients[:, :count].T, self.vectors) @ self.vectors

    # -- the start of a later solve -----------------------------------------------------------

    def leading(self, count: int, refresh: int) -> LeadingVectors:
        """Return the leading Ritz vectors, all of them also improved, since residuals are known."""
        if not self.is_finite:
            vectors = self._ritz_vectors(count)
            nothing = np.full((count + 1, self.past + 1), np.nan)
            return LeadingVectors(vectors, vectors, nothing)

        # Combinations of vectors and defects, in turns: the Ritz vectors, then the improved ones.
        size = len(self._inside)
        both = np.zeros((2, count, 2 * size))
        both[:, :, ::2] = self.coefficients[:, :count].T
        both[1] = self._improved(both[1])
        combinations = both.reshape(2 * count, -1)
        moved = on_device(combinations, self.rows.memory) @ self.rows.rows[:size].flatten(0, 1)
        vectors = moved[:count, : self.rows.size]
        improved = moved[count:, : self.rows.size]

        past_overlaps = np.empty((count + 1, self.past + 1))
        past_overlaps[:, :-1] = combinations[: count + 1] @ self._past_inner[:, : self.past]
        past_overlaps[:, -1] = combinations[: count + 1] @ (self._inner @ combinations[count])
        return LeadingVectors(vectors, improved.contiguous(), past_overlaps)

    def _improved(self, ritz: np.ndarray) -> np.ndarray:
        """Move Ritz vectors, combinations (count, 2 rows), along their residuals; of length 1."""
        count = len(ritz)
        shift = 0.5 * max(float(self.values[-1]), 0.0) if len(self) > 1 else 0.0
        distances = self.values[:count] - shift

        # A step that is longer than the vector, or all noise, is not taken.
        noise = NOISE * torch.finfo(self._dtype).eps ** 0.5 * abs(self.values[0])
        far = distances > np.maximum(self.residual_norms[:count], noise)
        reach = np.divide(1.0, distances, out=np.zeros(count), where=far)
        improved = ritz + reach[:, None] * self.residuals[:count]

        # A step along a residual only makes a vector longer: a shorter one is rounding noise.
        squares = ((improved @ self._inner) * improved).sum(1)
        shorter = ~(squares > MIN_IMPROVED)
        improved[shorter] = ritz[shorter]
        squares[shorter] = 1.0
        scaled: np.ndarray = improved / np.sqrt(squares)[:, None]
        return scaled


def _independent(candidates: Tensor) -> Tensor | None:
    """Return orthonormal vectors of the same span, without vectors of rounding noise.

    None if candidates are not finite.
    """
    overlap = overlaps(candidates).cpu().numpy()
    if not np.isfinite(overlap).all():
        return None
    scale = 1 / np.sqrt(np.diag(overlap))
    squares, axes = lapack_eigh(overlap * scale[:, None] * scale)
    independent = squares > MIN_INDEPENDENT
    rotation = (axes[:, independent] / np.sqrt(squares[independent])).T * scale
    return on_device(rotation, candidates) @ candidates
