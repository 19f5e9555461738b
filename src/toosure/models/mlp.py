"""The multilayer perceptron of the trajectory paper."""

from itertools import pairwise
from math import prod
from typing import Literal

from torch import Tensor, nn

from toosure.models.arguments import check_dropout

Activation = Literal["tanh", "relu", "gelu", "silu"]
ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU}


class MLP(nn.Module):
    """Flatten the input, apply `depth` hidden layers of `width` units, then a linear head."""

    def __init__(
        self,
        inputs: int,
        classes: int,
        width: int,
        depth: int,
        activation: Activation,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        sizes = [inputs] + [width] * depth
        hidden: list[nn.Module] = []
        for fan_in, fan_out in pairwise(sizes):
            hidden += [nn.Linear(fan_in, fan_out), ACTIVATIONS[activation]()]
            if dropout:
                hidden.append(nn.Dropout(dropout))
        self.hidden = nn.Sequential(*hidden)
        self.head = nn.Linear(sizes[-1], classes)

    def features(self, x: Tensor) -> Tensor:
        """Return the last hidden activations, the input of the head."""
        activations: Tensor = self.hidden(x.flatten(1))  # (N, width)
        return activations

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))  # (N, classes)
        return logits


def mlp(
    inputs: int | tuple[int, ...] = (3, 32, 32),
    classes: int = 10,
    width: int = 200,
    depth: int = 2,
    activation: Activation = "tanh",
    dropout: float = 0.0,
) -> MLP:
    """Build the fully connected network 3072-200-200-10 with tanh, or one of other sizes.

    Weights keep PyTorch's default uniform initialisation; `dropout` acts on each hidden layer.
    Reference: Too Sharp, Too Sure, Sec. 3 (2026), arXiv 2604.20614.

    >>> sum(p.numel() for p in mlp().parameters())
    656810
    """
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}; got {activation!r}")
    if depth < 0 or width < 1 or classes < 1:
        raise ValueError(
            f"an mlp needs depth >= 0, width >= 1 and classes >= 1; got {depth}, {width}, {classes}"
        )
    check_dropout(dropout)
    flat = inputs if isinstance(inputs, int) else prod(inputs)
    return MLP(flat, classes, width, depth, activation, dropout)
