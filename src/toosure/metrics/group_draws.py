"""Groups of rows (sequences, images, people), drawn whole: their numbers, sums and replicas."""

import math
from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from toosure.metrics.conversion import is_missing
from toosure.metrics.inputs import ArrayLike
from toosure.metrics.resampler import Resampler
from toosure.quantiles import normal_quantile, student_quantile

MAX_DRAWN = 1 << 22  # group counts drawn at a time
ONE_GROUP = "all rows are of one group: an interval over groups needs at least two"


def group_numbers(groups: ArrayLike | None, n: int) -> Tensor:
    """Number the groups from 0 to G - 1: names or numbers (n,) become int64 (n,)."""
    if groups is None:
        raise ValueError("groups are missing: give the sequence, image or person of each row, (N,)")
    array = groups.detach().cpu().numpy() if isinstance(groups, Tensor) else np.asarray(groups)
    if array.shape != (n,):
        raise ValueError(f"groups must have shape ({n},), one per row; got {array.shape}")

    missing = np.zeros(n, dtype=bool)
    if array.dtype == object:
        missing[:] = [is_missing(name) for name in array.tolist()]
    else:
        missing[:] = array != array  # NaN differs from itself
    if missing.any():
        row = int(np.flatnonzero(missing)[0])
        raise ValueError(f"groups name no group in row {row}: drop such rows, or fill them")
    names, index = np.unique(array, return_inverse=True)
    if len(names) < 2:
        raise ValueError(ONE_GROUP)
    return torch.from_numpy(index.astype(np.int64).reshape(-1))


def group_count(groups: Tensor) -> int:
    """Return the number of groups, from the group number of each row."""
    return int(groups.max()) + 1


def group_sums(values: Tensor, groups: Tensor) -> Tensor:
    """Return the sum of rows (N, K) over each group, (G, K) float64, on the CPU."""
    values = values.detach().double().cpu()
    total = torch.zeros(group_count(groups), values.shape[1], dtype=torch.float64)
    return total.index_add_(0, groups.cpu(), values)


def resampled_sums(per_group: Tensor, seed: int, samples: int) -> Tensor:
    """Draw G of G groups with replacement, and return the sums of each replica, (samples, K)."""
    counts = Resampler(seed, samples).row_counts(len(per_group))
    replicas = max(1, MAX_DRAWN // len(per_group))  # in each block, so that memory stays bounded
    sums = []
    while block := list(islice(counts, replicas)):
        sums.append(torch.from_numpy(np.stack(block)).double() @ per_group)
    return torch.cat(sums)


def resampled_rows(groups: Tensor, seed: int, samples: int) -> Iterator[Tensor]:
    """Yield the row numbers of each replica: all rows of the groups drawn."""
    order = groups.argsort(stable=True)
    members = order.split(torch.bincount(groups).tolist())
    for drawn in Resampler(seed, samples).torch_rows(len(members)):
        yield torch.cat([members[g] for g in drawn.tolist()])


def small_sample_factor(count: int, level: float) -> float:
    """Return the factor by which replicas of few groups vary too little: sqrt(G / (G - 1)) t / z.

    Groups (or rows) resampled from G vary less than new groups would, and their spread is itself an
    estimate. So Student's quantile with G - 1 degrees of freedom replaces the normal one.
    """
    if count < 2:
        raise ValueError(ONE_GROUP)
    tail = 0.5 + level / 2
    ratio = student_quantile(tail, count - 1) / normal_quantile(tail)
    return ratio * math.sqrt(count / (count - 1))
