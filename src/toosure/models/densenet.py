"""The densely connected networks of Huang et al., for CIFAR."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toosure.models.arguments import check_dropout, image_shape
from toosure.models.initialise import he_initialise
from toosure.models.norm_relu import norm_relu


class DenseLayer(nn.Module):
    """Append `growth` channels: BN, ReLU and a 3x3 convolution of all channels before them."""

    def __init__(self, inputs: int, growth: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, growth, 3, padding=1, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        new = self.dropout(self.conv1(norm_relu(self.bn1, x)))
        return torch.cat([x, new], 1)


class BottleneckLayer(nn.Module):
    """Append `growth` channels, computed by a 1x1 convolution to 4 growth and a 3x3 convolution."""

    def __init__(self, inputs: int, growth: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        new = self.dropout(self.conv1(norm_relu(self.bn1, x)))
        new = self.dropout(self.conv2(norm_relu(self.bn2, new)))
        return torch.cat([x, new], 1)


class Transition(nn.Module):
    """Mix the channels, to fewer if compressed, and halve the image."""

    def __init__(self, inputs: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(inputs)
        self.conv = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.dropout(self.conv(norm_relu(self.bn, x)))
        return F.avg_pool2d(mixed, 2)


class DenseNet(nn.Module):
    """Three dense blocks of `layers` layers with transitions between them."""

    def __init__(
        self,
        layers: int,
        growth: int,
        bottleneck: bool,
        channels: int,
        classes: int,
        dropout: float,
    ) -> None:
        super().__init__()
        layer = BottleneckLayer if bottleneck else DenseLayer
        width = 2 * growth if bottleneck else 16
        self.conv = nn.Conv2d(channels, width, 3, padding=1, bias=False)

        blocks: list[nn.Module] = []
        for block in range(3):
            if block > 0:
                outputs = width // 2 if bottleneck else width
                blocks.append(Transition(width, outputs, dropout))
                width = outputs
            widths = [width + growth * index for index in range(layers)]
            blocks.append(nn.Sequential(*(layer(inputs, growth, dropout) for inputs in widths)))
            width += growth * layers
        self.blocks = nn.Sequential(*blocks)

        self.bn = nn.BatchNorm2d(width)
        self.head = nn.Linear(width, classes)
        he_initialise(self)

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head: the last activation's mean over the image."""
        x = self.blocks(self.conv(x))
        return norm_relu(self.bn, x).mean((2, 3))  # (N, width)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))  # (N, classes)
        return logits


def densenet(
    inputs: tuple[int, ...] = (3, 32, 32),
    classes: int = 10,
    depth: int = 40,
    growth: int = 12,
    bottleneck: bool = False,
    dropout: float = 0.0,
) -> DenseNet:
    """Build a DenseNet of 3n + 4 layers, or a DenseNet-BC of 6n + 4 if `bottleneck`.

    BC has bottlenecks, and transitions that halve the channels. The first convolution has 16
    channels, in BC twice the growth. `dropout` acts after each convolution but the first (the paper
    uses 0.2 without augmentation).
    Reference: Huang et al. (2017), Densely Connected Convolutional Networks, arXiv 1608.06993.

    >>> sum(p.numel() for p in densenet(depth=10, growth=4).parameters())
    8562
    """
    channels, height, width = image_shape(inputs, "a DenseNet")
    check_dropout(dropout)

    multiple = 6 if bottleneck else 3  # three blocks of layers with two convolutions, or one
    layers, rest = divmod(depth - 4, multiple)
    if rest or layers < 1 or growth < 1:
        raise ValueError(
            f"a DenseNet{'-BC' if bottleneck else ''} needs a depth of {multiple}n + 4 and "
            f"growth >= 1; got {depth} and {growth}"
        )
    if min(height, width) < 4:
        raise ValueError(f"a DenseNet halves its images twice; got {height} x {width} pixels")
    return DenseNet(layers, growth, bottleneck, channels, classes, dropout)


def densenet40(
    inputs: tuple[int, ...] = (3, 32, 32),
    classes: int = 10,
    growth: int = 12,
    dropout: float = 0.0,
) -> DenseNet:
    """Build DenseNet-40 (1.0 million parameters with growth 12).

    Reference: Huang et al. (2017), Densely Connected Convolutional Networks, arXiv 1608.06993.
    """
    return densenet(inputs, classes, 40, growth, False, dropout)


def densenet_bc100(
    inputs: tuple[int, ...] = (3, 32, 32),
    classes: int = 10,
    growth: int = 12,
    dropout: float = 0.0,
) -> DenseNet:
    """Build DenseNet-BC-100 (0.8 million parameters with growth 12).

    Reference: Huang et al. (2017), Densely Connected Convolutional Networks, arXiv 1608.06993.
    """
    return densenet(inputs, classes, 100, growth, True, dropout)
