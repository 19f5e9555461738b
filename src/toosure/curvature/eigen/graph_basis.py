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
from functools import partial

import numpy as np
import torch
from torch import Tensor

from toosure.curvature.eigen.eager_basis import DEPENDENT, ROUNDING, Basis, on_device, overlaps
from toosure.curvature.eigen.graph_rows import NOISE, PAST, ROWS, Rows
from toosure.curvature.eigen.small_eigen import Told, bordered, descending, pencil
from toosure.curvature.operators import Operator

ORTHONORMAL = 1e-5  # what polishing leaves between starting vectors, unless they are dependent
TF32 = 3e-4  # relative rounding of a value made with it; 1.6e-4 seen on a dense network
KNOWN = 0.3  # of the root of a rounding: shorter residuals are not known well enough to scale
LEAST = 0.5  # squared length of an improved vector
AT_ONCE = 2  # residuals that a later round adds


def begun(
    operator: Operator,
    candidates: Tensor,
    depth: int = 2,
    coarse: bool = False,
    past: Tensor | None = None,
) -> "Basis | Rounds":
    """A basis that spans some vectors; on a GPU that replays, one that grows by rounds.

    There `depth` 1 makes rows of the vectors, 2 also of their residuals, and so on: from one vector
    so many steps of Lanczos. `coarse` lets all these use TF32. `past` are vectors whose overlaps
    with the leading ones are wanted in the end.
    """
    if operator.replays:
        return Rounds(operator, candidates, depth, coarse, past)
    return Basis(operator, candidates, past)


class Rounds:
    """Rows with their products, and the eigenpairs of the matrix that they project out.

    The rows lie in one memory for an operator: making another basis ends the one before.
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
        name = "rows" + ", coarse" * coarse
        self.rows: Rows = operator.kept(name, lambda: Rows(operator, candidates, coarse))
        self.past = 0 if past is None else len(past)
        if past is not None:
            self.rows.remember(past)
        self._candidates, count = candidates, len(candidates)
        depth = max(1, min(depth, ROWS // count))
        self._open(depth)
        left = np.abs(self._overlap[:count, :count] - np.eye(count)).max()
        if not left <= ORTHONORMAL:  # also where the iteration overflowed
            independent = self._independent(candidates)
            if independent is not None:
                self._candidates = independent
                self._open(depth)

    def _open(self, depth: int) -> None:
        count = len(self._candidates)
        function = partial(self.rows.open_rows, depth=depth)
        self.finite = True
        told = self._told(f"open {count} to {depth}", function, self._candidates)
        self._gram, self._made, self._inner, self._beyond = np.zeros((4, 0, 0))
        self._shares = np.zeros((0, 2 * PAST))
        for _ in range(depth):
            self._take(told, count)
        self._solve()

    def _told(self, name: str, function: Callable[..., Tensor], *arguments: Tensor) -> Told:
        name += ", coarse" * self.coarse
        told = Told(self.operator.told(name, function, *arguments))
        self.finite = self.finite and bool(np.isfinite(told.numbers).all())
        return told

    def _take(self, told: Told, count: int) -> None:
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
        return self.rows.rows[: len(self._gram), 0, : self.rows.size]

    @property
    def rounding(self) -> float:
        kind = self.rows.all.dtype
        rounded = self.coarse and self.rows.all.is_cuda and kind == torch.float32
        return TF32 if rounded else ROUNDING[kind]

    def __len__(self) -> int:
        return len(self.values)

    def _solve(self) -> None:
        """Find the Ritz pairs, and their residuals in rows and defects, these in turns."""
        size = len(self._gram)
        self.values, self.turns = np.full(size, np.nan), np.eye(size)
        if self.finite:
            self.values, self.turns = pencil(self._gram, self._overlap)
            turns = self.turns.T
            mixed = np.empty((*turns.shape, 2))
            mixed[..., 0] = turns @ self._made - self.values[:, None] * turns
            mixed[..., 1] = turns
            self.residuals = mixed.reshape(len(turns), 2 * len(self._made))
            parts = (self.residuals, self._inner), (turns, self._beyond)
            self._norms = np.sqrt([self._squares(c, inner) for c, inner in parts]).T.tolist()

    def _squares(self, rows: np.ndarray, inner: np.ndarray) -> np.ndarray:
        """Squared lengths of combinations, none below what rounding may have taken of them."""
        noise = torch.finfo(self.rows.all.dtype).eps * ((abs(rows) @ abs(inner)) * abs(rows)).sum(1)
        return np.maximum(((rows @ inner) * rows).sum(1), noise)

    @property
    def lengths(self) -> np.ndarray:
        """The norms of all residuals."""
        return np.array(self._norms)[:, 0]

    def residual(self, index: int) -> tuple[float, float]:
        """The norm of A x - theta x of one Ritz pair, and that of its part outside the space."""
        if not self.finite:
            return float("nan"), float("nan")
        inside, outside = self._norms[index]
        return inside, outside

    def expand(self, index: int) -> bool:
        """Add residuals from that of a pair on; False where nothing was new in them."""
        self._make_room(AT_ONCE)
        directions = self._directions(index, min(AT_ONCE, len(self) - index))
        count, known = len(directions), len(self._made)
        plan = np.zeros((count + known, 2 * known))
        plan[:count] = directions
        plan[count:, :known] = self.turns @ self.turns.T  # the inverse of the overlaps
        told = self._told(
            f"round {count} of {known}", self.rows.round, on_device(plan, self.vectors)
        )
        return self._grown(told, count)

    def _directions(self, index: int, count: int) -> list[np.ndarray]:
        """Residuals, each without what those before it have of it, of length 1; 0 for noise.

        Two pairs often miss the same vector, and then their residuals are nearly parallel.
        """
        least = KNOWN * torch.finfo(self.rows.all.dtype).eps ** 0.5 * abs(self.values[index])
        found: list[np.ndarray] = []
        for residual in self.residuals[index : index + count]:
            for other in found:
                residual = residual - (residual @ self._inner @ other) * other
            length = np.sqrt(max(residual @ self._inner @ residual, 0.0))
            found.append(residual / length if length > least else np.zeros_like(residual))
        return found

    def _grown(self, told: Told, count: int) -> bool:
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
        return self._grown(self._told(name, self.rows.join, candidates, inverse), len(candidates))

    def _make_room(self, count: int) -> None:
        if len(self._gram) + count > ROWS:
            self.restart(min(len(self), ROWS // 2))

    def restart(self, keep: int) -> None:
        """Keep only the leading Ritz vectors."""
        self._candidates = on_device(self.turns[:, :keep].T, self.vectors) @ self.vectors
        self._open(1)

    def leading(self, count: int, refresh: int) -> tuple[Tensor, Tensor, np.ndarray]:
        """Leading Ritz vectors, these moved along their residuals, shares: see `Basis.leading`."""
        if not self.finite:
            vectors = on_device(self.turns[:, :count].T, self.vectors) @ self.vectors
            return vectors, vectors, np.full((count + 1, self.past + 1), np.nan)
        rows = len(self._made)
        turns = np.zeros((2, count, 2 * rows))
        turns[:, :, ::2] = self.turns[:, :count].T
        shift = 0.5 * max(float(self.values[-1]), 0.0) if len(self) > 1 else 0.0
        distances = self.values[:count] - shift
        noise = NOISE * torch.finfo(self.rows.all.dtype).eps ** 0.5 * abs(self.values[0])
        lengths = self.lengths[:count]
        far = distances > np.maximum(lengths, noise)  # else a step would be noise, or too long
        reach = np.divide(1.0, distances, out=np.zeros(count), where=far)
        turns[1] += reach[:, None] * self.residuals[:count]
        squares = ((turns[1] @ self._inner) * turns[1]).sum(1)
        noise = ~(squares > LEAST)  # a step along a residual only makes a vector longer
        turns[1, noise], squares[noise] = turns[0, noise], 1.0
        turns[1] /= np.sqrt(squares)[:, None]
        both = turns.reshape(2 * count, -1)
        moved = on_device(both, self.rows.all) @ self.rows.rows[:rows].flatten(0, 1)
        vectors, improved = moved[:count, : self.rows.size], moved[count:, : self.rows.size]
        shares = np.empty((count + 1, self.past + 1))
        shares[:, :-1] = both[: count + 1] @ self._shares[:, : self.past]
        shares[:, -1] = both[: count + 1] @ (self._inner @ both[count])
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
