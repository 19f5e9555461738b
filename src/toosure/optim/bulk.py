"""SGD in the bulk: project the gradient off the sharpest directions."""

import warnings
from collections.abc import Callable
from numbers import Integral
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from toosure.metrics.inputs import check_count
from toosure.optim.passes import dense_gradient
from toosure.optim.validators import check_arguments
from toosure.optim.wrapper import Wrapper
from toosure.processes.dtensor import any_sharded


class TopEigenvectors(Protocol):
    """Hold the largest eigenvalues and their vectors, flat in the order of the parameters."""

    values: Tensor  # (k,)
    vectors: Tensor  # (k, P)
    converged: bool


class Tracker(Protocol):
    """Find the top eigenvectors, as `toosure.curvature.CurvatureTracker` does.

    `top(matrix, k)` is called, and `top(matrix, k, rounds)` only where rounds are asked for.
    """

    @property
    def top(self) -> Callable[..., TopEigenvectors]: ...


class BulkSGD(Wrapper):
    """Descend only where the loss is flat: project the gradient off the top-k eigenvectors.

    Formula: w <- w - lr * (I - V V^T) g, V the top-k eigenvectors of the Hessian ("hessian") or
    Gauss-Newton matrix ("gn") at w, recomputed every `refresh` steps. `k=0` is SGD.
    Reference: Song, Ahn, Yun, ICLR 2025, arXiv:2405.16002; used in arXiv:2604.20614.

    `tracker` must follow the same parameters in the same order. Other arguments are SGD's; its
    momentum then accumulates projected gradients. A solve that did not converge warns, and
    `optimizer.converged` says so until the next one. `rounds` holds the directions by so many
    block iterations per refresh, warm from the last ones, in the place of a solve to the tracker's
    tolerance: for long runs with refresh=1. It does not warn; read `optimizer.converged`.

    >>> class Diagonal:  # the Hessian of 0.5 * (3 a^2 + b^2)
    ...     def top(self, matrix, k):
    ...         from types import SimpleNamespace
    ...         values, vectors = torch.tensor([3.0, 1.0])[:k], torch.eye(2)[:k]
    ...         return SimpleNamespace(values=values, vectors=vectors, converged=True)
    >>> weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    >>> optimizer = BulkSGD([weight], lr=0.1, k=1, tracker=Diagonal())
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = 0.5 * (torch.tensor([3.0, 1.0]) * weight**2).sum()
    ...     loss.backward()
    ...     return loss
    >>> loss = optimizer.step(closure)
    >>> weight.detach()
    tensor([ 1.0000, -1.8000])
    """

    cuda_graph: ClassVar[bool | str] = "solves for new directions on the host"
    needs_tracker: ClassVar[bool] = True
    passes_arguments_to: ClassVar[str] = "sgd"

    pickled: ClassVar[tuple[str, ...]] = ("base", "tracker", "converged", "rounds")

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        k: int = 1,
        tracker: Tracker | None = None,
        refresh: int = 1,
        matrix: Literal["hessian", "gn"] = "hessian",
        rounds: int | None = None,
        **sgd_arguments: Any,
    ) -> None:
        if matrix not in ("hessian", "gn"):
            raise ValueError(f"matrix must be 'hessian' or 'gn'; got {matrix!r}")
        check_count("refresh", refresh)
        if rounds is not None:
            check_count("rounds", rounds)
        check_arguments(type(self), torch.optim.SGD, sgd_arguments)
        self.tracker = tracker
        self.converged = True
        self.rounds = rounds

        base = torch.optim.SGD(params, lr=lr, **sgd_arguments)
        super().__init__(base, k=k, refresh=refresh, matrix=matrix, steps=0)
        self._checked_k()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to SGD; the directions span all groups together."""
        for name in ("k", "refresh", "matrix"):
            if param_group.get(name, self.defaults[name]) != self.defaults[name]:
                raise ValueError(f"{name} is one for all groups: BulkSGD(..., {name}=...)")
        super().add_param_group(param_group)

    def __getstate__(self) -> dict[str, Any]:
        # The tracker may hold the graph of its last pass, which cannot be copied.
        release = getattr(self.tracker, "release", None)
        if release is not None:
            release()
        return super().__getstate__()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step once; return the closure's loss (without a closure, use the current gradients)."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()

        group = self.param_groups[0]
        k = self._checked_k()
        if k > 0:
            if group["steps"] % group["refresh"] == 0 or self._is_outdated(k):
                self._refresh(group["matrix"], k)
            self._project()

        group["steps"] += 1
        self._step_base()
        return loss

    def _parameters(self) -> list[Tensor]:
        """Return the parameters that learn; a tracker follows none that were frozen before it."""
        return [p for group in self.param_groups for p in group["params"] if p.requires_grad]

    def _checked_k(self) -> int:
        """Return k as an int; raise if it is out of range or needs a tracker."""
        k = self.param_groups[0]["k"]
        size = sum(p.numel() for p in self._parameters())
        if not isinstance(k, Integral) or not 0 <= int(k) <= size:
            raise ValueError(f"k must be a whole number from 0 to {size} (parameters); got {k}")
        if int(k) == 0:
            return 0

        if self.tracker is None:
            raise ValueError("BulkSGD with k > 0 needs tracker=CurvatureTracker(...)")
        if any_sharded(self._parameters()):
            raise ValueError(
                "BulkSGD with k > 0 does not work on sharded (DTensor) parameters: its top "
                "eigenvectors are found from whole weights. Train with DistributedDataParallel"
            )
        return int(k)

    def _is_outdated(self, k: int) -> bool:
        """Whether k was changed or parameters were added since the directions were found."""
        return any(len(self.state.get(p, {}).get("bulk", ())) != k for p in self._parameters())

    def _refresh(self, matrix: Literal["hessian", "gn"], k: int) -> None:
        """Find the directions at these weights, and store each parameter's part in its state."""
        all_params = [p for group in self.param_groups for p in group["params"]]
        gradients = [p.grad for p in all_params]
        with torch.enable_grad():
            top = self._top_eigenvectors(matrix, k)
        for p, gradient in zip(all_params, gradients, strict=True):
            p.grad = gradient  # a tracker may run backward itself

        followed = self._parameters()
        if top.vectors.shape[1] == sum(p.numel() for p in all_params):
            followed = all_params  # some were frozen after the tracker was built
        sizes = [p.numel() for p in followed]
        if top.vectors.shape != (k, sum(sizes)):
            raise ValueError(
                f"the tracker must follow the optimizer's {sum(sizes)} parameters: expected "
                f"vectors of shape {(k, sum(sizes))}, got {tuple(top.vectors.shape)}"
            )

        for p, part in zip(followed, top.vectors.split(sizes, 1), strict=True):
            self.state[p]["bulk"] = part.to(p).reshape(k, *p.shape)

        self.converged = bool(top.converged)
        if not self.converged and self.rounds is None:
            warnings.warn(
                f"the top {k} eigenvectors of the {matrix} did not converge; this step is "
                "projected off what was found",
                stacklevel=4,
            )

    def _top_eigenvectors(self, matrix: Literal["hessian", "gn"], k: int) -> TopEigenvectors:
        """Ask the tracker for directions; a user's tracker needs `rounds` only if they are set."""
        assert self.tracker is not None
        rounds = () if self.rounds is None else (self.rounds,)
        return self.tracker.top(matrix, k, *rounds)

    def _project(self) -> None:
        """Take g - V^T (V g); a parameter without gradient counts as zero and stays so."""
        trained = [p for p in self._parameters() if p.grad is not None]
        pairs = [(dense_gradient(p), self.state[p]["bulk"]) for p in trained]
        if not pairs:
            return

        along = sum(part.reshape(len(part), -1) @ g.flatten() for g, part in pairs)  # (k,)
        for g, part in pairs:
            g.sub_(torch.tensordot(along, part, 1))
