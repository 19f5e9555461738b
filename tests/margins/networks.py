"""Small networks of every kind the certified bounds know, with random weights."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Residual(nn.Module):
    """Convolutions with batch norm, a strided and zero-padded shortcut, an addition, a mean."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2)
        self.second, self.third = nn.Conv2d(2, 4, 3, 2, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.first((x - 0.1) / 0.5)))
        short = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 1, 1))
        x = torch.tanh(self.second(x))
        x = F.relu(self.third(x) + short)
        return self.head(x.mean((2, 3)))


class Reader(nn.Module):
    """Sizes read from the input, an in-place sum, a concatenation and a negative constant."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(4, 3), nn.Linear(3, 3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x.view(x.size(0), -1)).tanh()
        out = self.b(x)
        out += x
        return self.head(torch.cat([out.relu(), -2.0 * x], 1))


def dense(activation: type[nn.Module]) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(4, 6), activation(), nn.Linear(6, 5), activation(), nn.Linear(5, 3)
    )


def pooled(pool: nn.Module, size: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), pool, nn.Flatten(), nn.Linear(size, 3)
    )


IMAGE, FLAT = (1, 4, 4), (4,)
NETWORKS = {
    "affine": (lambda: nn.Linear(4, 3), FLAT),
    "affine convolution": (
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(2, 3)),
        IMAGE,
    ),
    "tanh": (lambda: dense(nn.Tanh), FLAT),
    "relu": (lambda: dense(nn.ReLU), FLAT),
    "residual": (Residual, IMAGE),
    "reader": (Reader, FLAT),
    "max pooling": (lambda: pooled(nn.MaxPool2d(2), 8), IMAGE),
    "overlapping max pooling": (lambda: pooled(nn.MaxPool2d(3, 1, 1), 32), IMAGE),
    "adaptive pooling": (lambda: pooled(nn.AdaptiveAvgPool2d(2), 8), IMAGE),
    "grouped": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 4, 3, 2, groups=2), nn.Dropout(),
            nn.ReLU(), nn.Flatten(), nn.Linear(4, 3),
        ),
        IMAGE,
    ),
}  # fmt: skip


def make(name: str, seed: int, scale: float = 1.0) -> tuple[nn.Module, tuple[int, ...]]:
    """Return a network in float64 and eval mode whose weights and running statistics are random."""
    build, shape = NETWORKS[name]
    generator = torch.Generator().manual_seed(seed)
    model = build().double().eval()
    for parameter in model.parameters():
        fan = max(1, parameter[0].numel()) if parameter.ndim > 1 else 4
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data.copy_(noise * scale / fan**0.5)
    for name_, buffer in model.named_buffers():
        if name_.endswith("running_var"):
            buffer.copy_(torch.rand(buffer.shape, generator=generator) + 0.5)
        elif name_.endswith("running_mean"):
            buffer.copy_(torch.randn(buffer.shape, generator=generator))
    return model, shape


def data(shape: tuple[int, ...], n: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, *shape, generator=generator, dtype=torch.float64)
    return x, torch.randint(3, (n,), generator=generator)
