"""MIMO: several inputs and several outputs of one network, which become its members."""

import math

import torch
from torch import Tensor, nn

from toosure.data.seeds import RunStream
from toosure.ensembles.batch_ensemble import check_members
from toosure.ensembles.convert import Weighted, replace_layers, weighted_layers
from toosure.ensembles.mixture import Mixture
from toosure.ensembles.noise import generator_for
from toosure.objectives.contract import Batch, reduction_factor
from toosure.processes.wrappers import unwrapped


class MIMO(Mixture):
    """Stack `members` images in the channels of the input, and read one prediction for each.

    The first layer reads M times the channels and the last gives M times the classes. In training
    the batch is repeated `repeat` times and each input has an own order of it; a share `same` of
    the rows keeps equal images. The loss is the mean over rows of the sum over members. To predict,
    the same image stands at all M inputs. A narrow network, as ResNet-20, has no room for members.
    Reference: Havasi et al. (2021), Training independent subnetworks for robust prediction,
    arXiv 2010.06610.

    >>> from toosure.models import mlp
    >>> model, objective = mlp(4, 3, width=8), MIMO(members=2)
    >>> x, y = torch.randn(6, 4), torch.arange(6) % 3
    >>> objective.setup(model, (x, y))
    >>> objective.member_logits(model, x).shape
    torch.Size([2, 6, 3])
    """

    def __init__(
        self,
        loss: nn.Module | None = None,
        members: int = 3,
        repeat: int = 4,
        same: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__(loss, seed)
        check_members(members)
        if repeat < 1 or not 0 <= same <= 1:
            raise ValueError(f"need repeat >= 1 and 0 <= same <= 1; got {repeat} and {same}")
        self.members = members
        self.repeat = repeat
        self.same = same

    def convert(self, model: nn.Module, example: Tensor) -> None:
        """Widen the first layer to M inputs and the last to M outputs."""
        if self.members == 1:
            return
        names = list(weighted_layers(model))
        if len(names) < 2:
            raise ValueError("MIMO needs a first layer and a last one; the network has one in all")

        generator = torch.Generator().manual_seed(self.seed)
        makers = {names[0]: wider_input, names[-1]: wider_output}

        def make(name: str, layer: nn.Module) -> nn.Module | None:
            if name not in makers:
                return None
            assert isinstance(layer, Weighted)
            return makers[name](layer, self.members, generator)

        replace_layers(model, make)

    def prepare(self, model: nn.Module, batch: Batch, part: int = 0) -> tuple[Tensor, ...]:
        """Draw an order of the repeated batch for each input, and stack the images."""
        self.count_step(model, part)
        x, labels, _ = batch
        generator = generator_for(
            torch.device("cpu"), self.seed, RunStream.ENSEMBLE_TRAINING, self.taken, part
        )
        orders = self.orders(len(labels), generator).to(labels.device)
        return torch.cat([x[order] for order in orders], 1), labels[orders]

    def orders(self, rows: int, generator: torch.Generator) -> Tensor:
        """Return which image each input has in each row, (M, repeat * rows)."""
        first = torch.randperm(self.repeat * rows, generator=generator)
        equal = round(self.same * len(first))  # rows that show one image at all inputs
        orders = []
        for _ in range(self.members):
            mixed = equal + torch.randperm(len(first) - equal, generator=generator)
            orders.append(torch.cat([first[:equal], first[mixed]]))
        return torch.stack(orders) % rows

    def forward(self, model: nn.Module, prepared: tuple[Tensor, ...]) -> Tensor:
        x, labels = prepared  # (rows, M C, ...), (M, rows)
        logits = self.split(unwrapped(model)(x))
        losses = [self.loss_of(*each) for each in zip(logits, labels, strict=True)]
        total: Tensor = torch.stack(losses).sum()
        return total / reduction_factor(self.loss, self.repeat)  # a sum counts every repetition

    def split(self, outputs: Tensor) -> Tensor:
        """Return the outputs (N, M C) as the logits of the members, (M, N, C)."""
        logits: Tensor = outputs.unflatten(1, (self.members, -1)).movedim(1, 0)
        return logits

    def member_logits(self, model: nn.Module, x: Tensor) -> Tensor:
        """Return the logits of each member, (M, N, C), for the same images at all inputs."""
        return self.split(model(torch.cat([x] * self.members, 1)))


def wider_input(layer: Weighted, members: int, generator: torch.Generator) -> nn.Module:
    """Return a layer that reads M inputs; weights are drawn so that its output keeps its scale."""
    if isinstance(layer, nn.Conv2d):
        if layer.groups != 1:
            raise ValueError("MIMO cannot widen a first convolution in groups")
        wide: Weighted = nn.Conv2d(
            members * layer.in_channels,
            layer.out_channels,
            layer.kernel_size,  # type: ignore[arg-type]
            layer.stride,  # type: ignore[arg-type]
            layer.padding,  # type: ignore[arg-type]
            layer.dilation,  # type: ignore[arg-type]
            bias=layer.bias is not None,
            padding_mode=layer.padding_mode,
        )
    else:
        wide = nn.Linear(
            members * layer.in_features, layer.out_features, bias=layer.bias is not None
        )

    return drawn_like(wide, layer, 1 / math.sqrt(members), generator)


def wider_output(layer: Weighted, members: int, generator: torch.Generator) -> nn.Module:
    """Return a last layer with M sets of outputs."""
    if not isinstance(layer, nn.Linear):
        raise ValueError("MIMO needs a network that ends in a Linear")
    wide = nn.Linear(layer.in_features, members * layer.out_features, bias=layer.bias is not None)
    return drawn_like(wide, layer, 1.0, generator)


def drawn_like(
    wide: Weighted, layer: Weighted, scale: float, generator: torch.Generator
) -> Weighted:
    """Draw the weights of `wide` with the standard deviation of the layer's; repeat its bias."""
    wide = wide.to(layer.weight)
    with torch.no_grad():
        noise = torch.randn(wide.weight.shape, generator=generator)
        wide.weight.copy_(noise.to(wide.weight) * layer.weight.std() * scale)
        if wide.bias is not None and layer.bias is not None:
            wide.bias.copy_(layer.bias.repeat(len(wide.bias) // len(layer.bias)))
    return wide
