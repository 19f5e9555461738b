"""Curvature along training: measured at every step you ask, warm from the step before."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from toosure.curvature.eigen.eager_basis import Basis
from toosure.curvature.eigen.solver import TINY, random_vectors, solve
from toosure.curvature.eigen.warm_eigenpair import Follower
from toosure.curvature.jacobian import jacobian_norms
from toosure.curvature.operators import GaussNewton
from toosure.curvature.products.checks import check_rtol
from toosure.curvature.products.input_subspace import Restricted, first_dense_layer
from toosure.curvature.products.loss_curvature import Matrix, Problem
from toosure.curvature.products.loss_hessian import LossLike
from toosure.curvature.products.precision import plainly
from toosure.curvature.result import Eigenpairs, Result
from toosure.curvature.sharpness import as_result, operator_for
from toosure.curvature.stochastic import batch_sharpness, gni, trace
from toosure.metrics.inputs import check_count

FOLLOWED: dict[str, tuple[Matrix, float]] = {
    "gn_sharpness": ("gn", 1.0),
    "hessian_sharpness": ("hessian", 1.0),
    "kappa_min": ("hessian", -1.0),
}
SAMPLED: dict[str, Callable[..., Result]] = {
    "batch_sharpness": batch_sharpness,
    "gni": gni,
    "trace": trace,
}
QUANTITIES = (*FOLLOWED, *SAMPLED, "jacobian_norm")
RANK = 200  # directions of the inputs that are searched first
LOOK_OUTSIDE_EVERY = 500
PROBE = 8.0  # products of a run from a random start


class CurvatureTracker:
    """Measure curvature of a model on fixed data again and again while it trains.

    Sharpness is followed from step to step (see `follow.py`), so that a measurement costs one to
    six products instead of a hundred, and each comes with an estimated error; what could not be
    brought below `rtol` says so in `converged` and `note`. Where a dense first layer sees the
    inputs, the Gauss-Newton matrix is searched in `input_rank` of their directions and judged in
    the whole space (see `restrict.py`): "auto" does so for wide inputs, None never. Batch
    sharpness, GNI and the trace are sampled to a standard error of `sampled_rtol`, None being the
    default of each. Other options are those of `Problem`: `parameters`, `chunk`, `mode`, `group`,
    `replay`.

    >>> model, x, y = nn.Linear(2, 3), torch.randn(8, 2), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    >>> tracker = CurvatureTracker(model, (x, y))
    >>> sorted(tracker.measure())
    ['gn_sharpness']
    """

    def __init__(
        self,
        model: nn.Module,
        data: tuple[Tensor, Tensor],
        loss: LossLike = "ce",
        quantities: Sequence[str] = ("gn_sharpness",),
        rtol: float = 1e-3,
        *,
        input_rank: int | Literal["auto"] | None = "auto",
        budget: float = 60.0,
        probe_every: int = 50,
        batch: int = 128,
        sampled_rtol: float | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        quantities = (quantities,) if isinstance(quantities, str) else tuple(quantities)
        unknown = [q for q in quantities if q not in QUANTITIES]
        if unknown:
            raise ValueError(f"quantities must be among {QUANTITIES}; got {unknown}")
        check_rtol(rtol)
        check_count("batch", batch)
        if input_rank is not None and input_rank != "auto":
            check_count("input_rank", input_rank)
        self.problem = Problem(model, data, loss, **options)
        self.quantities, self.rtol = quantities, rtol
        self._batch, self._seed, self._steps = batch, seed, 0
        self._sampled_rtol = sampled_rtol
        self._settings: dict[str, Any] = {
            "rtol": rtol,
            "budget": budget,
            "probe_every": probe_every,
            "probe_budget": PROBE,
            "seed": seed,
        }
        self._rank = self._chosen_rank(input_rank)
        self._followers = {q: self._follower(q) for q in self.quantities if q in FOLLOWED}
        self._bulk: dict[tuple[Matrix, int], Tensor] = {}

    def _chosen_rank(self, asked: int | Literal["auto"] | None) -> int | None:
        if asked is None or "gn_sharpness" not in self.quantities:
            return None
        if asked != "auto":
            first_dense_layer(self.problem)
            return asked
        try:
            first_dense_layer(self.problem)
        except ValueError:
            return None
        if not bool(torch.isfinite(self.problem.inputs).all()):
            return None
        return RANK if min(self.problem.inputs.flatten(1).shape) >= 4 * RANK else None

    def _follower(self, quantity: str) -> Follower:
        matrix, sign = FOLLOWED[quantity]
        if quantity == "gn_sharpness" and self._rank:
            space = Restricted(self.problem, self._rank)
            return Follower(GaussNewton(space), _like(space), sign=sign, **self._settings)
        operator = operator_for(self.problem, matrix, sign)
        return Follower(operator, _like(self.problem), sign=sign, **self._settings)

    def measure(self) -> dict[str, Result]:
        """Measure every quantity at the model's present parameters."""
        self._steps += 1
        with self._prepared(), self.problem.served():
            if self.problem.replay.enabled:
                list(self.problem.chunks())  # a device works on it while the host prepares
            return {quantity: self._measure(quantity) for quantity in self.quantities}

    def _prepared(self) -> AbstractContextManager[None]:
        """The model's mode and exact arithmetic; graphs have it in them, and need little more."""
        return plainly() if self.problem.replay.enabled else self.problem.reading()

    def _measure(self, quantity: str) -> Result:
        problem = self.problem
        if quantity in FOLLOWED:
            return self._followed(self._followers[quantity])
        if quantity == "jacobian_norm":
            norms = jacobian_norms(problem.model, problem.inputs, parameters=problem.names)
            value = problem.largest(norms.value.max())
            return Result(value, 0.0, products=norms.products, converged=math.isfinite(value))
        own: dict[str, Any] = {} if quantity == "trace" else {"batch": self._batch}
        own |= {"seed": self._seed + self._steps, "parameters": problem.names}
        own |= {"mode": problem.mode, "chunk": problem.chunk}
        own |= {} if self._sampled_rtol is None else {"rtol": self._sampled_rtol}
        own |= {"group": problem.group}
        data = (problem.inputs, problem.labels)
        return SAMPLED[quantity](problem.model, data, problem.loss, **own)

    def backward(self) -> Tensor:
        """Add the gradient of the mean loss to `.grad` and return the loss.

        For full-batch training: it stands for `loss(model(x), y).backward()`, and the forward
        pass it made serves the next `measure()` too.
        """
        value, gradient = self.problem.gradient()
        for parameter, block in zip(
            self.problem.originals, self.problem.split(gradient), strict=True
        ):
            block = block.to(parameter.dtype)
            parameter.grad = block.clone() if parameter.grad is None else parameter.grad + block
        return value

    def top(self, matrix: Matrix = "hessian", k: int = 1) -> Eigenpairs:
        """The k leading eigenpairs now, started from those of the call before."""
        operator = operator_for(self.problem, matrix)
        start = random_vectors(1, _like(self.problem), self._seed)
        known = self._bulk.get((matrix, k))
        start = start if known is None else known
        budget = self._settings["budget"] * k
        options: dict[str, Any] = {"refresh": k, "keep": k + 2, "warm": known is not None}
        found = solve(Basis(operator, start), k, self.rtol, budget, **options)
        self._bulk[matrix, k] = found.improved
        return Eigenpairs(
            value=torch.from_numpy(found.values[:k]),
            error=max(found.error_of(i) for i in range(k)),
            residual=float(found.residuals.max()),
            products=found.products,
            converged=found.converged,
            note=as_result(found).note,
            vectors=found.vectors[:k],
        )

    def _followed(self, follower: Follower) -> Result:
        """Measure, in more directions of the inputs as long as too much lies outside them."""
        result = follower.measure()
        while self._missed(follower) > self.rtol / 2:
            before, spent = self._rank, result.products
            self._widen(follower)
            result = follower.measure()
            note = f"input rank {before} missed too much: {self._rank or 'all directions'} now"
            result = replace(result, products=spent + result.products, note=result.note or note)
        return result

    def _missed(self, follower: Follower) -> float:
        """The relative error due to what lies outside the directions of the inputs in use.

        The residual says so at every step; now and then a short run from a random start in the
        whole space looks for what no residual shows.
        """
        operator, memory = follower.operator, follower.memory
        if not (isinstance(operator, GaussNewton) and isinstance(operator.problem, Restricted)):
            return 0.0
        if not memory.spaces or memory.beyond > self.rtol / 2:
            return memory.beyond
        if (self._steps - 1) % LOOK_OUTSIDE_EVERY:
            return memory.beyond
        follower.catch_up()
        start = random_vectors(1, _like(self.problem), self._seed + self._steps)
        start = torch.cat([operator.problem.lift(memory.spaces[-1][:1]), start])
        basis = Basis(operator_for(self.problem, "gn"), start)
        found = solve(basis, rtol=self.rtol, budget=PROBE)
        return max(memory.beyond, float(found.values[0]) / max(memory.values[-1], TINY) - 1)

    def _widen(self, follower: Follower) -> None:
        """Double the rank, past half of the inputs to the whole, and carry the vectors over."""
        follower.catch_up()
        operator, memory = follower.operator, follower.memory
        assert isinstance(operator, GaussNewton) and isinstance(operator.problem, Restricted)
        space = operator.problem
        whole = 4 * space.rank > space.features
        wider = self.problem if whole else Restricted(self.problem, 2 * space.rank)
        self._rank = None if isinstance(wider, Problem) else wider.rank
        memory.spaces = [space.carried(s, wider) for s in memory.spaces]
        assert memory.leading is not None
        memory.leading = space.carried(memory.leading, wider)
        memory.steady, memory.beyond = 0, 0.0
        follower.operator, follower.like = GaussNewton(wider), _like(wider)

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs to go on warm."""
        return {
            "size": self.problem.size,
            "steps": self._steps,
            "rank": self._rank,
            "followers": {q: f.state_dict() for q, f in self._followers.items()},
            "bulk": [[matrix, k, v] for (matrix, k), v in self._bulk.items()],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        size, followed = state.get("size", self.problem.size), list(state.get("followers", ()))
        if size != self.problem.size or followed != list(self._followers):
            raise ValueError(
                f"a state of another tracker: it follows {followed} of {size} parameters, this one "
                f"{list(self._followers)} of {self.problem.size}"
            )
        self._steps = state["steps"]
        if state["rank"] != self._rank:
            self._rank = state["rank"]
            self._followers = {q: self._follower(q) for q in self._followers}
        for quantity, follower in self._followers.items():
            follower.load_state_dict(state["followers"][quantity])
        like = _like(self.problem)
        self._bulk = {(m, k): v.to(like.device, like.dtype) for m, k, v in state["bulk"]}


def _like(space: Problem | Restricted) -> Tensor:
    return torch.empty(0, space.size, dtype=space.dtype, device=space.device)
