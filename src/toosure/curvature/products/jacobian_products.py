"""One linearised forward pass, and the Jacobian products that it gives cheaply.

A layer such as Linear, Conv or BatchNorm is linear in its own parameters, so the change of its
output under a direction V is the same layer with V in place of its weights, at the same input.
What remains of a JVP is how that change reaches the logits. One small graph (the gradient of the
logits with respect to the layers' outputs) answers that for every direction. No weight gradient
is computed to set it up.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from toosure.curvature.products.layer_calls import LayerCall

COPIES = ("Clone", "Alias")
ELEMENTWISE = ("Tanh", "Relu", "LeakyRelu", "Elu", "Gelu", "Silu", "Sigmoid", "Softplus", "Mish")


@dataclass
class LinearisedChunk:
    """The logits of one chunk of the data, with what products with their Jacobian J need."""

    logits: Tensor  # (n, C), with its graph
    labels: Tensor
    parameters: list[Tensor]
    calls: list[LayerCall]
    direct: list[int]  # slots of parameters that no recorded layer owns
    slopes: list[Tensor] | None = None  # see `find_slopes`
    _tangent: tuple[Tensor, list[Tensor]] | None = field(default=None, repr=False)

    @property
    def dense(self) -> bool:
        """Whether all parameters belong to Linear layers on rows of features."""
        calls = self.calls
        return not self.direct and all(
            type(c.layer) is nn.Linear and c.output.ndim == 2 for c in calls
        )

    def in_blocks(self, block: Tensor) -> bool:
        """Whether one product k times as wide beats k products: on a GPU, with dense layers."""
        return block.is_cuda and self.dense and (len(block) > 1 or self.slopes is not None)

    # -- a block of vectors, in the faster way ----------------------------------------------

    def images(self, vectors: Sequence[Tensor]) -> Tensor:
        """Compute J V for a block of directions, each part (k, ...): shape (k, n, C)."""
        if self.in_blocks(vectors[0]):
            return self.jvps(vectors)
        return torch.stack([self.jvp(vector) for vector in zip(*vectors, strict=True)])

    def pull(self, cotangents: Tensor) -> Tensor:
        """Compute J^T U for a block (k, n, C), summed over the samples: shape (k, P)."""
        if self.in_blocks(cotangents):
            blocks = self.vjps(cotangents)
            return torch.cat([blocks[i].flatten(1) for i in range(len(blocks))], 1)
        rows = [[g.flatten() for g in self.vjp(u)] for u in cotangents]
        return torch.stack([torch.cat(row) for row in rows])

    # -- one vector at a time, by autograd --------------------------------------------------

    @property
    def entry_points(self) -> list[Tensor]:
        """Where a change of parameters enters: outputs of layers, and direct parameters."""
        return [c.output for c in self.calls] + [self.parameters[i] for i in self.direct]

    def entry_changes(self, vector: Sequence[Tensor], detach: bool = True) -> list[Tensor]:
        """Return the change that a direction causes at each of these points."""
        changes = [call.output_change(vector, detach) for call in self.calls]
        return changes + [vector[i] for i in self.direct]

    def jvp(self, vector: Sequence[Tensor]) -> Tensor:
        """Compute J v for one direction: shape (n, C)."""
        if self.slopes is not None:
            return self.jvps([block[None] for block in vector])[0]
        return self.push_forward(self.entry_changes(vector))

    def push_forward(self, changes: Sequence[Tensor], block: bool = False) -> Tensor:
        """Carry changes at the entry points on to the logits: shape (n, C), or (k, n, C).

        J^T u is linear in u, so its derivative by u, applied to the changes, is J v: a double
        backward pass over one graph that serves every direction.
        """
        if self._tangent is None:
            u = torch.zeros_like(self.logits, requires_grad=True)
            pulled = gradients(self.logits, self.entry_points, u, create_graph=True)
            self._tangent = (u, pulled)

        u, pulled = self._tangent
        pairs = [(g, d) for g, d in zip(pulled, changes, strict=True) if g.requires_grad]
        if not pairs:
            return torch.zeros_like(self.logits)
        outputs, tangents = zip(*pairs, strict=True)
        return gradients(list(outputs), [u], list(tangents), is_grads_batched=block)[0]

    def vjp(self, cotangent: Tensor) -> list[Tensor]:
        """Compute J^T u, summed over the samples: one tensor per parameter."""
        return gradients(self.logits, self.parameters, cotangent)

    def hvp(self, total: Tensor, vectors: Sequence[Sequence[Tensor]]) -> list[list[Tensor]]:
        """Multiply directions by the Hessian of `total`, a number computed from the logits."""
        pulled = gradients(total, self.entry_points, None, create_graph=True)
        products = []
        for vector in vectors:
            changes = self.entry_changes(vector, detach=False)
            slope = sum((g * d).sum() for g, d in zip(pulled, changes, strict=True))
            assert isinstance(slope, Tensor)
            products.append(gradients(slope, self.parameters, None))
        return products

    # -- a block of vectors through dense layers, as one product of matrices each ------------

    def find_slopes(self) -> bool:
        """Store the elementwise slopes between dense layers, and return whether these form a chain.

        In a chain only functions that act on each number alone, like tanh, lie between one layer
        and the next, and nothing comes after the last. This is read off the graph, since for the
        weights of the moment a network may behave like a chain without being one.
        """
        links = chain_links(self)
        if links is None:
            return False

        self.slopes = [gradients(x, [output], torch.ones_like(x))[0] for x, output in links]
        return True

    def jvps(self, vectors: Sequence[Tensor], first: Tensor | None = None) -> Tensor:
        """Compute J V where every layer is dense; each part is (k, ...), the result (k, n, C).

        `first` replaces the inputs of the first layer.
        """
        inputs = [first, *[None] * (len(self.calls) - 1)]
        changes = [c.output_changes(vectors, x) for c, x in zip(self.calls, inputs, strict=True)]
        if self.slopes is None:
            return self.push_forward([change.transpose(0, 1) for change in changes], block=True)

        # Layer by layer: what arrives from below, plus what the layer's own change adds.
        moved, *others = changes
        for call, slope, change in zip(self.calls[1:], self.slopes, others, strict=True):
            rows = moved.mul_(slope[:, None]).flatten(0, 1)
            change.view(len(rows), -1).addmm_(rows, self.weight_of(call).T)
            moved = change
        return moved.transpose(0, 1).contiguous()

    def vjps(self, cotangents: Tensor, first: Tensor | None = None) -> dict[int, Tensor]:
        """Compute J^T U for a block (k, n, C) where every layer is dense: slot -> (k, ...).

        `first` replaces the inputs of the first layer.
        """
        pulled = self._pull_back_to_layers(cotangents)
        blocks: dict[int, Tensor] = {}
        for call, outer in zip(self.calls, pulled, strict=True):
            x = first if call is self.calls[0] else None
            for slot, block in call.parameter_gradients(outer, x):
                blocks[slot] = blocks[slot] + block if slot in blocks else block

        # Layers that the model did not call have no gradient.
        for slot, parameter in enumerate(self.parameters):
            if slot not in blocks:
                blocks[slot] = cotangents.new_zeros(len(cotangents), *parameter.shape)
        return blocks

    def _pull_back_to_layers(self, cotangents: Tensor) -> list[Tensor]:
        """Pull cotangents (k, n, C) back to the outputs of the dense layers: (n, k, out) each."""
        if self.slopes is None:
            outputs = [call.output for call in self.calls]
            pulled = gradients(self.logits, outputs, cotangents, is_grads_batched=True)
            return [part.transpose(0, 1) for part in pulled]

        pulled = [cotangents.transpose(0, 1).contiguous()]
        for call, slope in zip(self.calls[:0:-1], self.slopes[::-1], strict=True):
            rows = pulled[0].flatten(0, 1) @ self.weight_of(call)
            pulled.insert(0, rows.unflatten(0, pulled[0].shape[:2]).mul_(slope[:, None]))
        return pulled

    def weight_of(self, call: LayerCall) -> Tensor:
        """Return the weight that a layer was called with, differentiated or frozen."""
        slot = call.slots.get("weight")
        weight = call.layer.get_parameter("weight") if slot is None else self.parameters[slot]
        return weight.detach().to(self.logits.dtype)


def gradients(
    outputs: Tensor | list[Tensor],
    inputs: list[Tensor],
    cotangents: Tensor | list[Tensor] | None,
    create_graph: bool = False,
    is_grads_batched: bool = False,
) -> list[Tensor]:
    """Call `torch.autograd.grad` with zeros for unused inputs, and keep the graph."""
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


def chain_links(chunk: LinearisedChunk) -> list[tuple[Tensor, Tensor]] | None:
    """Return each dense layer's input with the output of the layer before it, if they are a chain.

    See `LinearisedChunk.find_slopes` for what a chain is; None where the layers are none.
    """
    if not chunk.calls or not chunk.dense:
        return None

    *outputs, last = (call.output for call in chunk.calls)
    links = list(zip((call.arguments[0] for call in chunk.calls[1:]), outputs, strict=True))
    chain = all(_is_made_of(x, output, ELEMENTWISE) for x, output in links)
    return links if chain and _is_made_of(chunk.logits, last) else None


def _is_made_of(end: Tensor, start: Tensor, functions: Sequence[str] = ()) -> bool:
    """Whether `end` is `start`, copied and put through the named functions only."""
    allowed = {f"{name}Backward0" for name in (*COPIES, *functions)}
    node = end.grad_fn
    while node is not None and node is not start.grad_fn:
        before = [n for n, _ in node.next_functions if n is not None]
        node = before[0] if node.name() in allowed and len(before) == 1 else None
    return node is not None and end.shape == start.shape
