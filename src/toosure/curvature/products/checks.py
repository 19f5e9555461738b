"""What is asked of a model, its data and its loss before the first product."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from toosure.curvature.products.functional_model import flat
from toosure.curvature.products.loss_hessian import ClassWeighted, output_loss
from toosure.metrics.inputs import as_labels

if TYPE_CHECKING:
    from toosure.curvature.products.loss_curvature import Problem

KEEP_BYTES = 4 << 30  # of a forward pass that is kept
SAME = {torch.float32: 1e-3, torch.float64: 1e-8}  # how well two ways to a number must agree


def check_rtol(rtol: float) -> None:
    """Raise unless an error may be asked for: 0 asks for as little as rounding leaves."""
    if not rtol >= 0:
        raise ValueError(f"rtol must be 0 or more; got {rtol!r}")


def pair_of(data: Any) -> tuple[Tensor, Any]:
    """Inputs and labels; raise where data is something else."""
    if isinstance(data, tuple | list) and len(data) == 2 and torch.is_tensor(data[0]):
        return data[0], data[1]
    raise ValueError(
        f"data must be two tensors, (inputs, labels); got {type(data).__name__}. A DataLoader's "
        "batches are joined with `x, y = map(torch.cat, zip(*loader))`"
    )


def checked_labels(problem: "Problem", labels: Any) -> tuple[Tensor, int]:
    """The labels on the model's device, and the number of classes; raise on what cannot be used."""
    n = len(problem.inputs)
    if n == 0:
        raise ValueError("data is empty: curvature needs at least one sample")
    _, state = problem.state()
    with problem.reading(), torch.no_grad():
        logits = functional_call(problem.model, state, (problem.inputs[: min(n, 2)],))
    if not torch.is_tensor(logits) or logits.ndim != 2 or len(logits) != min(n, 2):
        shape = tuple(logits.shape) if torch.is_tensor(logits) else type(logits).__name__
        raise ValueError(f"the model must return logits of shape (N, C); got {shape}")
    classes = logits.shape[1]
    labels = as_labels(labels, n, classes).to(problem.device)
    value = problem.loss.total(logits, labels[: len(logits)])
    if bool(torch.isfinite(logits).all()) and not bool(torch.isfinite(value)):
        raise ValueError(f"the loss is not finite on finite logits: it gave {float(value)}")
    return labels, classes


def layers_are_all(problem: "Problem") -> bool:
    """Whether layers' calls are all there is of their weights, by <u, J v> = <J^T u, v>.

    Weights that are read elsewhere too, as in `h @ layer.weight`, are differentiated as such.
    """
    piece = problem.linearise(problem.inputs[:2], problem.labels[:2])
    generator = torch.Generator().manual_seed(0)
    v = torch.randn(problem.size, generator=generator).to(piece.logits)
    u = torch.randn(piece.logits.shape, generator=generator).to(piece.logits)
    with problem.reading():
        image, pulled = piece.jvp(problem.split(v)), flat(piece.vjp(u))
    left, right = float((image * u).sum()), float(pulled @ v)
    norm = torch.linalg.vector_norm
    return not abs(left - right) > SAME[problem.dtype] * float(norm(image) * norm(u) + norm(pulled))


def loss_over_all(problem: "Problem") -> Any:
    """The loss as a sum over samples, whatever chunks they come in."""
    loss = getattr(problem.loss, "function", None)
    if type(loss) is not nn.CrossEntropyLoss or loss.weight is None or loss.reduction != "mean":
        return problem.loss
    weight = problem.reduced(loss.weight.to(problem.device).double()[problem.labels].sum())
    return output_loss(ClassWeighted(loss, problem.count / float(weight)))


def affordable_chunk(problem: "Problem") -> int:
    """How many samples' graphs fit into KEEP_BYTES, from what two samples save."""
    n = min(2, len(problem.inputs))
    saved: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        saved[tensor.data_ptr()] = tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        piece = problem.linearise(problem.inputs[:n], problem.labels[:n])
    own = {p.data_ptr() for p in piece.parameters}
    each = sum(size for pointer, size in saved.items() if pointer not in own) / n
    return max(1, min(len(problem.inputs), int(KEEP_BYTES / (2 * max(each, 1.0)))))
