"""Hessian products of a chain of dense layers, for a whole block of directions at once.

By hand, as Pearlmutter (1994) has them: a tangent goes forward through the layers, and what it does
to the backward pass comes back. A block of k directions is one product of matrices per layer, k
times as wide, where autograd would take k passes.
"""

import torch
from torch import Tensor

from toosure.curvature.products.functional_model import split_blocks
from toosure.curvature.products.jacobian_products import LinearisedChunk, chain_links, gradients
from toosure.curvature.products.loss_hessian import OutputLoss


class DenseHessian:
    """The Hessian of a loss, summed over the samples of one pass, at that pass's weights.

    Formula: with inputs a, outputs z of a layer and slopes phi'(z) behind it, a direction V gives
    z' = a V^T + a' W^T, a' = phi'(z) z'; and with the gradients d by z, d' = H_z z' at the logits,
    d' = (d' W + d V) phi'(z) + (d W) phi''(z) z' below; H V is d'^T a + d^T a'.

    `of` returns None unless the layers are a chain: dense layers with nothing but functions of
    each number alone, like tanh, between one and the next.
    """

    def __init__(self, chunk: LinearisedChunk, loss: OutputLoss) -> None:
        self.calls = chunk.calls
        self.sizes = [p.numel() for p in chunk.parameters]
        self.shapes = [p.shape for p in chunk.parameters]
        self.inputs = [call.arguments[0].detach() for call in self.calls]
        self.weights = [chunk.weight_of(call) for call in self.calls]
        self.slopes, self.bends = _derivatives(chunk)

        logits = chunk.logits.detach()
        self.output_hessian = lambda tangents: loss.hessian(logits, chunk.labels, tangents)
        free = logits.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss.total(free, chunk.labels), free)

        # Gradients by the outputs of every layer, and d W before the slope is applied.
        self.deltas = [gradient]
        self.pulled: list[Tensor] = []
        for weight, slope in zip(self.weights[:0:-1], self.slopes[::-1], strict=True):
            self.pulled.insert(0, self.deltas[0] @ weight)
            self.deltas.insert(0, self.pulled[0] * slope)

    @classmethod
    def of(cls, chunk: LinearisedChunk, loss: OutputLoss) -> "DenseHessian | None":
        """Return the Hessian if the layers of a pass are a chain, otherwise None."""
        return None if chain_links(chunk) is None else cls(chunk, loss)

    @torch.no_grad()
    def products(self, block: Tensor) -> Tensor:
        """Multiply a block of directions, (k, P) to (k, P)."""
        vectors = split_blocks(block, self.sizes, self.shapes)
        outputs, activations = self._push_forward(vectors)

        total = torch.zeros_like(block)
        blocks = split_blocks(total, self.sizes, self.shapes)
        delta = self.output_hessian(outputs[-1].transpose(0, 1)).transpose(0, 1)  # (n, k, C)
        for layer in reversed(range(len(self.calls))):
            self._add_gradients(blocks, layer, delta, activations[layer])
            if layer:
                delta = self._pull_back(vectors, layer, delta, outputs[layer - 1])
        return total

    def _push_forward(self, vectors: list[Tensor]) -> tuple[list[Tensor], list[Tensor | None]]:
        """Return the tangents of every layer's output, (n, k, out), and input; None for data."""
        outputs: list[Tensor] = []
        activations: list[Tensor | None] = [None]
        for layer, call in enumerate(self.calls):
            change = call.output_changes(vectors, self.inputs[layer])
            arriving = activations[layer]
            if arriving is not None:
                change = change + arriving @ self.weights[layer].T
            outputs.append(change)
            if layer < len(self.slopes):
                activations.append(change * self.slopes[layer][:, None])
        return outputs, activations

    def _pull_back(self, vectors: list[Tensor], layer: int, delta: Tensor, below: Tensor) -> Tensor:
        """Return the tangent of the gradient by the output of the layer below, (n, k, out)."""
        arriving = delta @ self.weights[layer]
        slot = self.calls[layer].slots.get("weight")
        if slot is not None:
            direction = vectors[slot]  # (k, out, in)
            wide = direction.transpose(0, 1).flatten(1)  # (out, k * in)
            arriving = arriving + (self.deltas[layer] @ wide).view_as(arriving)

        bend = self.pulled[layer - 1] * self.bends[layer - 1]
        return arriving * self.slopes[layer - 1][:, None] + below * bend[:, None]

    def _add_gradients(
        self, blocks: list[Tensor], layer: int, delta: Tensor, arriving: Tensor | None
    ) -> None:
        """Add one layer's part of the products at the place of its parameters."""
        call = self.calls[layer]
        for slot, gradient in call.parameter_gradients(delta, self.inputs[layer]):
            blocks[slot] += gradient

        weight = call.slots.get("weight")
        if weight is not None and arriving is not None:
            k, columns = arriving.shape[1:]
            wide = self.deltas[layer].T @ arriving.flatten(1)  # (out, k * in)
            blocks[weight] += wide.view(-1, k, columns).transpose(0, 1)


def _derivatives(chunk: LinearisedChunk) -> tuple[list[Tensor], list[Tensor]]:
    """Return the first and second derivatives of what lies between the layers, (n, out) each."""
    slopes, bends = [], []
    for x, output in chain_links(chunk) or []:
        (slope,) = gradients(x, [output], torch.ones_like(x), create_graph=True)
        bend = torch.zeros_like(slope)
        if slope.requires_grad:  # else the function is piecewise linear
            (bend,) = gradients(slope, [output], torch.ones_like(slope))
        slopes.append(slope.detach())
        bends.append(bend.detach())
    return slopes, bends
