"""Attack and margins for use inside training: few passes, and nothing that waits for the host."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from toosure.eval_mode import evaluating
from toosure.losses.one_column import class_pair
from toosure.metrics.inputs import at_least_float32


def linf_attack(
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    eps: float | Tensor,
    step: float | Tensor,
    steps: int,
) -> Tensor:
    """Return inputs of higher cross-entropy in the linf ball: sign steps from x, in eval mode.

    Only the gradients of the inputs are computed.
    Reference: Madry et al. (2018), arXiv 1706.06083.
    """
    x = x.detach()
    shift = torch.zeros_like(x)
    with evaluating(model), torch.enable_grad():
        for _ in range(steps):
            point = (x + shift).requires_grad_()
            logits, classes = class_pair(None, at_least_float32(model(point)), labels)
            loss = F.cross_entropy(logits, classes, reduction="sum")
            (gradient,) = torch.autograd.grad(loss, point)
            shift = (shift + step * gradient.sign()).clamp(-eps, eps)  # type: ignore[arg-type]
    return x + shift


def margin_of(logits: Tensor, labels: Tensor, temperature: float = 0.0) -> Tensor:
    """Return the true margin, (N,), or the soft one for a temperature above 0; see `margins`.

    The runner-up is chosen without gradient and read by its index: cheap to differentiate twice.
    """
    logits, labels = class_pair(None, logits, labels)
    column = labels[:, None]
    own = logits.gather(1, column).squeeze(1)
    if temperature == 0:
        with torch.no_grad():
            runner_up = logits.scatter(1, column, -torch.inf).argmax(1, keepdim=True)
        return own - logits.gather(1, runner_up).squeeze(1)

    others = (logits / temperature).scatter(1, column, -torch.inf)
    return own - temperature * others.logsumexp(1)


def input_gradient(margins: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of each margin by its input, (N, D), itself differentiable."""
    (gradient,) = torch.autograd.grad(margins.sum(), x, create_graph=True)
    return gradient
