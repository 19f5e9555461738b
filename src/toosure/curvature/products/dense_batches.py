"""Curvature along the gradients of many mini-batches at once, for a chain of dense layers.

For a batch B with gradient g the number g^T H_B g is the second derivative of its loss along g. A
Taylor expansion to the second order goes forward through the layers, every batch along its own
direction; no second backward pass is needed.
"""

import torch
from torch import Tensor

from toosure.curvature.products.dense_hessian import DenseHessian
from toosure.curvature.products.jacobian_products import LinearisedChunk
from toosure.curvature.products.loss_hessian import OutputLoss


def batch_quotients(chunk: LinearisedChunk, loss: OutputLoss, size: int) -> Tensor | None:
    """Return g^T H_B g / |g|^2 of consecutive batches of `size` samples, in float64: (batches,).

    H_B is the Hessian of the batch's mean loss. None if the layers are not a chain, or if two
    of them share a parameter: its gradient is a sum over layers, not known as they go by.

    Formula: with z' and z'' the derivatives of the logits along g, sum over the batch of
    z'^T H_z z' + (dL/dz) z'', divided by its size.
    """
    slots = [slot for call in chunk.calls for slot in call.slots.values() if slot is not None]
    hessian = DenseHessian.of(chunk, loss) if len(set(slots)) == len(slots) else None
    if hessian is None:
        return None
    with torch.no_grad():
        return _quotients(hessian, size)


def _quotients(hessian: DenseHessian, size: int) -> Tensor:
    """Push every batch's gradient through the layers to the second order."""
    batches = len(hessian.inputs[0]) // size

    def by_batch(rows: Tensor) -> Tensor:  # (n, d) to (batches, size, d)
        return rows[: batches * size].reshape(batches, size, -1)

    squared_norm = torch.zeros(batches, dtype=torch.float64, device=hessian.inputs[0].device)
    first = second = torch.empty(0)  # derivatives of a layer's input along g; none of the data
    for layer, call in enumerate(hessian.calls):
        inputs = by_batch(hessian.inputs[layer])
        deltas = by_batch(hessian.deltas[layer]) / size
        weight = hessian.weights[layer]

        # The gradient of a frozen tensor counts as zero: the direction leaves it where it is.
        outputs = inputs.new_zeros(batches, size, len(weight))
        bends = outputs
        if call.slots.get("weight") is not None:
            gradient = deltas.mT @ inputs  # (batches, out, in)
            squared_norm += gradient.double().square().sum((1, 2))
            outputs = outputs + inputs @ gradient.mT
            if layer:
                bends = bends + 2 * (first @ gradient.mT)
        if call.slots.get("bias") is not None:
            bias = deltas.sum(1, keepdim=True)
            squared_norm += bias.double().square().sum((1, 2))
            outputs = outputs + bias
        if layer:
            outputs = outputs + first @ weight.T
            bends = bends + second @ weight.T

        if layer < len(hessian.slopes):
            slope = by_batch(hessian.slopes[layer])
            first = slope * outputs
            second = slope * bends + by_batch(hessian.bends[layer]) * outputs.square()

    flat = outputs.flatten(0, 1)
    through_loss = (flat * hessian.output_hessian(flat)).view_as(outputs)
    through_network = by_batch(hessian.deltas[-1]) * bends
    curvature = (through_loss + through_network).double().sum((1, 2)) / size
    return curvature / squared_norm
