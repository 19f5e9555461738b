"""Follow one extreme eigenpair from step to step of training, with as few products as are safe.

At the edge of stability the iterate bounces with period two, so the eigenvector resembles that of
t-2 and not that of t-1. In smooth phases it can be extrapolated from its own past. Three kinds of
step, from dear to cheap, each falling back on the one before when its own check fails:

- full: Rayleigh-Ritz over the leading Ritz vectors of t-2 (four, and a residual of the first two;
  where a basis grows by rounds six, and of all);
- lean: the extrapolated vector alone and its residual (one product);
- calm: its Rayleigh quotient alone (half a product), while the value goes on as it went.

In rounds a look of the host costs more than half a product, and no step is calm. Where layers are
dense too, it costs more than a block of products, and every step is full: six vectors, the
extrapolated one in front once that is good, and residuals only where these alone do not suffice.

A residual that was paid for improves its vector before it is remembered, which costs nothing and
keeps the second eigenvector fresh enough to be seen when it overtakes the first. Every so often,
and after a jump, a short Lanczos run from a random start looks for what the followed space misses.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toosure.curvature.eigen.eager_basis import Basis, on_device
from toosure.curvature.eigen.eigenpair_history import Memory
from toosure.curvature.eigen.graph_basis import Rounds, begun
from toosure.curvature.eigen.solver import TINY, Solution, random_vectors, solve
from toosure.curvature.operators import Operator
from toosure.curvature.result import Result
from toosure.curvature.sharpness import as_result

KEEP = 4  # Ritz vectors carried from step to step
KEEP_IN_ROUNDS = 6  # the same where a basis grows by rounds: fewer looks, more products
OPENING = 4  # first measurements, which start from the last vectors and a random one
STEADY = 3  # well extrapolated steps in a row before cheaper kinds are tried
WELL = 0.3  # share of the tolerance within which a step counts as well extrapolated
FULL_EVERY = 8  # cheap steps between two full ones
MOST_CALM = 3  # calm steps between two residuals
LEAST = 0.05  # share of the tolerance to which an extrapolated vector is known at best
NEAR = 0.95  # second over first eigenvalue above which only full steps are safe
MOST_DEEP = 16  # deep steps between two shallow ones that are not enough
COARSE = 1e-3  # tolerance from which on products may round to TF32 on a GPU
PRIME = 7919  # numbers by which the random start moves on
JUMP = 0.5  # relative change of the value that calls for a probe


class Follower:
    """One extreme eigenvalue of an operator, measured again and again while parameters move."""

    def __init__(
        self,
        operator: Operator,
        like: Tensor,  # (0, P): the device, type and length of a vector
        *,
        sign: float = 1.0,
        rtol: float = 1e-3,
        budget: float = 60.0,
        probe_every: int = 50,
        probe_budget: float = 8.0,
        seed: int = 0,
    ) -> None:
        self.operator, self.like, self.sign, self.rtol = operator, like, sign, rtol
        self.budget, self.seed = budget, seed
        self.probe_every, self.probe_budget = probe_every, probe_budget
        self.memory = Memory()
        self._left: Callable[[], None] | None = None
        self._noise: Tensor | None = None

    @property
    def keep(self) -> int:
        return KEEP_IN_ROUNDS if self.operator.replays else KEEP

    def measure(self) -> Result:
        """The eigenvalue now, with its estimated error."""
        self.catch_up()
        memory = self.memory
        memory.steps += 1
        memory.since_probe += 1
        if memory.steps <= OPENING or len(memory.spaces) < 2:
            return self._opening()
        weights = memory.continued()
        if self.operator.replays and self.operator.dense:
            return self._settle(self._in_rounds(weights), weights, full=True)
        if memory.steady < STEADY or memory.since_full >= FULL_EVERY:
            found = self._solve(self._begun(memory.spaces[0]), refresh=2)
            return self._settle(found, weights, full=True)
        predicted = self._predicted(weights)
        calm = self._may_be_calm
        basis = self._begun(predicted[None], depth=1)
        result = self._calm(predicted, weights, basis) if calm else None
        if result is not None:
            return result
        first, second = [*memory.spectra[-1], 0.0][:2]
        gap = 0.5 * (1 - second / (first or TINY))  # half of it: the second may have risen since
        found = self._solve(basis, reserve=memory.spaces[0], known_gap=gap)
        return self._settle(found, weights, full=False)

    def _predicted(self, weights: np.ndarray) -> Tensor:
        assert self.memory.leading is not None
        return on_device(weights, self.like) @ self.memory.leading

    def _in_rounds(self, weights: np.ndarray) -> Solution:
        """A full step, shallow where that was enough; after one that was not, not for a while."""
        memory, start = self.memory, self.memory.spaces[0]
        if memory.steady >= STEADY:
            start = torch.cat([self._predicted(weights)[None], start[1:]])
        shallow = memory.deep_for <= 0
        basis = self._begun(start, depth=1 if shallow else 2)
        opened = len(basis)
        found = self._solve(basis, refresh=2)
        enough = len(basis) == opened
        if shallow and not enough:
            memory.deep = min(2 * memory.deep, MOST_DEEP)
            memory.deep_for = memory.deep
        elif shallow:
            memory.deep = max(memory.deep // 2, 1)
        else:
            memory.deep_for -= enough
        return found

    def _basis(self, candidates: Tensor) -> Basis:
        """A basis that grows by one vector at a time, for what is rare: no graphs are captured."""
        return Basis(self.operator, candidates, self.memory.leading)

    def _begun(self, candidates: Tensor, depth: int = 2) -> Basis | Rounds:
        coarse = self.rtol >= COARSE
        return begun(self.operator, candidates, depth, coarse, self.memory.leading)

    def _solve(self, basis: Basis | Rounds, **options: Any) -> Solution:
        warm = bool(self.memory.spaces)
        return solve(
            basis, rtol=self.rtol, budget=self.budget, keep=self.keep, warm=warm, **options
        )

    def _opening(self) -> Result:
        """Measure from the last vectors and a random one; the first time, two pairs."""
        start = self._random()
        if self.memory.spaces:
            basis = self._begun(torch.cat([self.memory.spaces[-1], start]))
            found = self._solve(basis, refresh=2)
        else:
            wanted = min(2, self.like.shape[1])
            found = self._solve(self._basis(start), wanted=wanted, refresh=2)
        if not np.isfinite(found.values[0]):
            return self._lost(found)
        self._remember(found)
        return as_result(found, self.sign)

    def _settle(self, found: Solution, weights: np.ndarray, full: bool) -> Result:
        """Probe if it is time; what else there is to do can wait until a device works again."""
        memory = self.memory
        if not np.isfinite(found.values[0]):
            return self._lost(found)
        jumped = abs(found.values[0] / max(memory.values[-1], TINY) - 1) > JUMP
        if jumped or self._probe_due:
            found = self._probed(found)
            memory.since_probe = 0
        memory.beyond = found.beyond
        self._left = partial(self._note, found, weights, full)
        if not self.operator.replays:
            self.catch_up()
        return as_result(found, self.sign)

    def catch_up(self) -> None:
        """Remember the last measurement, if that was left for later."""
        if self._left is not None:
            note, self._left = self._left, None
            note()

    def _note(self, found: Solution, weights: np.ndarray, full: bool) -> None:
        """Judge the extrapolation by what was found, and remember that."""
        memory = self.memory
        missed = 0.0  # of its Rayleigh quotient: nothing where it is itself what was found
        if len(found.values) > 1:
            squares = (found.shares[:-1, :-1] @ weights) ** 2
            missed = 1 - (squares * found.values).sum() / max(found.values[0], TINY)
        near = len(found.values) > 1 and found.values[1] > NEAR * found.values[0]
        sufficed = full or len(found.values) == 1  # a lean step that called the reserve did not
        well = missed < WELL * self.rtol and not near and sufficed
        memory.steady = memory.steady + 1 if well else 0
        memory.since_full = memory.since_full + 1 if len(found.values) == 1 else 0
        self._remember(found, along=weights)

    def _lost(self, found: Solution) -> Result:
        self.memory = Memory(steps=self.memory.steps)  # start anew once it is finite again
        return as_result(found, self.sign)

    @property
    def _probe_due(self) -> bool:
        return bool(self.probe_every) and self.memory.since_probe >= self.probe_every

    def _probed(self, found: Solution) -> Solution:
        """Look for a larger eigenvalue from a random start; adopt it if there is one."""
        start, _ = self._random(), found.leading  # another basis ends that of what was found
        basis = self._begun(start, depth=int(self.probe_budget))
        probe = solve(basis, rtol=0.0, budget=self.probe_budget, keep=self.keep)
        spent = found.products + probe.products
        if probe.values[0] > found.values[0] * (1 + self.rtol):
            found = self._solve(self._basis(probe.vectors), reserve=found.vectors)
            spent += found.products
        found.products = spent
        return found

    @property
    def _may_be_calm(self) -> bool:
        credit = min(MOST_CALM, self.memory.steady - STEADY)
        saves = self.operator.product_cost > 0 and not self.operator.replays
        return self.memory.calm < credit and saves and not self._probe_due

    def _random(self) -> Tensor:
        """A random start, another at every step: one made on the host, rolled further each time."""
        if self._noise is None or self._noise.shape[1] != self.like.shape[1]:
            self._noise = random_vectors(1, self.like, self.seed)
        return self._noise.roll(PRIME * self.memory.steps, 1)

    def _calm(self, predicted: Tensor, weights: np.ndarray, basis: Basis | Rounds) -> Result | None:
        """Accept the Rayleigh quotient if the value goes on as it went."""
        memory, value = self.memory, float(basis.values[0])
        past = memory.values
        expected = (2 * past[-1] - past[-2], 2 * past[-2] - past[-4])
        surprise = min(abs(value - e) for e in expected) / max(abs(value), TINY)
        error = max(memory.error, LEAST * self.rtol) * (2 + memory.calm) + memory.beyond + surprise
        if not error <= self.rtol / 2:  # half: nothing checks this value but its own past
            return None
        memory.calm += 1
        memory.since_full += 1
        memory.push(predicted, value, [*(np.array(memory.overlap) @ weights), 1.0])
        return Result(
            self.sign * value,
            max(error, basis.rounding),
            products=basis.products,
            note="no residual: the eigenvector is extrapolated",
        )

    def _remember(self, found: Solution, along: np.ndarray | None = None) -> None:
        """Keep what was found; the leading vector turned to point along what was expected."""
        memory, shares = self.memory, found.shares[-1]
        space, spectrum = found.improved, found.values.tolist()
        known = len(space)
        if known < self.keep and memory.spaces:  # a lean step saw one: carry the others on
            space = torch.cat([space, memory.spaces[-1][known:]])
            spectrum += memory.spectra[-1][known:]
        memory.spaces = [*memory.spaces, space][-2:]
        memory.spectra = [*memory.spectra, spectrum][-2:]
        memory.error, memory.calm = float(found.errors[0]) - found.beyond, 0
        memory.beyond = found.beyond
        *past, square = shares
        ahead = sum(past[-1:]) if along is None else np.dot(past, along)
        side = -1.0 if ahead < 0 else 1.0
        memory.push(side * space[0], spectrum[0], [*(side * share for share in past), square])

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed run needs to go on warm, in plain types and tensors.

        The tensors are the follower's own: it never writes into them.
        """
        self.catch_up()
        return self.memory.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.memory, self._left = Memory.of(state, self.like), None
