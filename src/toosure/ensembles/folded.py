"""A network that computes several members in one pass, side by side in its channels.

Features (N, C, ...) of one network become (N, M * C, ...): the channels of the first member, then
those of the second, and so on. ReLU, pooling, sums and flattening need no change; a convolution
becomes one of M times the channels, and a BatchNorm a wider one. So M members take as many kernel
launches as one, without the dispatch of `torch.func.vmap`.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toosure.models.padding import PadChannels

# On a GPU the convolutions of all members are one dense convolution, zero between members, up to
# this many channels in all: it multiplies by zeros, and is faster than the grouped kernels.
DENSE_CHANNELS = 512
CHECKED_ROWS = 4
CHECKED_ERROR = 0.02  # of the largest logit; members that are mixed up differ by about 1

Stacks = Mapping[str, Tensor]  # name of a parameter or buffer of one member -> (M, ...)


def folded(members: Sequence[nn.Module], stacks: Stacks, example: Tensor) -> nn.Module | None:
    """Return the members as one network, (N, M * C, ...) to (N, M * classes), or None.

    None where a layer is not known here, or where the folded network does not compute what the
    members compute: one that concatenates channels, say.
    """
    network = folded_layers(members[0], stacks, len(members))
    if network is None or not computes_the_same(network, members, example):
        return None
    return network


def folded_layers(member: nn.Module, stacks: Stacks, count: int) -> nn.Module | None:
    """Return a copy of a member whose layers hold all members, or None where one cannot."""
    network = deepcopy(member)
    unused = set(stacks)
    for path, layer in list(network.named_modules()):
        fold = FOLDS.get(type(layer))
        if fold is None:
            continue

        own = {name: stacks.get(f"{path}.{name}") for name in layer.state_dict()}
        replacement = None if None in own.values() else fold(layer, own, count)
        if replacement is None or not path:
            return None
        network.set_submodule(path, replacement)
        unused -= {f"{path}.{name}" for name in own}

    return network if not unused else None


def computes_the_same(network: nn.Module, members: Sequence[nn.Module], example: Tensor) -> bool:
    """Whether the folded network returns the logits of its members, on rows of noise."""
    generator = torch.Generator().manual_seed(0)
    shape = (len(members), CHECKED_ROWS, *example.shape[1:])
    rows = torch.randn(shape, generator=generator).to(example)

    modes = [member.training for member in members]
    try:
        with torch.no_grad():
            expected = torch.stack([m.eval()(x) for m, x in zip(members, rows, strict=True)])
            found = member_logits(network.eval(), rows)
        return float((found - expected).abs().max()) <= CHECKED_ERROR * float(expected.abs().max())
    except (RuntimeError, AttributeError, TypeError):  # shapes or attributes that do not fit
        return False
    finally:
        for member, mode in zip(members, modes, strict=True):
            member.train(mode)


def member_logits(network: nn.Module, inputs: Tensor) -> Tensor:
    """Return the logits (M, N, classes) of a folded network on inputs (M, N, C, ...)."""
    logits: Tensor = network(inputs.transpose(0, 1).flatten(1, 2))
    return logits.reshape(len(logits), len(inputs), -1).transpose(0, 1)


# -- layers ---------------------------------------------------------------------------------------


class FoldedConv2d(nn.Module):
    """The convolutions of M members on (N, M * C, H, W)."""

    def __init__(self, layer: nn.Conv2d, stacks: Stacks) -> None:
        super().__init__()
        self.weight = stacks["weight"]  # (M, O, C, k, k)
        self.bias = stacks.get("bias")  # (M, O)
        self.stride = layer.stride
        self.padding = layer.padding
        self.dilation = layer.dilation

        count = len(self.weight)
        on_gpu = self.weight.device.type == "cuda"
        self.dense = on_gpu and layer.groups == 1 and count * layer.in_channels <= DENSE_CHANNELS
        self.groups = 1 if self.dense else count * layer.groups
        self.own = torch.eye(count).reshape(count, 1, count, 1, 1, 1).to(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight
        if self.dense:  # (M, O, M * C, k, k): zero where an input is another member's
            weight = (weight.unsqueeze(2) * self.own).flatten(2, 3)
        bias = None if self.bias is None else self.bias.flatten()
        weight = weight.flatten(0, 1)
        return F.conv2d(x, weight, bias, self.stride, self.padding, self.dilation, self.groups)


class FoldedLinear(nn.Module):
    """The linear layers of M members on (N, M * D)."""

    def __init__(self, stacks: Stacks) -> None:
        super().__init__()
        self.weight = stacks["weight"]  # (M, O, D)
        self.bias = stacks.get("bias")  # (M, O)

    def forward(self, x: Tensor) -> Tensor:
        count, _, width = self.weight.shape
        inputs = x.reshape(len(x), count, width).transpose(0, 1)  # (M, N, D)
        outputs = inputs @ self.weight.mT
        if self.bias is not None:
            outputs = outputs + self.bias.unsqueeze(1)
        return outputs.transpose(0, 1).flatten(1)


class FoldedBatchNorm(nn.Module):
    """The BatchNorms of M members on (N, M * C, ...); their running statistics move in place."""

    def __init__(self, layer: nn.BatchNorm1d | nn.BatchNorm2d, stacks: Stacks) -> None:
        super().__init__()
        self.stacks = dict(stacks)
        assert layer.momentum is not None
        self.momentum = layer.momentum
        self.eps = layer.eps

    def forward(self, x: Tensor) -> Tensor:
        names = ("running_mean", "running_var", "weight", "bias")
        mean, variance, weight, bias = (self.stacks[name].view(-1) for name in names)
        if self.training:
            self.stacks["num_batches_tracked"].add_(1)
        return F.batch_norm(x, mean, variance, weight, bias, self.training, self.momentum, self.eps)


def fold_convolution(layer: nn.Conv2d, stacks: Stacks, count: int) -> nn.Module | None:
    return FoldedConv2d(layer, stacks) if layer.padding_mode == "zeros" else None


def fold_linear(layer: nn.Linear, stacks: Stacks, count: int) -> nn.Module:
    return FoldedLinear(stacks)


def fold_batch_norm(
    layer: nn.BatchNorm1d | nn.BatchNorm2d, stacks: Stacks, count: int
) -> nn.Module | None:
    usual = layer.affine and layer.track_running_stats and layer.momentum is not None
    return FoldedBatchNorm(layer, stacks) if usual else None


def fold_padding(layer: PadChannels, stacks: Stacks, count: int) -> nn.Module:
    return PadChannels(layer.before, layer.after, members=count)


# Layers whose parameters or channels must be known. All others are taken as they are; what they
# compute is checked.
FOLDS: dict[type[nn.Module], Callable[..., nn.Module | None]] = {
    nn.Conv2d: fold_convolution,
    nn.Linear: fold_linear,
    nn.BatchNorm1d: fold_batch_norm,
    nn.BatchNorm2d: fold_batch_norm,
    PadChannels: fold_padding,
}
