"""BatchEnsemble: members that share every weight matrix, up to a vector on either side of it."""

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn

from toosure.ensembles.convert import (
    Weighted,
    channels_of,
    check_replaceable,
    per_channel,
    replace_layers,
    weighted_layers,
)
from toosure.ensembles.mixture import Mixture
from toosure.objectives.contract import Batch, reduction_factor
from toosure.processes.wrappers import unwrapped

Init = Literal["normal", "sign"]
RATE = 0.5  # of the fast weights, as a share of the learning rate


class BatchEnsemble(Mixture):
    """Give each member fast weights: W_m = W o (s_m r_m^T), with W shared.

    Formula: y = ((x o r_m) W) o s_m + b_m, r over the channels a layer reads, s over those it
    gives; BatchNorm is shared. Every member sees every image, so a step has `members` times the
    rows. r and s start from N(1, 1/2^2), or from random signs. They and the biases learn at half
    the rate and without weight decay.
    Reference: Wen, Tran and Ba (2020), BatchEnsemble, arXiv 2002.06715.

    >>> from toosure.models import mlp
    >>> model, objective = mlp(4, 3, width=8), BatchEnsemble(members=2)
    >>> x, y = torch.randn(6, 4), torch.arange(6) % 3
    >>> objective.setup(model, (x, y))
    >>> objective.member_logits(model, x).shape
    torch.Size([2, 6, 3])
    """

    def __init__(
        self,
        loss: nn.Module | None = None,
        members: int = 4,
        init: Init = "normal",
        seed: int = 0,
    ) -> None:
        super().__init__(loss, seed)
        check_members(members)
        if init not in ("normal", "sign"):
            raise ValueError(f"init must be normal or sign; got {init!r}")
        self.members = members
        self.init = init
        self.fast: list[nn.Parameter] = []  # vectors and biases of the members

    def convert(self, model: nn.Module, example: Tensor) -> None:
        """Give every convolution and linear layer its fast weights."""
        weighted_layers(model)  # raises if there are none
        check_replaceable(model, nn.Conv2d, nn.Linear)
        generator = torch.Generator().manual_seed(self.seed)
        replace_layers(model, lambda name, layer: self.converted(layer, generator))
        self.fast = [p for layer in member_layers(model) for p in layer.fast_weights()]

    def converted(self, layer: nn.Module, generator: torch.Generator) -> nn.Module | None:
        """Return a layer with fast weights in the place of a plain one."""
        if not isinstance(layer, Weighted):
            return None
        read, given = channels_of(layer)
        factors = [initial(self.members, n, self.init, generator) for n in (read, given)]
        return MemberLayer(layer, *factors)

    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        """Yield the fast weights as a group with half the rate and no decay."""
        yield {"params": self.fast, "lr_factor": RATE, "weight_decay": 0.0}

    def prepare(self, model: nn.Module, batch: Batch, part: int = 0) -> tuple[Tensor, ...]:
        """Repeat the batch for every member, member by member."""
        self.count_step(model, part)
        x, labels, _ = batch
        return repeated(x, self.members), repeated(labels, self.members)

    def forward(self, model: nn.Module, prepared: tuple[Tensor, ...]) -> Tensor:
        x, labels = prepared
        loss = self.loss_of(unwrapped(model)(x), labels)
        return loss / reduction_factor(self.loss, self.members)  # a sum counts every member's rows

    def member_logits(self, model: nn.Module, x: Tensor) -> Tensor:
        """Return the logits of each member, (M, N, C), from one pass over all of them."""
        return logits_of_members(model, x, self.members)


class MemberLayer(nn.Module):
    """A layer with rows of all members, in equal blocks."""

    def __init__(self, layer: Weighted, read: Tensor, given: Tensor) -> None:
        super().__init__()
        self.layer = layer
        self.read = nn.Parameter(read.to(layer.weight))  # r, (M, in)
        self.given = nn.Parameter(given.to(layer.weight))  # s, (M, out)
        self.bias: nn.Parameter | None = None
        if layer.bias is not None:
            self.bias = nn.Parameter(layer.bias.detach().repeat(len(read), 1))  # (M, out)
            layer.bias = None

    def fast_weights(self) -> list[nn.Parameter]:
        """Return the factors r and s, and the bias, that each member has for itself."""
        own = [self.read, self.given]
        return own if self.bias is None else [*own, self.bias]

    def forward(self, x: Tensor) -> Tensor:
        each = rows_per_member(len(x), len(self.read))
        y: Tensor = self.layer(x * self.factor(self.read, each, x))
        y = y * self.factor(self.given, each, y)
        return y if self.bias is None else y + self.factor(self.bias, each, y)

    def factor(self, values: Tensor, each: int, rows: Tensor) -> Tensor:
        """Return the members' values per row, in the shape of what they multiply."""
        return per_channel(self.layer, values.repeat_interleave(each, 0), rows)


def rows_per_member(rows: int, members: int) -> int:
    """Return the number of rows per member; raise if members have different numbers."""
    if rows % members:
        raise ValueError(
            f"{rows} rows cannot be split over {members} members: call objective.predict(model, x)"
            ", which repeats x for each"
        )
    return rows // members


def repeated(x: Tensor, members: int) -> Tensor:
    """Repeat rows, inputs or labels, for every member, member by member."""
    return x.repeat(members, *[1] * (x.ndim - 1))


def logits_of_members(model: nn.Module, x: Tensor, members: int) -> Tensor:
    """Return the logits of each member, (M, N, C), of a network with rows of all members."""
    logits: Tensor = model(repeated(x, members)).unflatten(0, (members, len(x)))
    return logits


def member_layers(model: nn.Module) -> list[MemberLayer]:
    """Return the layers with fast weights."""
    return [layer for layer in model.modules() if isinstance(layer, MemberLayer)]


def initial(members: int, channels: int, init: Init, generator: torch.Generator) -> Tensor:
    """Draw fast weights, (M, channels): N(1, 1/2^2) or signs."""
    noise = torch.randn(members, channels, generator=generator)
    return 1 + noise / 2 if init == "normal" else noise.sign()


def check_members(members: int) -> None:
    if members < 1:
        raise ValueError(f"members must be at least 1; got {members}")
