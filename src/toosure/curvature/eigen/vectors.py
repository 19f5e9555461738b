"""Blocks of long vectors: random ones, inner products, small matrices moved to their device."""

import numpy as np
import torch
from torch import Tensor

MAX_STAGED_BYTES = 2**16  # CUDA copies this much from pageable memory without waiting
PIECE = 512  # terms of an inner product that are summed in the type of the vectors


def random_vectors(count: int, like: Tensor, seed: int = 0) -> Tensor:
    """Draw seeded normal vectors (count, P), the same on every process and device."""
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(count, like.shape[-1], generator=generator, dtype=torch.float32)
    return vectors.to(like.device, like.dtype)


def on_device(array: np.ndarray, like: Tensor) -> Tensor:
    """Move a small matrix to the device and type of some vectors, without waiting for it."""
    kind = np.float64 if like.dtype == torch.float64 else np.float32
    tensor = torch.from_numpy(array.astype(kind))
    if like.is_cuda and tensor.nbytes > MAX_STAGED_BYTES:
        tensor = tensor.pin_memory()
    return tensor.to(like.device, non_blocking=True)


def overlaps(vectors: Tensor, others: Tensor | None = None) -> Tensor:
    """Compute V W^T (or V V^T) in float64 from short sums in the vectors' own type.

    A plain float32 product of a million terms has a rounding of 1e-5, too much to decide which
    vectors are dependent. Sums of short pieces are exact enough, and few enough to be added in
    float64: this gives 1e-8 at the same price. On a GPU, where a product of a few long rows keeps
    only one of many processors busy, it is even faster.
    """
    others = vectors if others is None else others
    whole = vectors.shape[1] // PIECE * PIECE
    left, right = (
        v[:, :whole].unflatten(1, (-1, PIECE)).transpose(0, 1) for v in (vectors, others)
    )
    sums: Tensor = (left @ right.mT).sum(0, dtype=torch.float64)
    if whole == vectors.shape[1]:
        return sums
    rest = vectors[:, None, whole:] * others[None, :, whole:]
    return sums + rest.sum(-1, dtype=torch.float64)
