"""The Gauss-Newton sharpness, searched in few directions of the inputs and judged in all."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal

import torch

from toosure.curvature.eigen.eager_basis import EagerBasis
from toosure.curvature.eigen.error_estimates import TINY
from toosure.curvature.eigen.solver import solve
from toosure.curvature.eigen.vectors import random_vectors
from toosure.curvature.eigen.warm_eigenpair import WarmEigenpair
from toosure.curvature.operators import GaussNewton
from toosure.curvature.products.input_subspace import InputSubspace, first_dense_layer
from toosure.curvature.products.loss_curvature import LossCurvature
from toosure.curvature.result import Result

DEFAULT_RANK = 200  # directions of the inputs that are searched first
LOOK_OUTSIDE_EVERY = 500  # measurements between two runs in the whole space
PROBE_BUDGET = 8.0  # products of a run from a random start


def choose_rank(curvature: LossCurvature, rank: int | Literal["auto"] | None) -> int | None:
    """Return the rank to start with; None if the whole space is searched.

    "auto" takes 200 directions for wide, finite inputs of a dense first layer. A number raises
    without such a layer.
    """
    if rank is None:
        return None
    if rank != "auto":
        first_dense_layer(curvature)
        return rank

    try:
        first_dense_layer(curvature)
    except ValueError:
        return None
    if not bool(torch.isfinite(curvature.inputs).all()):
        return None
    is_wide = min(curvature.inputs.flatten(1).shape) >= 4 * DEFAULT_RANK
    return DEFAULT_RANK if is_wide else None


class SubspaceSearch:
    """Follow the Gauss-Newton sharpness in an input subspace, and widen it if it misses too much.

    `make_pair` makes the warm eigenpair of an operator, with the settings of the tracker.
    """

    def __init__(
        self,
        curvature: LossCurvature,
        rank: int,
        make_pair: Callable[..., WarmEigenpair],
        seed: int,
    ) -> None:
        self.curvature = curvature
        self.rank: int | None = rank
        self.seed = seed
        self._subspace: InputSubspace | None = InputSubspace(curvature, rank)
        self.pair = make_pair(GaussNewton(self._subspace), self._subspace.vector_like)

    def measure(self, step: int) -> Result:
        """Measure, and take more directions of the inputs while too much lies outside them."""
        result = self.pair.measure()
        while self._missed_outside(step) > self.pair.rtol / 2:
            rank = self.rank
            spent = result.products
            self._widen()
            result = self.pair.measure()
            note = f"input rank {rank} missed too much: {self.rank or 'all directions'} now"
            result = replace(result, products=spent + result.products, note=result.note or note)
        return result

    def _missed_outside(self, step: int) -> float:
        """Return the relative error due to what lies outside the directions in use.

        The residual shows it at every step. Every `LOOK_OUTSIDE_EVERY` steps a short run from a
        random start in the whole space looks for what no residual shows.
        """
        if self._subspace is None:
            return 0.0
        history = self.pair.history
        if not history.spaces or history.beyond > self.pair.rtol / 2:
            return history.beyond
        if (step - 1) % LOOK_OUTSIDE_EVERY:
            return history.beyond

        self.pair.catch_up()
        start = random_vectors(1, self.curvature.vector_like, self.seed + step)
        start = torch.cat([self._subspace.lift(history.spaces[-1][:1]), start])
        basis = EagerBasis(GaussNewton(self.curvature), start)
        solution = solve(basis, rtol=self.pair.rtol, budget=PROBE_BUDGET)
        excess = float(solution.values[0]) / max(history.values[-1], TINY) - 1
        return max(history.beyond, excess)

    def _widen(self) -> None:
        """Double the rank; beyond half of the inputs search the whole space. Keep the vectors."""
        self.pair.catch_up()
        narrow = self._subspace
        assert narrow is not None

        if 4 * narrow.rank > narrow.features:
            self._subspace = None
            self.rank = None
            carry = narrow.lift
            self.pair.operator = GaussNewton(self.curvature)
            self.pair.like = self.curvature.vector_like
        else:
            wider = InputSubspace(self.curvature, 2 * narrow.rank)
            self._subspace = wider
            self.rank = wider.rank
            carry = partial(narrow.carry_to, wider)
            self.pair.operator = GaussNewton(wider)
            self.pair.like = wider.vector_like

        history = self.pair.history
        assert history.leading is not None
        history.spaces = [carry(space) for space in history.spaces]
        history.leading = carry(history.leading)
        history.steady = 0
        history.beyond = 0.0
