"""Look into any classifier: its features and head, its outputs on a split, frozen statistics."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from toosure.eval_mode import evaluating
from toosure.metrics.inputs import at_least_float32
from toosure.processes import Sharded
from toosure.processes.wrappers import unwrapped

ROUNDING = 0.05  # of the largest logit: a network may compute in bfloat16 inside


class FeatureNetwork(Protocol):
    """A network in two parts, logits = head(features(x)), as ours are."""

    head: nn.Linear

    def features(self, x: Tensor) -> Tensor: ...


def uncompiled(model: nn.Module) -> nn.Module:
    """Return the network without torch.compile, whose passes cannot be differentiated twice."""
    return cast(nn.Module, getattr(model, "_orig_mod", model))


def head_of(model: nn.Module) -> nn.Linear:
    """Return the last linear layer: `model.head`, or the last Linear among the modules."""
    model = unwrapped(model)
    head = getattr(model, "head", None)
    if isinstance(head, nn.Linear):
        return head

    linear = [m for m in model.modules() if isinstance(m, nn.Linear)]
    if not linear:
        raise ValueError(
            f"{type(model).__name__} has no linear layer at its end: name one `head`, an nn.Linear"
        )
    return linear[-1]


def features_and_logits(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return what the head reads, (N, D), and the logits, (N, C), from one pass.

    >>> from toosure.models import mlp
    >>> features, logits = features_and_logits(mlp(inputs=4, classes=3, width=8), torch.zeros(2, 4))
    >>> features.shape, logits.shape
    (torch.Size([2, 8]), torch.Size([2, 3]))
    """
    if isinstance(model, Sharded):
        return model.spread(partial(features_and_logits, model.module), x)

    model = unwrapped(model)
    inputs_seen: list[Tensor] = []
    hook = head_of(model).register_forward_pre_hook(
        lambda module, inputs: inputs_seen.extend(inputs[:1])
    )
    try:
        logits = model(x)
    finally:
        hook.remove()

    if len(inputs_seen) == 1 and inputs_seen[0].ndim == 2:
        return inputs_seen[0], logits
    if hasattr(model, "features") and isinstance(getattr(model, "head", None), nn.Linear):
        with statistics_still(model):
            return cast(FeatureNetwork, model).features(x), logits
    raise ValueError(
        f"the last Linear of {type(model).__name__} is not read once, as (N, D): give the model "
        "`features(x)` and `head`"
    )


@torch.no_grad()
def check_head(model: nn.Module, x: Tensor, otherwise: str) -> None:
    """Raise unless the network returns what its head gives; a number added to a row is allowed."""
    network = unwrapped(model)
    head = head_of(network)
    with evaluating(network):
        features, logits = features_and_logits(network, x)
        given = head(features.to(head.weight.dtype))
    if logits.shape == given.shape[:1] and given.shape[1] == 1:  # one logit per example, as (N,)
        logits = logits[:, None]
    if given.shape == logits.shape:
        error = (logits - given).float()
        if error.shape[1] > 1:  # softmax does not see the mean of a row
            error = error - error.mean(1, keepdim=True)
        if not bool((error.abs() > ROUNDING * logits.abs().max()).any()):  # nor where it is NaN
            return
    raise ValueError(
        f"{type(network).__name__} does not return what its last linear layer gives, and this "
        f"needs the layer that gives the logits: name it `head`{otherwise}"
    )


def output_of(model: nn.Module, layer: str, x: Tensor) -> Tensor:
    """Return the output of a named layer, (N, D), averaged over all dimensions but channels.

    In (N, C, H, W) the channels come first, in a transformer's (N, tokens, C) last.
    """
    network = unwrapped(model)
    modules = dict(network.named_modules())
    if layer not in modules or not layer:
        known = ", ".join(name for name in modules if name and name.count(".") == 0)
        raise ValueError(f"the model has no layer {layer!r}; it has {known}, and those inside")

    outputs_seen: list[Tensor] = []
    hook = modules[layer].register_forward_hook(
        lambda module, inputs, output: outputs_seen.append(output)
    )
    try:
        network(x)
    finally:
        hook.remove()

    output = outputs_seen[0]
    if output.ndim == 3:
        return output.mean(1)
    return output.flatten(2).mean(2) if output.ndim > 3 else output


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
