"""Exact Jacobian norms per sample: how far its logits can move with the parameters."""

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vjp, vmap

from toosure.curvature.products.functional_model import ParameterChoice
from toosure.curvature.products.jacobian_products import LinearisedChunk, gradients
from toosure.curvature.products.layer_calls import LayerCall
from toosure.curvature.products.loss_curvature import LossCurvature
from toosure.curvature.result import Result
from toosure.metrics.inputs import check_count

MAX_GRADIENT_BYTES = 1 << 29  # of the per-sample gradients of one layer
MAX_CHUNK = 1024  # samples


def jacobian_norms(
    model: nn.Module,
    x: Tensor,
    *,
    chunk: int | None = None,
    parameters: ParameterChoice | None = None,
) -> Result:
    """Measure |J_i|_op of every sample, J_i = d logits_i / d theta; `value` has shape (N,).

    From the K x K Gram matrix J_i J_i^T, summed over layers. For a Linear layer with input a it
    is (|a|^2 + 1) B B^T, where B = d logits / d output; other layers contract B with their input
    first. Exact up to rounding. Samples must not see each other, so the model is read in eval
    mode. The largest of them is C_J of "Too Sharp, Too Sure" (arXiv 2604.20614).

    >>> float(jacobian_norms(nn.Linear(2, 3), torch.tensor([[3.0, 4.0]])).value)  # sqrt(25 + 1)
    5.0990...
    """
    if chunk is not None:
        check_count("chunk", chunk)
    if not torch.is_tensor(x):
        raise ValueError(
            f"jacobian_norms takes the inputs alone, one tensor; got {type(x).__name__}: of "
            "(inputs, labels) give the inputs"
        )
    labels = torch.zeros(len(x), dtype=torch.long)
    curvature = LossCurvature(model, (x, labels), parameters=parameters, chunk=chunk or 1)

    parts = curvature.inputs.split(chunk or _affordable_chunk(curvature))
    value = torch.cat([_largest_singular_value(_gram(curvature, part)) for part in parts])  # (N,)
    finite = bool(torch.isfinite(value).all())
    note = "" if finite else "not finite: the model's derivatives overflow"
    return Result(value, error=0.0, products=curvature.classes / 2, converged=finite, note=note)


def _largest_singular_value(gram: Tensor) -> Tensor:
    """Return the root of the largest eigenvalue; NaN where the matrix is not finite."""
    finite = torch.isfinite(gram).all(2).all(1)
    safe = torch.where(finite[:, None, None], gram, torch.zeros_like(gram))
    norms = torch.linalg.eigvalsh(safe)[:, -1].clamp(min=0).sqrt()
    return torch.where(finite, norms, torch.full_like(norms, float("nan")))


def _affordable_chunk(curvature: LossCurvature) -> int:
    """Return the number of samples with gradients of the largest layer that fit in memory."""
    if all(type(layer) is nn.Linear for layer in curvature.layers):
        return MAX_CHUNK
    largest = max(curvature.sizes) * curvature.classes * curvature.inputs.element_size()
    return int(max(1, min(MAX_CHUNK, MAX_GRADIENT_BYTES // largest)))


def _gram(curvature: LossCurvature, x: Tensor) -> Tensor:
    """Compute J_i J_i^T of every sample in float64: (n, K, K)."""
    labels = torch.zeros(len(x), dtype=torch.long, device=x.device)
    chunk = curvature.linearise(x, labels)
    with curvature.temporary_mode():
        # With parameters outside of layers, or shared by several, there is no shortcut.
        used = [slot for layer in curvature.layers for slot in curvature.slots(layer)]
        if chunk.direct or len(used) > len(set(used)):
            return _outer(_jacobian_rows(curvature, x))

        calls: dict[nn.Module, list[tuple[LayerCall, Tensor]]] = {}
        for call, b in zip(chunk.calls, _logit_gradients(chunk), strict=True):
            calls.setdefault(call.layer, []).append((call, b))
        return sum((_layer_gram(pairs) for pairs in calls.values()), torch.zeros(()))


def _logit_gradients(chunk: LinearisedChunk) -> list[Tensor]:
    """Compute B = d logits / d output of every layer call: (n, K, ...)."""
    outputs = [c.output for c in chunk.calls]
    rows = []
    for k in range(chunk.logits.shape[1]):
        u = torch.zeros_like(chunk.logits)
        u[:, k] = 1
        rows.append(gradients(chunk.logits, outputs, u))
    return [torch.stack(parts, 1) for parts in zip(*rows, strict=True)]


def _layer_gram(pairs: list[tuple[LayerCall, Tensor]]) -> Tensor:
    """Compute one layer's share; gradients of several calls of the layer add up first."""
    call, b = pairs[0]
    a = call.arguments[0]
    if len(pairs) == 1 and type(call.layer) is nn.Linear and a.ndim == 2:
        weight_is_free = call.slots.get("weight") is not None
        bias_is_free = call.slots.get("bias") is not None
        squares: Tensor = a.detach().square().sum(-1, dtype=torch.float64)
        scale = weight_is_free * squares + bias_is_free  # (n,)
        return scale[:, None, None] * _outer(b)
    return _outer(sum((_local_gradients(c, b) for c, b in pairs), torch.zeros(())))


def _local_gradients(call: LayerCall, b: Tensor) -> Tensor:
    """Compute the gradients of every class by one call's free parameters: (n, K, p)."""
    free = [name for name, slot in call.slots.items() if slot is not None]
    zeros = {name: torch.zeros_like(p) for name, p in call.layer.named_parameters()}
    zeros = {name: z.to(b.dtype) for name, z in zeros.items()}

    def gradient(a: Tensor, b: Tensor) -> Tensor:
        def layer(own: dict[str, Tensor]) -> Tensor:
            output: Tensor = functional_call(call.layer, call.buffers | zeros | own, (a[None],))
            return output

        (slopes,) = vjp(layer, {name: zeros[name] for name in free})[1](b[None])
        return torch.cat([slopes[name].flatten() for name in free])

    a = call.arguments[0].detach()
    return vmap(vmap(gradient, in_dims=(None, 0)))(a, b)


def _jacobian_rows(curvature: LossCurvature, x: Tensor) -> Tensor:
    """Compute all Jacobian rows of every sample: (n, K, P)."""
    leaves, state = curvature.state()
    rest = {name: t for name, t in state.items() if name not in curvature.names}

    def logits(own: dict[str, Tensor], x: Tensor) -> Tensor:
        row: Tensor = functional_call(curvature.model, rest | own, (x[None],))[0]
        return row

    chosen = dict(zip(curvature.names, (p.detach() for p in leaves), strict=True))
    rows = vmap(jacrev(logits), in_dims=(None, 0))(chosen, x)
    return torch.cat([rows[name].reshape(len(x), -1, p.numel()) for name, p in chosen.items()], 2)


def _outer(rows: Tensor) -> Tensor:
    """Compute R R^T of the last two axes in float64."""
    rows = rows.detach().flatten(2)
    return (rows @ rows.mT).double()
