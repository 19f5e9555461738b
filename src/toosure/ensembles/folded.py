"""A network that computes several members in one pass, side by side in its channels.

Features (N, C, ...) of one network become (N, M * C, ...): the channels of the first member, then
those of the second, and so on. ReLU, pooling, sums and flattening need no change; a convolution
becomes a grouped one of M times the channels, and a BatchNorm a wider one. So M members take as
many kernel launches as one, without the dispatch of `torch.func.vmap`.

cuDNN computes some grouped convolutions of few channels group by group, with copies between. Such
`narrow` ones can be dense instead, with weights of 0 between members: M times the arithmetic in
one launch.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import skip_init

from toosure.models.padding import PadChannels

CHECKED_ROWS = 4
CHECKED_ERROR = 1e-6  # of the largest logit, in float64


def folded(members: Sequence[nn.Module], example: Tensor, narrow: int = 0) -> nn.Module | None:
    """Return the members as one network, (N, M * C, ...) to (N, M * classes), or None.

    Its parameters and buffers have the names of a member's, and are those of all members in a row.
    Convolutions of up to `narrow` channels a member are dense ones. None if a layer is not
    known here, or where the folded network does not compute what the members compute: one that
    concatenates channels, say.
    """
    network = widened(members[0], len(members), narrow)
    if network is None:
        return None

    fill(network, members)
    return network if computes_the_same(network, members, example) else None


def widened(member: nn.Module, count: int, narrow: int) -> nn.Module | None:
    """Return a copy of a member with room for `count` of them; None if a layer has none."""
    network = deepcopy(member)
    for path, layer in list(network.named_modules()):
        widen = WIDER.get(type(layer))
        if widen is None:
            continue
        if isinstance(layer, nn.Conv2d) and is_narrow(layer, narrow):
            widen = DenseConvolution
        wider = widen(layer, count)
        if wider is None or not path:
            return None
        network.set_submodule(path, wider.train(layer.training))

    sizes = {name: len(p) for name, p in member.named_parameters() if p.dim()}
    wider_sizes = {name: len(p) for name, p in network.named_parameters() if p.dim()}
    return network if wider_sizes == {name: count * size for name, size in sizes.items()} else None


def fill(network: nn.Module, members: Sequence[nn.Module]) -> None:
    """Put the parameters and buffers of the members into the folded network, in a row."""
    first = next(members[0].parameters())
    network.to(first)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            own = [member.get_parameter(name) for member in members]
            parameter.data = torch.cat([each.data for each in own])
            parameter.requires_grad_(own[0].requires_grad)

        for name, _ in list(network.named_buffers()):
            buffers = [member.get_buffer(name) for member in members]
            join = torch.cat if buffers[0].dim() else torch.stack
            path, _, last = name.rpartition(".")
            network.get_submodule(path)._buffers[last] = join(buffers)


def computes_the_same(network: nn.Module, members: Sequence[nn.Module], example: Tensor) -> bool:
    """Whether the folded network returns the logits of its members, on rows of noise.

    Copies in float64 are compared, so that a small mix-up is not taken for rounding.
    """
    generator = torch.Generator().manual_seed(0)
    shape = (len(members), CHECKED_ROWS, *example.shape[1:])
    rows = torch.randn(shape, generator=generator, dtype=torch.float64).to(example.device)

    try:
        with torch.no_grad():
            exact = [deepcopy(member).double().eval() for member in members]
            expected = torch.stack([member(x) for member, x in zip(exact, rows, strict=True)])
            logits = member_logits(deepcopy(network).double().eval(), rows)
        error = float((logits - expected).abs().max())
    except (RuntimeError, AttributeError, TypeError):  # shapes or attributes that do not fit
        return False
    return error <= CHECKED_ERROR * float(expected.abs().max())


def member_logits(network: nn.Module, inputs: Tensor) -> Tensor:
    """Return the logits (M, N, classes) of a folded network on inputs (M, N, C, ...)."""
    logits: Tensor = network(inputs.transpose(0, 1).flatten(1, 2))
    return logits.reshape(len(logits), len(inputs), -1).transpose(0, 1)


# -- layers ---------------------------------------------------------------------------------------


class LinearOfMembers(nn.Module):
    """The linear layers of `count` members on (N, count * D)."""

    def __init__(self, layer: nn.Linear, count: int) -> None:
        super().__init__()
        self.count = count
        outputs, inputs = layer.weight.shape
        self.weight = nn.Parameter(layer.weight.new_empty(count * outputs, inputs))
        self.bias = None
        if layer.bias is not None:
            self.bias = nn.Parameter(layer.bias.new_empty(count * outputs))

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight.view(self.count, -1, self.weight.shape[1])  # (M, O, D)
        inputs = x.reshape(len(x), self.count, -1).transpose(0, 1)  # (M, N, D)
        outputs = (inputs @ weight.mT).transpose(0, 1).flatten(1)
        return outputs if self.bias is None else outputs + self.bias


class DenseConvolution(nn.Module):
    """Join the convolutions of `count` members into one with zero weights between members.

    Its weight is that of a grouped convolution, (count * out, in, height, width). An infinite
    feature of one member makes all members NaN; such a run has diverged either way.
    """

    def __init__(self, layer: nn.Conv2d, count: int) -> None:
        super().__init__()
        self.count = count
        self.stride = layer.stride
        self.padding = layer.padding
        self.dilation = layer.dilation
        outputs, *rest = layer.weight.shape
        self.weight = nn.Parameter(layer.weight.new_empty(count * outputs, *rest))
        self.bias = None
        if layer.bias is not None:
            self.bias = nn.Parameter(layer.bias.new_empty(count * outputs))
        self.own: Tensor | None = None  # (count, count), which block is a member's own

    def forward(self, x: Tensor) -> Tensor:
        if self.own is None or self.own.device != x.device:
            self.own = torch.eye(self.count, dtype=torch.bool, device=x.device)
        weight = self.block_diagonal(self.own)
        return F.conv2d(x, weight, self.bias, self.stride, self.padding, self.dilation)

    def block_diagonal(self, own: Tensor) -> Tensor:
        """Return the dense weight, (count * out, count * in, ...), in the layout of the weight."""
        m = self.count
        _, inputs, height, width = self.weight.shape
        if self.weight.is_contiguous():
            blocks = self.weight.view(m, -1, 1, inputs, height, width)
            dense = torch.where(own.view(m, 1, m, 1, 1, 1), blocks, 0)
            return dense.flatten(2, 3).flatten(0, 1)

        rows = self.weight.permute(0, 2, 3, 1)  # channels last
        blocks = rows.reshape(m, -1, height, width, 1, inputs)
        dense = torch.where(own.view(m, 1, 1, 1, m, 1), blocks, 0)
        return dense.flatten(4, 5).flatten(0, 1).permute(0, 3, 1, 2)


def is_narrow(layer: nn.Conv2d, narrow: int) -> bool:
    """Whether a convolution of a member has so few channels that a dense one may be faster."""
    few = max(layer.in_channels, layer.out_channels) <= narrow
    return few and layer.groups == 1 and layer.padding_mode == "zeros"


def wider_convolution(layer: nn.Conv2d, count: int) -> nn.Module | None:
    """Return one convolution with a block of groups per member."""
    if layer.padding_mode != "zeros":
        return None
    wider: nn.Module = skip_init(
        nn.Conv2d,
        count * layer.in_channels,
        count * layer.out_channels,
        layer.kernel_size,
        layer.stride,
        layer.padding,
        layer.dilation,
        count * layer.groups,
        layer.bias is not None,
    )
    return wider


def wider_batch_norm(layer: nn.BatchNorm1d | nn.BatchNorm2d, count: int) -> nn.Module | None:
    """Return one BatchNorm of all channels; it counts the batches of each member."""
    if not layer.affine or not layer.track_running_stats or layer.momentum is None:
        return None
    return type(layer)(count * layer.num_features, layer.eps, layer.momentum)


def wider_padding(layer: PadChannels, count: int) -> nn.Module:
    return PadChannels(layer.before, layer.after, members=count)


# Layers that have parameters, or whose channels must be known. All others are taken as they are;
# what the network computes is checked.
WIDER: dict[type[nn.Module], Callable[..., nn.Module | None]] = {
    nn.Conv2d: wider_convolution,
    nn.Linear: LinearOfMembers,
    nn.BatchNorm1d: wider_batch_norm,
    nn.BatchNorm2d: wider_batch_norm,
    PadChannels: wider_padding,
}
