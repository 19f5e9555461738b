"""Muon for whole models: orthogonalised steps for hidden matrices, AdamW for the rest."""

import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.optimizer import ParamsT

from toosure.metrics.inputs import check_count
from toosure.optim.passes import dense_gradient
from toosure.optim.traits import Traits
from toosure.optim.validators import (
    Validator,
    check_decay,
    check_not_negative,
    check_settings,
    refuse_unknown_arguments,
)
from toosure.optim.wrapper import step_without_hooks
from toosure.processes.dtensor import is_sharded, placed_like

Parameter = Tensor | tuple[str, Tensor]  # as parameters() or named_parameters() gives it

VALIDATORS: dict[str, Validator] = {
    "lr": check_not_negative,
    "momentum": check_decay,
    "betas": check_decay,
    "weight_decay": check_not_negative,
    "ns_steps": check_count,
}


def newton_schulz(matrix: Tensor, steps: int = 5, fp32: bool = False) -> Tensor:
    """Return a matrix with the singular vectors of `matrix` and singular values near one.

    Formula: X <- a X + (b A + c A^2) X with A = X X^T, from X = matrix / ||matrix||_F, and
    (a, b, c) = (3.4445, -4.7750, 2.0315), which leaves the values in about [0.7, 1.2].
    Reference: Jordan et al., 2024, kellerjordan.github.io/posts/muon. In bfloat16 as published,
    bit for bit what torch.optim.Muon does; `fp32` keeps float32 (or the matrix's float64).

    >>> matrix = torch.diag(torch.tensor([3.0, 1.0]))
    >>> singular = torch.linalg.svdvals(newton_schulz(matrix, fp32=True))
    >>> bool((singular > 0.6).all() and (singular < 1.3).all())
    True
    """
    wide = torch.promote_types(matrix.dtype, torch.float32)
    x = matrix.to(wide if fp32 else torch.bfloat16)
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.T

    x = x / x.norm().clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(
            x, torch.addmm(gram, gram, gram, beta=-4.7750, alpha=2.0315), x, beta=3.4445
        )

    return x.T if tall else x


class Muon(Traits, Optimizer):
    """Step hidden matrices by the orthogonalised momentum, the rest by AdamW.

    Formula: B <- B + (1 - momentum)(G - B), U = newton_schulz(G + momentum (B - G)) (Nesterov),
    W <- (1 - lr * weight_decay) W - lr * sqrt(max(1, rows / columns)) * U.
    Reference: Jordan et al., 2024, kellerjordan.github.io/posts/muon; as torch.optim.Muon, which
    takes only 2-D tensors. Here a convolution is flattened to (out, in * height * width).

    Give it the model, or its parameters in order: every tensor of two or more dimensions and rows
    but the last (the head) is a hidden matrix; the rest is AdamW's. Groups may say
    `muon=True` or `False` themselves (an embedding belongs to AdamW). It serves as a base:
    `SAM(model, base=Muon, rho=0.05, lr=0.02)`. `fp32` orthogonalises in float32.
    `input_layer=False` leaves the first matrix, which reads the inputs, to AdamW too.

    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> optimizer = Muon(model, lr=0.02)
    >>> [(group["muon"], group["lr"], len(group["params"])) for group in optimizer.param_groups]
    [(True, 0.02, 1), (False, 0.0003, 3)]
    """

    cuda_graph_varying_lr: ClassVar[bool | str | None] = "reads its learning rate on the host"
    splits_matrices: ClassVar[bool] = True

    @refuse_unknown_arguments
    def __init__(
        self,
        params: nn.Module | ParamsT,
        lr: float = 0.02,
        *,
        momentum: float = 0.95,
        nesterov: bool = True,
        weight_decay: float = 0.0,
        ns_steps: int = 5,
        fp32: bool = False,
        adamw_lr: float = 3e-4,
        adamw_betas: tuple[float, float] = (0.9, 0.999),
        adamw_eps: float = 1e-8,
        adamw_weight_decay: float = 0.0,
        input_layer: bool = True,
    ) -> None:
        check_settings(VALIDATORS, {"lr": lr, "momentum": momentum, "ns_steps": ns_steps})
        self.muon: dict[str, Any] = {
            "lr": lr,
            "momentum": momentum,
            "nesterov": nesterov,
            "fp32": fp32,
            "weight_decay": weight_decay,
            "ns_steps": ns_steps,
        }
        self.adamw: dict[str, Any] = {
            "lr": adamw_lr,
            "betas": adamw_betas,
            "eps": adamw_eps,
            "weight_decay": adamw_weight_decay,
        }
        self.rest: AdamW | None = None  # steps the groups that are not matrices

        # OneCycleLR and CyclicLR look for a momentum among the defaults.
        groups = hidden_and_rest(params)
        if not input_layer:
            groups = with_first_matrix_in_adamw(groups)
        super().__init__(groups, {"momentum": momentum})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of hidden matrices (`muon=True`) or of AdamW's (`muon=False`)."""
        if "muon" not in param_group:
            raise ValueError("a group for Muon must say muon=True (hidden matrices) or muon=False")
        defaults = self.muon if param_group["muon"] else _adamw_defaults(self.adamw)
        check_settings(VALIDATORS, {**defaults, **param_group})
        super().add_param_group({**defaults, **param_group})

        flat = [p for p in self.param_groups[-1]["params"] if p.ndim < 2]
        if param_group["muon"] and flat:
            self.param_groups.pop()
            raise ValueError(f"Muon orthogonalises matrices; got shape {tuple(flat[0].shape)}")
        self._share_with_adamw()

    def _share_with_adamw(self) -> None:
        """Let AdamW work on this optimizer's groups and state."""
        groups = [group for group in self.param_groups if not group["muon"]]
        if groups and self.rest is None:
            self.rest = AdamW([torch.zeros(1)])
        if self.rest is not None:
            self.rest.__setstate__({"state": self.state, "param_groups": groups})

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "muon": self.muon, "adamw": self.adamw, "rest": self.rest}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._share_with_adamw()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step once; return the closure's loss, if one is given."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()

        for group in self.param_groups:
            # CyclicLR and OneCycleLR write a momentum, which is AdamW's first beta.
            if not group["muon"] and "max_momentum" in group:
                group["betas"] = (group["momentum"], group["betas"][1])
            for p in (p for p in group["params"] if p.grad is not None):
                gradient = dense_gradient(p)
                if group["muon"]:
                    self._step_matrix(p, gradient.flatten(1), group)

        if self.rest is not None:
            step_without_hooks(self.rest)
        return loss

    def _step_matrix(self, p: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        """Step one matrix; its gradient is flat, (out, in * height * width)."""
        state = self.state[p]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        average = state["momentum_buffer"]

        average.lerp_(gradient, 1 - group["momentum"])
        update = gradient.lerp(average, group["momentum"]) if group["nesterov"] else average
        update = orthogonalised(update, group["ns_steps"], group["fp32"])

        stretch = math.sqrt(max(1, gradient.shape[0] / gradient.shape[1]))
        p.mul_(1 - group["lr"] * group["weight_decay"])
        p.add_(update.reshape(p.shape), alpha=-group["lr"] * stretch)


def orthogonalised(update: Tensor, steps: int, fp32: bool) -> Tensor:
    """Return Newton-Schulz of an update; of a sharded one, as a tensor that is sharded alike.

    Every process gathers the whole matrix, in the precision of the iteration, works on it as the
    others do, and takes its own shard: one all-gather per matrix, and no arithmetic saved.
    """
    if not is_sharded(update):
        return newton_schulz(update, steps, fp32)

    matrix = update if fp32 else update.bfloat16()
    assert is_sharded(matrix)
    whole = matrix.full_tensor()
    return placed_like(newton_schulz(whole, steps, fp32).contiguous(), update)


def _adamw_defaults(settings: dict[str, Any]) -> dict[str, Any]:
    """Return every key that this version of torch's AdamW expects in a group."""
    return {**AdamW([torch.zeros(1)], **settings).defaults}


def hidden_and_rest(
    params: nn.Module | ParamsT, more: Iterable[Parameter] = ()
) -> list[dict[str, Any]]:
    """Sort parameters into hidden matrices and the rest; keep groups as they are.

    The head is the last matrix of `params`, whatever `more` (an objective's own) follows. A tensor
    of one row, as a class token or a table of positions, counts as no matrix.
    """
    entries: list[Any] = list(
        params.named_parameters() if isinstance(params, nn.Module) else params
    )
    if entries and isinstance(entries[0], dict):
        return entries

    heads = [p for p in map(_tensor, entries) if p.ndim >= 2][-1:]
    hidden: dict[str, Any] = {"params": [], "muon": True}
    rest: dict[str, Any] = {"params": [], "muon": False}
    for entry in (*entries, *more):
        p = _tensor(entry)
        is_hidden = p.ndim >= 2 and p.shape[0] > 1 and all(p is not head for head in heads)
        (hidden if is_hidden else rest)["params"].append(entry)
    return [group for group in (hidden, rest) if group["params"]] or [rest]


def with_first_matrix_in_adamw(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Move the first hidden matrix to AdamW's group, or to a new one if there is none."""
    hidden = next((group for group in groups if group.get("muon")), None)
    if hidden is None:
        return groups

    first, *others = hidden["params"]
    rest = next((group for group in groups if not group.get("muon")), None)
    if rest is None:
        rest = {"params": [], "muon": False}
        groups = [*groups, rest]
    rest["params"] = [first, *rest["params"]]
    hidden["params"] = others
    return [group for group in groups if group["params"]]


def _tensor(entry: Parameter) -> Tensor:
    return entry[1] if isinstance(entry, tuple) else entry
