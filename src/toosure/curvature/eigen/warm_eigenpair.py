"""One extreme eigenpair along training, measured with as few products as are safe.

At the edge of stability the iterate bounces with period two, so the eigenvector is like the one at
t-2 and unlike the one at t-1. In smooth phases it can be extrapolated from its past. There are
three kinds of step, from expensive to cheap; each falls back on the one before if its check fails:

- full: Rayleigh-Ritz over the leading Ritz vectors of t-2 (four, with a residual of the first two;
  with CUDA graphs six, with residuals of all);
- lean: the extrapolated vector alone and its residual (one product);
- calm: its Rayleigh quotient alone (half a product), while the value continues its own past.

With CUDA graphs, waiting for a number takes longer than half a product, so no step is calm. If all
layers are dense as well, waiting takes longer than a block of products, and every step is full: six
vectors, led by the extrapolated one once it is good, and residuals only if these do not suffice.

When one eigenvalue crosses another, the largest value is followed, not a vector. A full step finds
the leading values together and takes the largest. Cheap steps see one value only, so there are at
most `FULL_EVERY` of them in a row, and none while values are close. Three things make sure that a
crossing is seen. While the second value of the last full step is within 5 % of the first, every
step is full (`_store_measurement`). A computed residual improves its vector before the vector is
stored, which costs nothing and keeps the second vector accurate. And a short Lanczos run from a
random start finds a vector outside the stored space, every `probe_every` steps and after every jump
of the value (`_probe`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toosure.curvature.eigen.basis import Basis
from toosure.curvature.eigen.eager_basis import EagerBasis
from toosure.curvature.eigen.eigenpair_history import EigenpairHistory
from toosure.curvature.eigen.error_estimates import TINY
from toosure.curvature.eigen.make_basis import make_basis
from toosure.curvature.eigen.operator import Operator
from toosure.curvature.eigen.solver import Solution, solve
from toosure.curvature.eigen.vectors import on_device, random_vectors
from toosure.curvature.result import Result

KEEP = 4  # Ritz vectors carried from step to step
KEEP_WITH_GRAPHS = 6  # with CUDA graphs: less waiting, more products
FIRST_STEPS = 4  # measurements that start from the last vectors and a random one
MIN_STEADY = 3  # well extrapolated steps in a row before cheaper kinds are tried
WELL_EXTRAPOLATED = 0.3  # share of the tolerance that a good extrapolation may miss
FULL_EVERY = 8  # cheap steps between two full ones
MAX_CALM = 3  # calm steps between two residuals
MIN_CALM_ERROR = 0.05  # share of the tolerance to which an extrapolated vector is known at best
NEAR = 0.95  # second over first eigenvalue above which only full steps are safe
MAX_DEEP = 16  # deep steps after a shallow one that was not enough
COARSE = 1e-3  # from this tolerance on, products may round to TF32 on a GPU
PRIME = 7919  # the random start is rolled by this many numbers
JUMP = 0.5  # relative change of the value that calls for a probe


class WarmEigenpair:
    """The largest eigenvalue of an operator, measured again and again while parameters move.

    `like` is an empty block (0, P) with the device and type of a vector. `sign` -1 turns the
    largest eigenvalue of -A back to the smallest of A.
    """

    def __init__(
        self,
        operator: Operator,
        like: Tensor,
        *,
        sign: float = 1.0,
        rtol: float = 1e-3,
        budget: float = 60.0,
        probe_every: int = 50,
        probe_budget: float = 8.0,
        seed: int = 0,
    ) -> None:
        self.operator = operator
        self.like = like
        self.sign = sign
        self.rtol = rtol
        self.budget = budget
        self.probe_every = probe_every
        self.probe_budget = probe_budget
        self.seed = seed
        self.history = EigenpairHistory()
        self._postponed: Callable[[], None] | None = None
        self._noise: Tensor | None = None

    @property
    def keep(self) -> int:
        """Number of Ritz vectors kept from step to step."""
        return KEEP_WITH_GRAPHS if self.operator.uses_graphs else KEEP

    def measure(self) -> Result:
        """Measure the eigenvalue now, with its estimated error."""
        self.catch_up()
        history = self.history
        history.steps += 1
        history.since_probe += 1
        if history.steps <= FIRST_STEPS or len(history.spaces) < 2:
            return self._first_step()

        # Full: all leading vectors, at every step if blocks are cheap, otherwise at some.
        weights = history.extrapolation_weights()
        if self.operator.uses_graphs and self.operator.dense:
            return self._finish(self._full_step_in_graphs(weights), weights, full=True)
        if history.steady < MIN_STEADY or history.since_full >= FULL_EVERY:
            solution = self._solve(self._make_basis(history.spaces[0]), refresh=2)
            return self._finish(solution, weights, full=True)

        # Calm: the Rayleigh quotient of the extrapolated vector, if that is enough.
        predicted = self._predicted(weights)
        basis = self._make_basis(predicted[None], depth=1)
        if self._may_be_calm:
            result = self._calm_step(predicted, weights, basis)
            if result is not None:
                return result

        # Lean: the residual too. One vector shows no gap. Take half of the last gap, since the
        # second value may have risen.
        first, second = [*history.spectra[-1], 0.0][:2]
        gap = 0.5 * (1 - second / (first or TINY))
        solution = self._solve(basis, reserve=history.spaces[0], known_gap=gap)
        return self._finish(solution, weights, full=False)

    # -- kinds of step ------------------------------------------------------------------------

    def _first_step(self) -> Result:
        """Measure from the last vectors and a random one; the first time, find two pairs."""
        start = self._random_start()
        if self.history.spaces:
            basis = self._make_basis(torch.cat([self.history.spaces[-1], start]))
            solution = self._solve(basis, refresh=2)
        else:
            wanted = min(2, self.like.shape[1])
            solution = self._solve(self._make_eager_basis(start), wanted=wanted, refresh=2)

        if not np.isfinite(solution.values[0]):
            return self._start_over(solution)
        self.history.store(solution, self.keep)
        return solution.to_result(self.sign)

    def _full_step_in_graphs(self, weights: np.ndarray) -> Solution:
        """Solve from six vectors: shallow, which is without their residuals, while that is enough.

        After a shallow step that was not enough, the next 2, 4, 8 or 16 steps are deep.
        """
        history = self.history
        start = history.spaces[0]
        if history.steady >= MIN_STEADY:
            start = torch.cat([self._predicted(weights)[None], start[1:]])

        shallow = history.deep_for <= 0
        basis = self._make_basis(start, depth=1 if shallow else 2)
        size = len(basis)
        solution = self._solve(basis, refresh=2)

        enough = len(basis) == size
        if shallow and not enough:
            history.deep = min(2 * history.deep, MAX_DEEP)
            history.deep_for = history.deep
        elif shallow:
            history.deep = max(history.deep // 2, 1)
        else:
            history.deep_for -= enough
        return solution

    @property
    def _may_be_calm(self) -> bool:
        credit = min(MAX_CALM, self.history.steady - MIN_STEADY)
        saves = self.operator.product_cost > 0 and not self.operator.uses_graphs
        return self.history.calm < credit and saves and not self._probe_due

    def _calm_step(self, predicted: Tensor, weights: np.ndarray, basis: Basis) -> Result | None:
        """Accept the Rayleigh quotient if the value continues its past; otherwise return None."""
        history = self.history
        value = float(basis.values[0])
        past = history.values
        expected = (2 * past[-1] - past[-2], 2 * past[-2] - past[-4])  # with lag 1 or 2
        surprise = min(abs(value - e) for e in expected) / max(abs(value), TINY)

        known = max(history.error, MIN_CALM_ERROR * self.rtol)
        error = known * (2 + history.calm) + history.beyond + surprise
        if not error <= self.rtol / 2:  # half: only its past checks this value
            return None

        history.calm += 1
        history.since_full += 1
        history.push(predicted, value, [*(np.array(history.overlap) @ weights), 1.0])
        return Result(
            self.sign * value,
            max(error, basis.rounding),
            products=basis.products,
            note="no residual: the eigenvector is extrapolated",
        )

    # -- bases and starts ---------------------------------------------------------------------

    def _make_basis(self, candidates: Tensor, depth: int = 2) -> Basis:
        coarse = self.rtol >= COARSE
        return make_basis(self.operator, candidates, depth, coarse, self.history.leading)

    def _make_eager_basis(self, candidates: Tensor) -> Basis:
        """Make a basis without graphs, for rare cases in which capturing does not pay off."""
        return EagerBasis(self.operator, candidates, self.history.leading)

    def _solve(self, basis: Basis, **options: Any) -> Solution:
        options |= {"rtol": self.rtol, "budget": self.budget, "keep": self.keep}
        return solve(basis, warm=bool(self.history.spaces), **options)

    def _predicted(self, weights: np.ndarray) -> Tensor:
        assert self.history.leading is not None
        return on_device(weights, self.like) @ self.history.leading

    def _random_start(self) -> Tensor:
        """Return another random vector at every step: one vector from the host, rolled."""
        if self._noise is None or self._noise.shape[1] != self.like.shape[1]:
            self._noise = random_vectors(1, self.like, self.seed)
        return self._noise.roll(PRIME * self.history.steps, 1)

    # -- after a solve ------------------------------------------------------------------------

    def _finish(self, solution: Solution, weights: np.ndarray, full: bool) -> Result:
        """Probe if it is time, and store the measurement; with graphs later, while a GPU works."""
        history = self.history
        if not np.isfinite(solution.values[0]):
            return self._start_over(solution)

        jumped = abs(solution.values[0] / max(history.values[-1], TINY) - 1) > JUMP
        if jumped or self._probe_due:
            solution = self._probe(solution)
            history.since_probe = 0

        history.beyond = solution.error_outside
        self._postponed = partial(self._store_measurement, solution, weights, full)
        if not self.operator.uses_graphs:
            self.catch_up()
        return solution.to_result(self.sign)

    def catch_up(self) -> None:
        """Store the last measurement if this was postponed."""
        store, self._postponed = self._postponed, None
        if store is not None:
            store()

    def _start_over(self, solution: Solution) -> Result:
        """Forget everything: the next finite measurement starts cold."""
        self.history = EigenpairHistory(steps=self.history.steps)
        return solution.to_result(self.sign)

    @property
    def _probe_due(self) -> bool:
        return bool(self.probe_every) and self.history.since_probe >= self.probe_every

    def _probe(self, solution: Solution) -> Solution:
        """Look for a larger eigenvalue from a random start, and adopt it if there is one."""
        _ = solution.leading  # now: another basis may overwrite the memory that it needs
        basis = self._make_basis(self._random_start(), depth=int(self.probe_budget))
        probe = solve(basis, rtol=0.0, budget=self.probe_budget, keep=self.keep)

        spent = solution.products + probe.products
        if probe.values[0] > solution.values[0] * (1 + self.rtol):
            basis = self._make_eager_basis(probe.vectors)
            solution = self._solve(basis, reserve=solution.vectors)
            spent += solution.products
        solution.products = spent
        return solution

    def _store_measurement(self, solution: Solution, weights: np.ndarray, full: bool) -> None:
        """Judge the extrapolation by the solution, and store both. This decides the next step."""
        history = self.history
        several = len(solution.values) > 1
        missed = 0.0  # by its Rayleigh quotient; 0 if the extrapolation is the solution
        if several:
            squares = (solution.past_overlaps[:-1, :-1] @ weights) ** 2
            missed = 1 - (squares * solution.values).sum() / max(solution.values[0], TINY)

        # If values are about to cross, only a full step sees which one is larger. A lean step that
        # needed the reserve was not well extrapolated either.
        near = several and solution.values[1] > NEAR * solution.values[0]
        sufficed = full or not several
        well = missed < WELL_EXTRAPOLATED * self.rtol and not near and sufficed
        history.steady = history.steady + 1 if well else 0
        history.since_full = 0 if several else history.since_full + 1
        history.store(solution, self.keep, along=weights)

    # -- checkpoints --------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a resumed run needs to start warm, in plain types and tensors.

        The tensors are not copies, but they are never written into.
        """
        self.catch_up()
        return self.history.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.history = EigenpairHistory.from_state(state, self.like)
        self._postponed = None
