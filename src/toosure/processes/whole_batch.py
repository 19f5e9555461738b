"""BatchNorm and dropout on a share of the rows, computed as if the whole batch were here."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm

from toosure.processes.collectives import sum_for_parts
from toosure.processes.group import Processes


def whole_batch_layers(model: nn.Module) -> list[nn.Module]:
    """Return the layers that depend on the whole batch; raise on those that cannot be spread."""
    for layer in model.modules():
        moving = isinstance(layer, _InstanceNorm) and layer.track_running_stats
        if moving or isinstance(layer, nn.AlphaDropout | nn.FeatureAlphaDropout):
            raise ValueError(
                f"{type(layer).__name__} cannot be spread over several processes: its draws or "
                "running statistics would differ between them; train in one process"
            )

        if isinstance(layer, _BatchNorm) and layer.running_mean is None:
            raise ValueError(
                f"{type(layer).__name__} without running statistics cannot be spread over several "
                "processes: each would evaluate by the statistics of its part; set "
                "track_running_stats=True, or train in one process"
            )

    return [layer for layer in model.modules() if isinstance(layer, _BatchNorm | _DropoutNd)]


@contextmanager
def as_whole_batch(layers: Sequence[nn.Module], n: int, processes: Processes) -> Iterator[None]:
    """Make the layers work as if all n rows were here; their types and state stay the same."""
    # Another library may have replaced a layer's `forward`: it is restored afterwards.
    replaced = [vars(layer).get("forward") for layer in layers]
    for layer in layers:
        if isinstance(layer, _BatchNorm):
            layer.forward = partial(batch_norm, layer, processes)  # type: ignore[method-assign]
        elif isinstance(layer, _DropoutNd):
            layer.forward = partial(dropout, layer, n, processes)

    try:
        yield
    finally:
        for layer, forward in zip(layers, replaced, strict=True):
            del layer.forward
            if forward is not None:
                layer.forward = forward


def batch_norm(layer: _BatchNorm, processes: Processes, x: Tensor) -> Tensor:
    """Normalise by mean and variance over all processes, differentiable twice.

    There is one exchange: every process gives its count, means and sums of squares about them, and
    the variance of the whole is n var = sum_r M_r + n_r (mean_r - mean)^2 (Chan et al. 1979).
    """
    if not layer.training and layer.running_mean is not None:
        outputs: Tensor = type(layer).forward(layer, x)
        return outputs

    layer._check_input_dim(x)
    dims = [0, *range(2, x.ndim)]
    shape = [1, -1, *[1] * (x.ndim - 2)]
    wide = x.to(torch.promote_types(x.dtype, torch.float32))

    # The statistics of this process's rows.
    count = wide.numel() // wide.shape[1]
    mean = wide.sum(dims) / max(1, count)
    squares = (wide - mean.view(shape)).square().sum(dims)
    own = torch.stack([torch.full_like(mean, count), mean, squares])  # (3, C)

    # Each process fills its own row of a table, so that a sum gathers all rows.
    empty = torch.zeros_like(own)
    table = torch.stack([own if r == processes.rank else empty for r in range(processes.count)])
    counts, means, squares = sum_for_parts(table, processes).unbind(1)  # (processes, C)

    n = counts.sum(0)
    mean = (counts * means).sum(0) / n
    variance = (squares + counts * (means - mean).square()).sum(0) / n
    if layer.training and layer.track_running_stats:
        unbiased = variance * n / (n - 1).clamp(min=1)
        update_running_statistics(layer, mean, unbiased)

    out = (wide - mean.view(shape)) * (variance + layer.eps).rsqrt().view(shape)
    if layer.weight is not None:
        out = out * layer.weight.view(shape) + layer.bias.view(shape)
    return out.to(x.dtype)


@torch.no_grad()
def update_running_statistics(layer: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    """Update the running mean and variance by a batch, as torch does."""
    assert layer.num_batches_tracked is not None
    layer.num_batches_tracked.add_(1)
    share: float | Tensor
    if layer.momentum is not None:
        share = layer.momentum
    else:  # the average of all batches so far
        share = 1 / layer.num_batches_tracked.to(mean.dtype)
    for running, new in ((layer.running_mean, mean), (layer.running_var, variance)):
        assert running is not None
        running.copy_((1 - share) * running + share * forward_ad.unpack_dual(new).primal)


def dropout(layer: _DropoutNd, n: int, processes: Processes, x: Tensor) -> Tensor:
    """Drop what a single process would: draw the mask for all n examples, and take own rows."""
    forward = type(layer).forward
    if not layer.training or layer.p == 0:
        outputs: Tensor = forward(layer, x)
        return outputs

    own_rows = processes.rows(n)
    examples = own_rows.stop - own_rows.start
    rows_per_example = len(x) // examples if examples else 1  # more than one for tokens, say
    if examples * rows_per_example != len(x):
        raise ValueError(
            f"{type(layer).__name__} sees {len(x)} rows for {examples} examples: in several "
            "processes an example must keep a fixed number of rows, in order"
        )
    mask: Tensor = forward(layer, x.new_ones(n * rows_per_example, *x.shape[1:]))
    return x * mask[own_rows.start * rows_per_example : own_rows.stop * rows_per_example]
