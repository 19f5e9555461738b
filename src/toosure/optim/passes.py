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
