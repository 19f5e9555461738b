"""Exact per-sample Jacobian norms: how far a sample's logits can move with the parameters."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vjp, vmap

from toosure.curvature.products.jacobian_products import Call, Linearised, gradients
from toosure.curvature.products.loss_curvature import Problem
from toosure.curvature.result import Result
from toosure.metrics.inputs import check_count

GRAM_BYTES = 1 << 29  # what the per-sample gradients of one layer may take


def jacobian_norms(
    model: nn.Module, x: Tensor, *, chunk: int | None = None, parameters: Any = None
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
    labels = torch.zeros(len(x), dtype=torch.long)
    problem = Problem(model, (x, labels), parameters=parameters, chunk=chunk or 1)
    pieces = problem.inputs.split(chunk or _affordable(problem))
    value = torch.cat([_largest(_gram(problem, piece)) for piece in pieces])  # (N,)
    finite = bool(torch.isfinite(value).all())
    note = "" if finite else "not finite: the model's derivatives overflow"
    return Result(value, error=0.0, products=problem.classes / 2, converged=finite, note=note)


def _largest(gram: Tensor) -> Tensor:
    """The root of the largest eigenvalue; NaN where the matrix is not finite."""
    finite = torch.isfinite(gram).all(2).all(1)
    safe = torch.where(finite[:, None, None], gram, torch.zeros_like(gram))
    norms = torch.linalg.eigvalsh(safe)[:, -1].clamp(min=0).sqrt()
    return torch.where(finite, norms, torch.full_like(norms, float("nan")))


def _affordable(problem: Problem) -> int:
    """Samples a chunk, so that the largest layer's gradients for all classes fit in memory."""
    largest = max(problem.sizes) * problem.classes * problem.inputs.element_size()
    linear = all(type(layer) is nn.Linear for layer in problem.layers)
    return 1024 if linear else max(1, min(1024, GRAM_BYTES // largest))


def _gram(problem: Problem, x: Tensor) -> Tensor:
    """J_i J_i^T of every sample in float64: (n, K, K)."""
    piece = problem.linearise(x, torch.zeros(len(x), dtype=torch.long, device=x.device))
    with problem.reading():
        used = [slot for layer in problem.layers for slot in problem.places(layer)]
        if piece.direct or len(used) > len(set(used)):  # no shortcut: outside of layers, or shared
            return _outer(_rows(problem, x))
        pulled = _pulled(piece)
        calls: dict[nn.Module, list[tuple[Call, Tensor]]] = {}
        for call, b in zip(piece.calls, pulled, strict=True):
            calls.setdefault(call.layer, []).append((call, b))
        return sum((_layer_gram(pairs) for pairs in calls.values()), torch.zeros(()))


def _pulled(piece: Linearised) -> list[Tensor]:
    """d logits / d output of every call: (n, K, ...)."""
    outputs = [c.output for c in piece.calls]
    rows = []
    for k in range(piece.logits.shape[1]):
        u = torch.zeros_like(piece.logits)
        u[:, k] = 1
        rows.append(gradients(piece.logits, outputs, u))
    return [torch.stack(parts, 1) for parts in zip(*rows, strict=True)]


def _layer_gram(pairs: list[tuple[Call, Tensor]]) -> Tensor:
    """One layer's share; the gradients of several calls of it add up first."""
    call, b = pairs[0]
    a = call.arguments[0]
    if len(pairs) == 1 and type(call.layer) is nn.Linear and a.ndim == 2:
        free = [call.slots.get(name) is not None for name in ("weight", "bias")]
        scale = free[0] * a.detach().square().sum(-1, dtype=torch.float64) + free[1]  # (n,)
        return scale[:, None, None] * _outer(b)
    return _outer(sum((_local_gradients(c, b) for c, b in pairs), torch.zeros(())))


def _local_gradients(call: Call, b: Tensor) -> Tensor:
    """Gradients of every class with respect to one call's free parameters: (n, K, p)."""
    free = [name for name, slot in call.slots.items() if slot is not None]
    zeros = {name: torch.zeros_like(p) for name, p in call.layer.named_parameters()}
    zeros = {name: z.to(b.dtype) for name, z in zeros.items()}

    def gradient(a: Tensor, b: Tensor) -> Tensor:
        def layer(own: dict[str, Tensor]) -> Tensor:
            return functional_call(call.layer, call.buffers | zeros | own, (a[None],))

        (found,) = vjp(layer, {name: zeros[name] for name in free})[1](b[None])
        return torch.cat([found[name].flatten() for name in free])

    a = call.arguments[0].detach()
    return vmap(vmap(gradient, in_dims=(None, 0)))(a, b)


def _rows(problem: Problem, x: Tensor) -> Tensor:
    """All Jacobian rows of every sample: (n, K, P)."""
    own, state = problem.state()
    rest = {name: t for name, t in state.items() if name not in problem.names}

    def logits(own: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(problem.model, rest | own, (x[None],))[0]

    chosen = dict(zip(problem.names, (p.detach() for p in own), strict=True))
    rows = vmap(jacrev(logits), in_dims=(None, 0))(chosen, x)
    return torch.cat([rows[name].flatten(2) for name in problem.names], 2)


def _outer(rows: Tensor) -> Tensor:
    rows = rows.detach().flatten(2)
    return (rows @ rows.mT).double()
