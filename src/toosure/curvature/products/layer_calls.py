"""Layers that are linear in their parameters, and a record of their calls in a forward pass."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

LINEAR_IN_PARAMETERS = (
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.Embedding,
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.LayerNorm,
    nn.GroupNorm,
)

# For every such layer: its parameters by name, and each one's index among the parameters that are
# differentiated; None where it is frozen.
Slots = dict[str, int | None]
LayerSlots = dict[nn.Module, Slots]


@dataclass
class LayerCall:
    """One call of a layer that is linear in its parameters."""

    layer: nn.Module
    slots: Slots
    arguments: tuple[Any, ...]
    output: Tensor
    buffers: dict[str, Tensor]
    version: int  # of the output when it was recorded: an in-place operation increases it

    @property
    def was_overwritten(self) -> bool:
        """Whether an in-place operation has written into the output since."""
        return self.output._version != self.version

    def output_change(self, vector: Sequence[Tensor], detach: bool = True) -> Tensor:
        """Return the change of the output: the layer with a direction as its weights.

        `vector` holds one tensor per differentiated parameter. Frozen ones do not change.
        """
        arguments = [a.detach() if detach and torch.is_tensor(a) else a for a in self.arguments]
        swapped = dict(self.buffers)
        for name, slot in self.slots.items():
            if slot is None:
                frozen = getattr(self.layer, name)
                swapped[name] = torch.zeros_like(frozen, dtype=self.output.dtype)
            else:
                swapped[name] = vector[slot]
        change: Tensor = functional_call(self.layer, swapped, tuple(arguments))
        return change

    def output_changes(self, vectors: Sequence[Tensor], x: Tensor | None = None) -> Tensor:
        """Return `output_change` of a Linear layer for a block of directions: (n, k, out).

        `x` replaces the layer's inputs. Samples come first, so that a block is one matrix product,
        k times as wide: on a GPU this takes half the time of a batch of k products.
        """
        x = self.arguments[0].detach() if x is None else x
        weight = self.slots.get("weight")
        bias = self.slots.get("bias")
        if weight is None:
            assert bias is not None  # otherwise the layer is not recorded
            return vectors[bias].repeat(len(x), 1, 1)

        wide = vectors[weight].flatten(0, 1).T
        changes = x @ wide if bias is None else torch.addmm(vectors[bias].flatten(), x, wide)
        return changes.view(len(x), len(vectors[0]), self.output.shape[1])

    def parameter_gradients(
        self, cotangents: Tensor, x: Tensor | None = None
    ) -> Iterator[tuple[int, Tensor]]:
        """Yield the gradients of a Linear layer's parameters, with their slots.

        `cotangents` (n, k, out) belong to its output; `x` replaces its inputs.
        """
        x = self.arguments[0].detach() if x is None else x
        weight = self.slots.get("weight")
        bias = self.slots.get("bias")
        wide = cotangents.flatten(1)
        shape = cotangents.shape[1:]
        if weight is not None:
            yield weight, (wide.T @ x).unflatten(0, shape)
        if bias is not None:  # a product with ones: faster on a GPU than a sum over rows
            yield bias, (x.new_ones(1, len(x)) @ wide).view(shape)


def linear_layers(model: nn.Module, slot_of: dict[int, int], train: bool) -> LayerSlots:
    """Find the layers that are linear in their parameters, with the slots of these parameters.

    `slot_of` maps the id of a differentiated parameter to its slot. Layers without such a parameter
    are left out, and so is BatchNorm in train mode, because it couples the samples of a batch.
    """
    layers: LayerSlots = {}
    for layer in model.modules():
        if type(layer) not in LINEAR_IN_PARAMETERS or (train and _is_batchnorm(layer)):
            continue

        # A hook may prune, normalise or otherwise change what the layer computes.
        slots = {name: slot_of.get(id(p)) for name, p in layer.named_parameters()}
        hooked = layer._forward_hooks or layer._forward_pre_hooks
        if hooked or not slots.keys() <= {"weight", "bias"}:
            continue
        if any(slot is not None for slot in slots.values()):
            layers[layer] = slots
    return layers


def _is_batchnorm(layer: nn.Module) -> bool:
    return isinstance(layer, nn.modules.batchnorm._BatchNorm)


@contextmanager
def record_calls(layers: LayerSlots, copy_outputs: bool) -> Iterator[list[LayerCall]]:
    """Record every call of the given layers.

    With `copy_outputs` the model continues with copies, into which it may write in place.
    """
    calls: list[LayerCall] = []

    def record(layer: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
        buffers = dict(layer.named_buffers())
        calls.append(LayerCall(layer, layers[layer], arguments, output, buffers, output._version))
        return output.clone() if copy_outputs else output

    with ExitStack() as stack:
        for layer in layers:
            stack.callback(layer.register_forward_hook(record).remove)
        yield calls
