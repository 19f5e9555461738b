"""The step of bSAM: momentum, mean and scale of every weight."""

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from toosure.optim.passes import dense_gradient
from toosure.optim.traits import Traits
from toosure.processes.dtensor import local_shards


class MeanAndScale(Traits, Optimizer):
    """Update BSAM's momentum, mean and scale from the averaged h (`p.grad`) and sqrt(s) |g|."""

    cuda_graph_varying_lr: ClassVar[bool | str | None] = True

    def __init__(self, params: ParamsT, **settings: object) -> None:
        self.curvature: dict[Tensor, Tensor] = {}  # sqrt(s) |g|, set before each step
        super().__init__(params, settings)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        for p in self.param_groups[-1]["params"]:
            zeros = torch.zeros_like(p, dtype=state_dtype(p))
            self.state[p] = {"momentum": zeros, "scale": zeros + 1}

    @torch.no_grad()
    def step(self, closure: object = None) -> Any:
        """Take the step; the closure is not used."""
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None and p in self.curvature]
            if params:  # foreach calls refuse empty lists
                self._step_group(group, params)
        self.curvature = {}

    def _step_group(self, group: dict[str, Any], params: list[Tensor]) -> None:
        """Step the parameters of a group; each process its own shards."""
        momenta = local_shards([self.state[p]["momentum"] for p in params])
        scales = local_shards([self.state[p]["scale"] for p in params])
        gradients = [
            g.to(state_dtype(g)) for g in local_shards([dense_gradient(p) for p in params])
        ]
        weights = local_shards(params)

        beta1, beta2 = group["betas"]
        delta = group["prior_precision"] / group["data_size"]
        decayed = torch._foreach_mul([w.to(state_dtype(w)) for w in weights], delta)
        torch._foreach_add_(decayed, gradients)
        torch._foreach_mul_(momenta, beta1)
        torch._foreach_add_(momenta, decayed, alpha=1 - beta1)

        steps = torch._foreach_div(momenta, scales)  # by the old scales
        torch._foreach_mul_(steps, group["lr"])  # a tensor in a CUDA graph
        torch._foreach_sub_(weights, steps)

        curvatures = torch._foreach_add(
            [self.curvature[p] for p in params], group["damping"] + delta
        )
        torch._foreach_mul_(scales, beta2)
        torch._foreach_add_(scales, curvatures, alpha=1 - beta2)


def state_dtype(p: Tensor) -> torch.dtype:
    """Return float32 or better: in bfloat16 0.999 s rounds to s, and s would never change."""
    return torch.promote_types(p.dtype, torch.float32)
