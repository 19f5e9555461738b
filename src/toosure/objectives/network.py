"""Look into any classifier: its features and head, its outputs on a split, its statistics held."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parallel import DistributedDataParallel

from toosure.margins.robust import evaluating
from toosure.metrics.inputs import at_least_float32
from toosure.processes import Sharded


def unwrapped(model: nn.Module) -> Any:
    """Return the network itself, out of torch.compile and what spreads it over devices."""
    if isinstance(model, DistributedDataParallel | nn.DataParallel | Sharded):
        return unwrapped(model.module)
    compiled = getattr(model, "_orig_mod", None)
    return unwrapped(compiled) if isinstance(compiled, nn.Module) else model


def uncompiled(model: nn.Module) -> Any:
    """Return the network without torch.compile, whose passes cannot be differentiated twice."""
    return getattr(model, "_orig_mod", model)


def head_of(model: nn.Module) -> nn.Linear:
    """Return the last linear layer: `model.head`, or the last Linear among the modules."""
    model = unwrapped(model)
    head = getattr(model, "head", None)
    if not isinstance(head, nn.Linear):
        head = next((m for m in reversed(list(model.modules())) if isinstance(m, nn.Linear)), None)
    if head is None:
        raise ValueError(
            f"{type(model).__name__} has no linear layer at its end: name one `head`, an nn.Linear"
        )
    return head


def features_and_logits(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return what the head reads, (N, D), and the logits, (N, C), from one pass.

    >>> from toosure.models import mlp
    >>> features, logits = features_and_logits(mlp(inputs=4, classes=3, width=8), torch.zeros(2, 4))
    >>> features.shape, logits.shape
    (torch.Size([2, 8]), torch.Size([2, 3]))
    """
    if isinstance(model, Sharded):
        return model.spread(partial(features_and_logits, model.module), x)
    model = network = unwrapped(model)
    if hasattr(model, "features") and isinstance(getattr(model, "head", None), nn.Linear):
        features = network.features(x)
        return features, network.head(features)
    seen = []
    hook = head_of(model).register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    try:
        logits = model(x)
    finally:
        hook.remove()
    if len(seen) != 1 or seen[0].ndim != 2:
        raise ValueError(
            f"the last Linear of {type(model).__name__} is not read once, as (N, D): give the "
            "model `features(x)` and `head`"
        )
    return seen[0], logits


def output_of(model: nn.Module, layer: str, x: Tensor) -> Tensor:
    """Return what a named layer puts out, (N, D), averaged over what is not channels.

    Of (N, C, H, W) the channels come first, of a transformer's (N, tokens, C) last.
    """
    modules = dict(unwrapped(model).named_modules())
    if layer not in modules or not layer:
        known = ", ".join(name for name in modules if name and name.count(".") == 0)
        raise ValueError(f"the model has no layer {layer!r}; it has {known}, and those inside")
    seen: list[Tensor] = []
    hook = modules[layer].register_forward_hook(lambda module, inputs, out: seen.append(out))
    try:
        unwrapped(model)(x)
    finally:
        hook.remove()
    if seen[0].ndim == 3:
        return seen[0].mean(1)
    return seen[0].flatten(2).mean(2) if seen[0].ndim > 3 else seen[0]


@torch.no_grad()
def outputs(model: nn.Module, x: Tensor, chunk: int = 1024) -> Tensor:
    """Return the logits of all inputs in evaluation mode; the model stays as it was."""
    with evaluating(model):
        return torch.cat([at_least_float32(model(part)) for part in x.split(chunk)])


@contextmanager
def statistics_still(model: nn.Module) -> Iterator[None]:
    """Inside, BatchNorm uses the batch as in training, and its running statistics do not move."""
    layers = [
        m
        for m in model.modules()
        if isinstance(m, _NormBase) and m.training and m.track_running_stats
    ]
    for layer in layers:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer in layers:
            layer.track_running_stats = True
