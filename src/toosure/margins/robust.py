"""The type of a robust margin, and what every kind of it needs: checks, norms, passes in chunks."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from toosure.margins.margins import ArrayLike
from toosure.metrics.inputs import as_labels, check_choice, check_finite

Norm = Literal["linf", "l2"]
Kind = Literal["attacked", "linearised", "certified"]
Bound = Literal["above", "below", "exact", "neither"]


@dataclass(frozen=True)
class RobustMargin:
    r"""Hold margins at radius eps, and say on which side of inf_{|d| <= eps} m(x + d, y) they lie.

    `bound`: "above" the infimum (an attack found that point), "below" it (certified), "exact"
    (both), or "neither" (first order). No statement may use a number on a side it does not bound.
    """

    values: Tensor  # (N,), float64
    kind: Kind
    norm: Norm
    eps: float
    bound: Bound

    @property
    def is_upper_bound(self) -> bool:
        """Whether no value lies below the infimum."""
        return self.bound in ("above", "exact")

    @property
    def is_lower_bound(self) -> bool:
        """Whether no value lies above the infimum."""
        return self.bound in ("below", "exact")


def check_radius(eps: float, norm: str) -> None:
    """Raise unless `eps` and `norm` describe a ball."""
    check_choice("norm", norm, ("linf", "l2"))
    if not 0 <= eps < float("inf"):
        raise ValueError(f"eps must be a finite radius >= 0; got {eps}")


def check_chunk(chunk: int) -> None:
    """Raise unless `chunk` is a number of samples."""
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1; got {chunk}")


def check_pair(data: object) -> tuple[Tensor, Tensor]:
    """Return the inputs and labels of a pair, checked."""
    if not isinstance(data, tuple | list) or len(data) != 2:
        kind = f"{type(data).__name__} of {len(data)}" if hasattr(data, "__len__") else type(data)
        raise ValueError(f"data must be a pair (inputs, labels) of tensors; got {kind}")
    return check_data(*data)


def check_data(x: ArrayLike, y: ArrayLike) -> tuple[Tensor, Tensor]:
    """Return finite inputs and labels of the same length, or raise with what came instead."""
    x = torch.as_tensor(x)
    if not x.is_floating_point() or x.ndim < 2 or len(x) == 0:
        raise ValueError(
            "inputs must be floating point of shape (N, ...), N > 0; "
            f"got {x.dtype} {tuple(x.shape)}"
        )
    return check_finite(x, "inputs"), as_labels(y, len(x), torch.iinfo(torch.int64).max)


def device_of(model: nn.Module, x: Tensor) -> torch.device:
    """Return the device of the model; a model without parameters follows its inputs."""
    return next((p.device for p in model.parameters()), x.device)


def dtype_of(model: nn.Module, x: Tensor) -> torch.dtype:
    """Return the dtype of the model; a model without parameters follows its inputs."""
    return next((p.dtype for p in model.parameters()), x.dtype)


def float64_copy(model: nn.Module) -> nn.Module:
    """Return an eval-mode float64 copy without gradients: proofs are computed in float64."""
    attributes = (value for module in model.modules() for value in vars(module).values())

    # Weight norm and pruning keep a computed weight beside the parameters. It is not a leaf, so
    # deepcopy refuses it. The copy gets its value, and the hooks compute it again.
    computed = [v for v in attributes if isinstance(v, Tensor) and not v.is_leaf]
    copied = deepcopy(model, {id(v): v.detach().clone() for v in computed})
    return copied.double().eval().requires_grad_(False)


def over_chunks(
    rows: Callable[[Tensor, Tensor], Tensor], model: nn.Module, x: Tensor, y: Tensor, chunk: int
) -> Tensor:
    """Apply `rows(x, y)` to at most `chunk` samples at a time on the model's device; join them."""
    check_chunk(chunk)
    device = device_of(model, x)
    pieces = zip(x.split(chunk), y.split(chunk), strict=True)
    return torch.cat([rows(a.to(device), b.to(device)) for a, b in pieces])


def norm_of(x: Tensor, norm: Norm) -> Tensor:
    """Return the norm of each sample, (N,)."""
    order = float("inf") if norm == "linf" else 2
    norms: Tensor = torch.linalg.vector_norm(x.flatten(1), order, dim=1)
    return norms


def dual_norm(gradient: Tensor, norm: Norm) -> Tensor:
    """Return the dual norm of each row of (..., D): the l1 norm for linf, the l2 norm for l2."""
    norms: Tensor = torch.linalg.vector_norm(gradient, 1 if norm == "linf" else 2, dim=-1)
    return norms
