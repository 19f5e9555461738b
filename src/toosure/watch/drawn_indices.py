"""Choose the examples to measure: stratified by class, from what the loader can reach."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
)

from toosure.batches.reader import LabelsOf, label_key

EVERY_EXAMPLE = (SequentialSampler, RandomSampler, DistributedSampler)


def indices_of(loader: "DataLoader[Any] | None", source: Any) -> Sequence[int] | None:
    """Return the indices that a loader can reach; None if only the loader knows them."""
    by_index = hasattr(source, "__getitem__") and hasattr(source, "__len__")
    if not by_index or isinstance(source, IterableDataset):
        return None
    if loader is None:
        return range(len(source))
    sampler = sampler_of(loader)
    if isinstance(sampler, SubsetRandomSampler):
        return sampler.indices
    return range(len(source)) if isinstance(sampler, EVERY_EXAMPLE) else None


def sampler_of(loader: "DataLoader[Any]") -> object:
    """Return the sampler of a loader; None if it is not known.

    Accelerate gives each process a share of the sampler's batches; the whole sampler is returned.
    """
    batches: Any = loader.batch_sampler
    if loader.batch_size is None and type(batches).__name__ != "BatchSamplerShard":
        return None
    inner = getattr(batches, "batch_sampler", batches)
    return getattr(inner, "sampler", loader.sampler)


def known_labels(source: Any, key: LabelsOf) -> Tensor | None:
    """Return the labels of a data set, (N,); None if they need reading every example."""
    if hasattr(source, "indices") and hasattr(source, "dataset"):  # a Subset
        whole = known_labels(source.dataset, key)
        return None if whole is None else whole[torch.as_tensor(source.indices)]

    values = None
    if isinstance(source, TensorDataset):
        values = source.tensors[-1]
    elif hasattr(source, "column_names"):  # of the library datasets
        columns = dict.fromkeys(source.column_names)
        column = key if isinstance(key, str) else label_key(columns)
        values = None if column not in columns else source[column][:]
    else:
        names = ("targets", "labels", "y")
        values = next((getattr(source, n) for n in names if hasattr(source, n)), None)

    if not isinstance(values, Tensor | np.ndarray | list | tuple):
        return None
    try:
        labels = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        return None
    return labels if labels.shape == (len(source),) else None


def chosen_rows(count: int, wanted: int, labels: Tensor | None, seed: int) -> tuple[Tensor, bool]:
    """Draw rows in random order; stratify by class if labels are known, and return whether.

    >>> rows, stratified = chosen_rows(100, 10, torch.arange(100) % 5, seed=0)
    >>> (torch.arange(100) % 5)[rows].bincount(), stratified
    (tensor([2, 2, 2, 2, 2]), True)
    """
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    if wanted >= count:
        return torch.arange(count), False
    if labels is None or labels.ndim != 1:
        return order[:wanted], False

    # Each class gets its share, rounded down; the largest remainders get one more.
    _, classes, sizes = labels[order].unique(return_inverse=True, return_counts=True)
    shares = sizes.double() * wanted / count
    quotas = shares.floor().long()
    missing = wanted - int(quotas.sum())
    quotas[(shares - quotas).argsort(descending=True, stable=True)[:missing]] += 1

    # The rank of each row within its class, in the random order.
    by_class = classes.argsort(stable=True)
    starts = sizes.cumsum(0) - sizes
    places = torch.empty_like(by_class)
    places[by_class] = torch.arange(count) - starts[classes[by_class]]
    return order[places < quotas[classes]], True
