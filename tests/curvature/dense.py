"""Small networks in float64 and their dense matrices, made the slow and obvious way."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel


class Attention(nn.Module):
    """One attention block with a learned position: parameters that no layer owns."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(3, 4)
        self.position = nn.Parameter(0.1 * torch.randn(4, 4))
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x) + self.position
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.head(self.norm(x).mean(1))


class Shared(nn.Module):
    """A layer called twice, and outputs overwritten in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.twice, self.head = nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x).tanh_()
        hidden = self.twice(hidden).mul_(0.5)
        hidden += 1
        return self.head(self.twice(hidden).relu_())


def convolutional() -> nn.Module:
    model = nn.Sequential(
        *(nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(inplace=True)),
        *(nn.Conv2d(3, 4, 3, stride=2, bias=False), nn.BatchNorm2d(4), nn.Tanh()),
        *(nn.Flatten(), nn.Linear(16, 3)),
    )
    model(2 * torch.randn(30, 1, 6, 6) + 1)  # running statistics that differ from the data's
    return model


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)), (5,)),
    "cnn with BatchNorm": (convolutional, (1, 6, 6)),
    "attention": (Attention, (4, 3)),
    "shared and in place": (Shared, (4,)),
}


def make(name: str, n: int = 20) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """A case's model in float64, in train mode, with n samples."""
    build, shape = CASES[name]
    with torch.random.fork_rng():
        torch.manual_seed(len(name))
        model = build().double()
        x = torch.randn(n, *shape, dtype=torch.float64)
        y = torch.randint(0, 3, (n,))
    return model, (x, y)


def rows(values: Tensor, parameters: list[Tensor]) -> Tensor:
    """Gradients of every entry of `values`, one flat row each."""
    found = []
    for value in values.reshape(-1):
        grads = torch.autograd.grad(
            value,
            parameters,
            retain_graph=True,
            create_graph=True,
            allow_unused=True,
            materialize_grads=True,
        )
        found.append(torch.cat([g.reshape(-1) for g in grads]))
    return torch.stack(found)


def jacobian(model: nn.Module, x: Tensor) -> Tensor:
    """(N, K, P) by one backward pass an entry, in eval mode."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    was = model.training
    with sdpa_kernel(SDPBackend.MATH):
        logits = model.eval()(x)
        found = rows(logits, parameters).detach().view(*logits.shape, -1)
    model.train(was)
    return found


def gauss_newton(model: nn.Module, x: Tensor, output_hessian: Tensor) -> Tensor:
    j = jacobian(model, x)
    return torch.einsum("nkp,nkl,nlq->pq", j, output_hessian, j) / len(x)


def softmax_hessian(model: nn.Module, x: Tensor) -> Tensor:
    was = model.training
    p = model.eval()(x).detach().softmax(-1)
    model.train(was)
    return torch.diag_embed(p) - p[:, :, None] * p[:, None]


def hessian(model: nn.Module, x: Tensor, y: Tensor, loss=F.cross_entropy) -> Tensor:
    parameters = [p for p in model.parameters() if p.requires_grad]
    was = model.training
    with sdpa_kernel(SDPBackend.MATH):
        value = loss(model.eval()(x), y)
        (gradient,) = rows(value, parameters)
        found = rows(gradient, parameters).detach()
    model.train(was)
    return found
