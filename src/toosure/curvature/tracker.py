"""Curvature along training: measured at every step you ask, warm from the step before."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Literal

import numpy as np
from torch import Tensor, nn

from toosure.curvature.eigen.eager_basis import EagerBasis
from toosure.curvature.eigen.solver import solve
from toosure.curvature.eigen.vectors import random_vectors
from toosure.curvature.eigen.warm_eigenpair import WarmEigenpair
from toosure.curvature.jacobian import jacobian_norms
from toosure.curvature.operators import operator_for
from toosure.curvature.products.loss_curvature import LossCurvature, Matrix
from toosure.curvature.products.loss_hessian import LossLike
from toosure.curvature.products.precision import exact_float32
from toosure.curvature.result import Eigenpairs, Result, check_rtol
from toosure.curvature.sharpness import as_eigenpairs
from toosure.curvature.stochastic import batch_sharpness, gni, trace
from toosure.curvature.subspace_search import PROBE_BUDGET, SubspaceSearch, choose_rank
from toosure.curvature.top_block import TopBlock
from toosure.metrics.inputs import check_count

EIGENVALUES: dict[str, tuple[Matrix, float]] = {
    "gn_sharpness": ("gn", 1.0),
    "hessian_sharpness": ("hessian", 1.0),
    "kappa_min": ("hessian", -1.0),
}
SAMPLED: dict[str, Callable[..., Result]] = {
    "batch_sharpness": batch_sharpness,
    "gni": gni,
    "trace": trace,
}
QUANTITIES = (*EIGENVALUES, *SAMPLED, "jacobian_norm")


class CurvatureTracker:
    """Measure curvature of a model on fixed data again and again while it trains.

    Extreme eigenvalues are followed from step to step (see `eigen/warm_eigenpair.py`), so that a
    measurement costs one to six products instead of a hundred. Each comes with an estimated error.
    If the error is above `rtol`, `converged` is False and `note` says why.

    When one eigenvalue crosses another, the tracker goes on with the larger one: it follows the
    largest value, not a vector. While the two are within 5 % of each other it solves for the
    leading four (with CUDA graphs six) at every measurement and takes the largest. A probe from a
    random start finds eigenvalues with other vectors, every `probe_every` measurements and whenever
    the value jumps by half.

    If a dense first layer sees the inputs, the Gauss-Newton matrix is searched in `input_rank` of
    their directions and judged in the whole space (see `subspace_search.py`): "auto" does so for
    wide inputs, None never. Batch sharpness, GNI and the trace are sampled to a standard error of
    `sampled_rtol`; None is the default of each. Other options go to `LossCurvature`: `parameters`,
    `chunk`, `mode`, `group`, `replay`.

    >>> import torch
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

        self.curvature = LossCurvature(model, data, loss, **options)
        self.quantities = quantities
        self.rtol = rtol
        self._budget = budget
        self._batch = batch
        self._sampled_rtol = sampled_rtol
        self._seed = seed
        self._steps = 0
        self._make_pair = partial(
            WarmEigenpair,
            rtol=rtol,
            budget=budget,
            probe_every=probe_every,
            probe_budget=PROBE_BUDGET,
            seed=seed,
        )

        wants_rank = "gn_sharpness" in quantities
        self._start_pairs(choose_rank(self.curvature, input_rank) if wants_rank else None)
        self._top_vectors: dict[tuple[Matrix, int], Tensor] = {}

    def _start_pairs(self, rank: int | None) -> None:
        """Make a cold eigenpair for every extreme eigenvalue that is followed."""
        self._search: SubspaceSearch | None = None
        self._pairs: dict[str, WarmEigenpair] = {}
        for quantity in self.quantities:
            if quantity == "gn_sharpness" and rank:
                self._search = SubspaceSearch(self.curvature, rank, self._make_pair, self._seed)
                self._pairs[quantity] = self._search.pair
            elif quantity in EIGENVALUES:
                matrix, sign = EIGENVALUES[quantity]
                operator = operator_for(self.curvature, matrix, sign)
                like = self.curvature.vector_like
                self._pairs[quantity] = self._make_pair(operator, like, sign=sign)

    @property
    def uses_graphs(self) -> bool:
        """Whether passes are replayed as CUDA graphs."""
        return self.curvature.graphs.enabled

    def measure(self) -> dict[str, Result]:
        """Measure every quantity at the model's present parameters."""
        self._steps += 1
        with self._mode_and_precision(), self.curvature.measurement():
            if self.uses_graphs:
                self.curvature.refresh_pass()  # the GPU works on it while the host prepares
            return {quantity: self._measure(quantity) for quantity in self.quantities}

    def _mode_and_precision(self) -> AbstractContextManager[None]:
        """Set the model's mode and exact arithmetic, most of which graphs contain already."""
        return exact_float32() if self.uses_graphs else self.curvature.temporary_mode()

    def _measure(self, quantity: str) -> Result:
        """Measure one quantity: follow an eigenvalue, or sample."""
        if quantity == "gn_sharpness" and self._search is not None:
            return self._search.measure(self._steps)
        if quantity in EIGENVALUES:
            return self._pairs[quantity].measure()
        if quantity == "jacobian_norm":
            return self._largest_jacobian_norm()
        return self._sample(quantity)

    def _largest_jacobian_norm(self) -> Result:
        """Measure C_J, the largest of all samples' Jacobian norms."""
        curvature = self.curvature
        norms = jacobian_norms(curvature.model, curvature.inputs, parameters=curvature.names)
        value = curvature.reduce_max(norms.value.max())
        return Result(value, 0.0, products=norms.products, converged=math.isfinite(value))

    def _sample(self, quantity: str) -> Result:
        """Measure a sampled quantity, with other batches or vectors at every step."""
        curvature = self.curvature
        options: dict[str, Any] = {
            "seed": self._seed + self._steps,
            "parameters": curvature.names,
            "mode": curvature.mode,
            "chunk": curvature.chunk,
            "group": curvature.group,
        }

        if quantity != "trace":
            options["batch"] = self._batch
        if self._sampled_rtol is not None:
            options["rtol"] = self._sampled_rtol
        data = (curvature.inputs, curvature.labels)
        return SAMPLED[quantity](curvature.model, data, curvature.loss, **options)

    def logits(self) -> Tensor:
        """Return the model's outputs on this process's samples, (n, C), without a graph.

        If all data fit into one pass, the next `measure()` uses the same pass.
        """
        return self.curvature.logits()

    def release(self) -> None:
        """Free the memory of the cached forward pass and of captured graphs."""
        self.curvature.release()

    def backward(self) -> Tensor:
        """Add the gradient of the mean loss to `.grad` and return the loss.

        For full-batch training: it replaces `loss(model(x), y).backward()`, and the next
        `measure()` uses the same forward pass.
        """
        value, gradient = self.curvature.gradient()
        parameters = self.curvature.originals
        for parameter, block in zip(parameters, self.curvature.split(gradient), strict=True):
            block = block.to(parameter.dtype)
            parameter.grad = block.clone() if parameter.grad is None else parameter.grad + block
        return value

    def top(self, matrix: Matrix = "hessian", k: int = 1, rounds: int | None = None) -> Eigenpairs:
        """Find the k leading eigenpairs now, starting from the ones of the last call.

        They are solved to `rtol`. With `rounds`, a fixed number of block iterations updates them
        instead (see `eigen/block_iteration.py`), which is cheaper on a GPU at every step.
        """
        known = self._top_vectors.get((matrix, k))
        if rounds is not None:
            return self._top_by_block_iterations(matrix, k, rounds, known)
        start = known
        if start is None:
            start = random_vectors(1, self.curvature.vector_like, self._seed)

        basis = EagerBasis(operator_for(self.curvature, matrix), start)
        solution = solve(
            basis,
            k,
            self.rtol,
            self._budget * k,
            keep=k + 2,
            warm=known is not None,
            refresh=k,
        )
        self._top_vectors[matrix, k] = solution.improved
        return as_eigenpairs(solution, k)

    def _top_by_block_iterations(
        self, matrix: Matrix, k: int, rounds: int, known: Tensor | None
    ) -> Eigenpairs:
        """Find the leading eigenpairs by block iterations."""
        check_count("rounds", rounds)
        block = TopBlock(self.curvature, matrix, k, rounds, self._seed)
        self._steps += 1
        with self.curvature.measurement():
            pairs, improved = block.solve(known, self._steps, self.rtol)
        if np.isfinite(pairs.error):
            self._top_vectors[matrix, k] = improved
        else:
            self._top_vectors.pop((matrix, k), None)
        return pairs

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a resumed run needs to start warm."""
        return {
            "size": self.curvature.size,
            "steps": self._steps,
            "rank": self._rank,
            "pairs": {q: pair.state_dict() for q, pair in self._pairs.items()},
            "top_vectors": [[matrix, k, v] for (matrix, k), v in self._top_vectors.items()],
        }

    @property
    def _rank(self) -> int | None:
        return None if self._search is None else self._search.rank

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state; raise if it belongs to another tracker."""
        size = state.get("size", self.curvature.size)
        pairs = state.get("pairs", state.get("followers", {}))  # of earlier versions
        followed = list(pairs)
        if size != self.curvature.size or followed != list(self._pairs):
            raise ValueError(
                f"a state of another tracker: it follows {followed} of {size} parameters, this one "
                f"{list(self._pairs)} of {self.curvature.size}"
            )

        self._steps = state["steps"]
        if state["rank"] != self._rank:
            self._start_pairs(state["rank"])
        for quantity, pair in self._pairs.items():
            pair.load_state_dict(pairs[quantity])
        like = self.curvature.vector_like
        vectors = state["top_vectors"] if "top_vectors" in state else state["bulk"]
        self._top_vectors = {(m, k): v.to(like.device, like.dtype) for m, k, v in vectors}
