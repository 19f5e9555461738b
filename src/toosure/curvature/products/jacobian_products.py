"""One forward pass kept, and the Jacobian products that it gives away cheaply.

A layer such as Linear, Conv or BatchNorm is linear in its own parameters, so the change of its
output under a direction V is the same layer with V in place of its weights, at the same input.
What remains of a JVP is how that change travels to the logits, which one small graph (the
gradient of the logits with respect to the layers' outputs) answers as often as asked. No weight
gradient is computed to set it up.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

LINEAR_IN_PARAMETERS = (
    *(nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Embedding),
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm, nn.GroupNorm),
)


@dataclass
class Call:
    """One call of a layer that is linear in its parameters."""

    layer: nn.Module
    slots: dict[str, int | None]  # the layer's parameter -> its place in the vector, None if frozen
    arguments: tuple[Any, ...]
    output: Tensor
    buffers: dict[str, Tensor]
    version: int  # of the output when it was recorded: an in-place operation moves it on

    def direction(self, vector: Sequence[Tensor], detach: bool = True) -> Tensor:
        """The layer's output with the direction's blocks in place of its parameters."""
        arguments = [a.detach() if detach and torch.is_tensor(a) else a for a in self.arguments]
        swapped = dict(self.buffers)
        for name, slot in self.slots.items():
            frozen = getattr(self.layer, name)
            swapped[name] = (
                torch.zeros_like(frozen, dtype=self.output.dtype) if slot is None else vector[slot]
            )
        return functional_call(self.layer, swapped, tuple(arguments))

    def directions(self, vectors: Sequence[Tensor], x: Tensor | None = None) -> Tensor:
        """The same of a Linear layer for a block of directions: (n, k, out), memory of its own.

        Samples come first, so that a block is one product of matrices, k times as wide: on a GPU
        that takes half the time of a batch of k of them.
        """
        x = self.arguments[0].detach() if x is None else x
        weight, bias = (self.slots.get(name) for name in ("weight", "bias"))
        shape = (len(x), len(vectors[0]), self.output.shape[1])
        if weight is None:
            assert bias is not None  # or the layer would not be here
            return vectors[bias].repeat(len(x), 1, 1)
        wide = vectors[weight].flatten(0, 1).T
        moved = x @ wide if bias is None else torch.addmm(vectors[bias].flatten(), x, wide)
        return moved.view(shape)

    def collected(self, outer: Tensor, x: Tensor | None = None) -> Iterator[tuple[int, Tensor]]:
        """What cotangents (n, k, out) of a Linear layer give its parameters, with their places."""
        x = self.arguments[0].detach() if x is None else x
        weight, bias = (self.slots.get(name) for name in ("weight", "bias"))
        wide, shape = outer.flatten(1), outer.shape[1:]
        if weight is not None:
            yield weight, (wide.T @ x).unflatten(0, shape)
        if bias is not None:  # a product with ones: faster on a GPU than a sum over rows
            yield bias, (x.new_ones(1, len(x)) @ wide).view(shape)


@dataclass
class Linearised:
    """The logits of one chunk with everything needed for products with its Jacobian."""

    logits: Tensor  # (n, C), with its graph
    labels: Tensor
    parameters: list[Tensor]
    calls: list[Call]
    direct: list[int]  # places of parameters that no such layer owns
    slopes: list[Tensor] | None = None  # between dense layers, where they are a simple chain
    _tangent: tuple[Tensor, list[Tensor]] | None = field(default=None, repr=False)

    @property
    def points(self) -> list[Tensor]:
        """Where a change of the parameters enters: the layers' outputs, and direct parameters."""
        return [c.output for c in self.calls] + [self.parameters[i] for i in self.direct]

    def entering(self, vector: Sequence[Tensor], detach: bool = True) -> list[Tensor]:
        """The change that a direction causes at each of these points."""
        changes = [call.direction(vector, detach) for call in self.calls]
        return changes + [vector[i] for i in self.direct]

    def jvp(self, vector: Sequence[Tensor]) -> Tensor:
        """J v for one direction, shape (n, C)."""
        if self.slopes is not None:
            return self.jvps([block[None] for block in vector])[0]
        return self.push(self.entering(vector))

    def jvps(self, vectors: Sequence[Tensor], first: Tensor | None = None) -> Tensor:
        """J v for a block of directions, each part (k, ...), where every layer is dense: (k, n, C).

        `first` stands for the inputs of the first layer.
        """
        inputs = [first, *[None] * (len(self.calls) - 1)]
        changes = [c.directions(vectors, x) for c, x in zip(self.calls, inputs, strict=True)]
        if self.slopes is None:
            return self.push([change.transpose(0, 1) for change in changes], block=True)
        moved, *others = changes
        for call, slope, change in zip(self.calls[1:], self.slopes, others, strict=True):
            rows = moved.mul_(slope[:, None]).flatten(0, 1)
            change.view(len(rows), -1).addmm_(rows, self._weight(call).T)
            moved = change
        return moved.transpose(0, 1).contiguous()

    def _weight(self, call: Call) -> Tensor:
        slot = call.slots.get("weight")
        weight = call.layer.get_parameter("weight") if slot is None else self.parameters[slot]
        return weight.detach().to(self.logits.dtype)

    def find_slopes(self) -> bool:
        """Note the slopes between dense layers if they are a chain, and say whether they are.

        Between one layer and the next there may only be functions that act on each number alone,
        like tanh, and nothing after the last: read off the graph, since for the weights of the
        moment much may look like a chain that is none.
        """
        if not self.calls or not self.dense:
            return False
        *outputs, last = (call.output for call in self.calls)
        links = list(zip((call.arguments[0] for call in self.calls[1:]), outputs, strict=True))
        chain = all(_is_made_of(x, output, ELEMENTWISE) for x, output in links)
        if not chain or not _is_made_of(self.logits, last):
            return False
        self.slopes = [gradients(x, [output], torch.ones_like(x))[0] for x, output in links]
        return True

    @property
    def dense(self) -> bool:
        """Whether all parameters belong to Linear layers on rows of features."""
        calls = self.calls
        return not self.direct and all(
            type(c.layer) is nn.Linear and c.output.ndim == 2 for c in calls
        )

    def in_blocks(self, block: Tensor) -> bool:
        """Whether one product k times as wide beats k of them: on a GPU, where all is dense."""
        return block.is_cuda and self.dense and (len(block) > 1 or self.slopes is not None)

    def images(self, vectors: Sequence[Tensor]) -> Tensor:
        """J V of a block of directions, each part (k, ...): shape (k, n, C)."""
        if self.in_blocks(vectors[0]):
            return self.jvps(vectors)
        return torch.stack([self.jvp(vector) for vector in zip(*vectors, strict=True)])

    def pulled(self, cotangents: Tensor) -> Tensor:
        """J^T U of a block (k, n, C), summed over the chunk's samples: shape (k, P)."""
        if self.in_blocks(cotangents):
            blocks = self.vjps(cotangents)
            return torch.cat([blocks[i].flatten(1) for i in range(len(blocks))], 1)
        rows = [[g.flatten() for g in self.vjp(u)] for u in cotangents]
        return torch.stack([torch.cat(row) for row in rows])

    def push(self, changes: Sequence[Tensor], block: bool = False) -> Tensor:
        """How given changes at the points move the logits, shape (n, C) or (k, n, C)."""
        if self._tangent is None:
            u = torch.zeros_like(self.logits, requires_grad=True)
            pulled = gradients(self.logits, self.points, u, create_graph=True)
            self._tangent = (u, pulled)
        u, pulled = self._tangent
        pairs = [(g, d) for g, d in zip(pulled, changes, strict=True) if g.requires_grad]
        if not pairs:
            return torch.zeros_like(self.logits)
        outputs, tangents = zip(*pairs, strict=True)
        return gradients(list(outputs), [u], list(tangents), is_grads_batched=block)[0]

    def vjp(self, cotangent: Tensor) -> list[Tensor]:
        """J^T u as one tensor a parameter, summed over the chunk's samples."""
        return gradients(self.logits, self.parameters, cotangent)

    def vjps(self, cotangents: Tensor, first: Tensor | None = None) -> dict[int, Tensor]:
        """J^T u for a block (k, n, C), where every layer is dense: a parameter's place -> (k, ...).

        `first` stands for the inputs of the first layer.
        """
        pulled = self._pulled_to_layers(cotangents)
        blocks: dict[int, Tensor] = {}
        for call, outer in zip(self.calls, pulled, strict=True):
            for slot, block in call.collected(outer, first if call is self.calls[0] else None):
                blocks[slot] = blocks[slot] + block if slot in blocks else block
        for slot, parameter in enumerate(self.parameters):  # of layers that were not called
            if slot not in blocks:
                blocks[slot] = cotangents.new_zeros(len(cotangents), *parameter.shape)
        return blocks

    def _pulled_to_layers(self, cotangents: Tensor) -> list[Tensor]:
        """Cotangents (k, n, C) pulled back to the outputs of dense layers: (n, k, out) each."""
        if self.slopes is None:
            outputs = [call.output for call in self.calls]
            pulled = gradients(self.logits, outputs, cotangents, is_grads_batched=True)
            return [part.transpose(0, 1) for part in pulled]
        pulled = [cotangents.transpose(0, 1).contiguous()]
        for call, slope in zip(self.calls[:0:-1], self.slopes[::-1], strict=True):
            rows = pulled[0].flatten(0, 1) @ self._weight(call)
            pulled.insert(0, rows.unflatten(0, pulled[0].shape[:2]).mul_(slope[:, None]))
        return pulled

    def hvp(self, total: Tensor, vectors: Sequence[Sequence[Tensor]]) -> list[list[Tensor]]:
        """Products of each direction with the Hessian of `total`, a number made of the logits."""
        pulled = gradients(total, self.points, None, create_graph=True)
        products = []
        for vector in vectors:
            entering = self.entering(vector, detach=False)
            slope = sum((g * d).sum() for g, d in zip(pulled, entering, strict=True))
            assert isinstance(slope, Tensor)
            products.append(gradients(slope, self.parameters, None))
        return products


def gradients(
    outputs: Tensor | list[Tensor],
    inputs: list[Tensor],
    cotangents: Any,
    create_graph: bool = False,
    is_grads_batched: bool = False,
) -> list[Tensor]:
    """`torch.autograd.grad` with zeros for what does not matter, keeping the graph."""
    return list(
        torch.autograd.grad(
            outputs,
            inputs,
            cotangents,
            create_graph=create_graph,
            is_grads_batched=is_grads_batched,
            retain_graph=True,
            allow_unused=True,
            materialize_grads=True,
        )
    )


COPIES = ("Clone", "Alias")
ELEMENTWISE = ("Tanh", "Relu", "LeakyRelu", "Elu", "Gelu", "Silu", "Sigmoid", "Softplus", "Mish")


def _is_made_of(end: Tensor, start: Tensor, functions: Sequence[str] = ()) -> bool:
    """Whether a tensor is another, copied and put through some functions, and nothing else."""
    allowed = {f"{name}Backward0" for name in (*COPIES, *functions)}
    node = end.grad_fn
    while node is not None and node is not start.grad_fn:
        before = [n for n, _ in node.next_functions if n is not None]
        node = before[0] if node.name() in allowed and len(before) == 1 else None
    return node is not None and end.shape == start.shape


Slots = dict[nn.Module, dict[str, int | None]]


def linear_layers(model: nn.Module, place: dict[int, int], train: bool) -> Slots:
    """The layers that are linear in their parameters, with each parameter's place in a vector.

    `place` maps the id of a wanted parameter to its place. Left out are layers none of whose
    parameters are wanted, and BatchNorm in train mode, which would count its batch twice.
    """
    slots: Slots = {}
    for layer in model.modules():
        if type(layer) not in LINEAR_IN_PARAMETERS or (train and _is_batchnorm(layer)):
            continue
        own = {name: place.get(id(p)) for name, p in layer.named_parameters()}
        if layer._forward_hooks or layer._forward_pre_hooks or not own.keys() <= {"weight", "bias"}:
            continue  # pruned, normed by a hook, or watched by one that may change it
        if any(slot is not None for slot in own.values()):
            slots[layer] = own
    return slots


def _is_batchnorm(layer: nn.Module) -> bool:
    return isinstance(layer, nn.modules.batchnorm._BatchNorm)


@contextmanager
def recorded(slots: Slots, copy: bool) -> Iterator[list[Call]]:
    """Record every call of the layers in `slots`; `copy` guards outputs against in-place use."""
    calls: list[Call] = []

    def record(layer: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
        buffers = dict(layer.named_buffers())
        calls.append(Call(layer, slots[layer], arguments, output, buffers, output._version))
        return output.clone() if copy else output

    with ExitStack() as stack:
        for layer in slots:
            stack.callback(layer.register_forward_hook(record).remove)
        yield calls
