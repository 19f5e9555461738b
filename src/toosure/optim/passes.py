"""What every two-pass optimizer needs: weights that come back, and one norm over all tensors."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def weights_restored(parameters: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Lend the weights: whatever happens inside, they are the same bits afterwards.

    They are saved and copied back (w + e - e is not w in floating point), which costs one copy.
    """
    parameters = list(parameters)
    if not parameters:  # foreach calls refuse empty lists
        yield []
        return
    saved = [torch.empty_like(p) for p in parameters]
    torch._foreach_copy_(saved, parameters)
    try:
        yield saved
    finally:
        torch._foreach_copy_(parameters, saved)


def global_norm(tensors: Sequence[Tensor]) -> Tensor:
    """Return the Euclidean norm of all tensors together, without waiting for the device.

    Half precision is summed in float32: a bfloat16 norm has three digits, a float16 one overflows.
    """
    if not tensors:
        return torch.zeros(())
    wide = torch.promote_types(tensors[0].dtype, torch.float32)
    norms = torch._foreach_norm(list(tensors), 2, wide)
    return torch.linalg.vector_norm(torch.stack([n.to(norms[0].device) for n in norms]))


def add_scaled_(
    targets: list[Tensor],
    directions: list[Tensor],
    scale: Tensor,
    factors: Sequence[Tensor | None] | None = None,
) -> None:
    """Add scale * factors * directions to the targets in place; `directions` may be overwritten.

    On a GPU, reading the 0-d `scale` would make the host wait, so the directions are scaled first;
    on the CPU it is free and spares a walk through memory.
    """
    alpha = 1.0
    if scale.device.type == "cpu":
        alpha = scale.item()
    else:
        torch._foreach_mul_(directions, scale)
    factors = factors or [None] * len(targets)
    plain = [i for i, factor in enumerate(factors) if factor is None]
    if plain:
        torch._foreach_add_(
            [targets[i] for i in plain], [directions[i] for i in plain], alpha=alpha
        )
    weighed = [(i, factor) for i, factor in enumerate(factors) if factor is not None]
    if weighed:
        torch._foreach_addcmul_(
            [targets[i] for i, _ in weighed],
            [directions[i] for i, _ in weighed],
            [factor for _, factor in weighed],
            value=alpha,
        )
