"""The pyramidal residual networks of Han et al., additive version, for CIFAR."""

import math

from torch import Tensor, nn
from torch.nn import functional as F

from toosure.models.arguments import check_dropout, image_shape
from toosure.models.initialise import he_initialise
from toosure.models.padding import PadChannels


class PyramidBlock(nn.Module):
    """Add BN-conv-BN-ReLU-conv-BN to a shortcut that is pooled and padded with zero channels."""

    def __init__(self, inputs: int, planes: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, planes, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(planes)
        self.stride = stride
        self.pad = PadChannels(0, planes - inputs) if planes > inputs else nn.Identity()

    def shortcut(self, x: Tensor) -> Tensor:
        """Pool and pad the input to the shape of the output."""
        if self.stride == 2:  # an odd side is rounded up, as by the convolution
            x = F.avg_pool2d(x, 2, ceil_mode=True)
        padded: Tensor = self.pad(x)
        return padded

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn2(self.conv1(self.bn1(x))))
        residual: Tensor = self.bn3(self.conv2(self.dropout(out)))
        return residual + self.shortcut(x)


class PyramidNet(nn.Module):
    """Stack three stages of `blocks` blocks; channels grow linearly from 16 to 16 + alpha."""

    def __init__(
        self, blocks: int, alpha: float, channels: int, classes: int, dropout: float
    ) -> None:
        super().__init__()
        widths = [round(16 + alpha * k / (3 * blocks)) for k in range(3 * blocks + 1)]
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)

        # The second and the third stage begin with a stride of 2.
        layers = [
            PyramidBlock(widths[k], widths[k + 1], 2 if k in (blocks, 2 * blocks) else 1, dropout)
            for k in range(3 * blocks)
        ]
        self.layer1 = nn.Sequential(*layers[:blocks])
        self.layer2 = nn.Sequential(*layers[blocks : 2 * blocks])
        self.layer3 = nn.Sequential(*layers[2 * blocks :])

        self.bn_final = nn.BatchNorm2d(widths[-1])
        self.head = nn.Linear(widths[-1], classes)
        he_initialise(self)

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head: the last activation's mean over the image."""
        x = self.layer3(self.layer2(self.layer1(self.bn1(self.conv1(x)))))
        return F.relu(self.bn_final(x)).mean((2, 3))  # (N, 16 + alpha)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))  # (N, classes)
        return logits


def pyramidnet(
    inputs: tuple[int, ...] = (3, 32, 32),
    classes: int = 10,
    depth: int = 110,
    alpha: float = 270.0,
    dropout: float = 0.0,
) -> PyramidNet:
    """Build a PyramidNet of 6n + 2 layers; block k of 3n has round(16 + alpha k / 3n) channels.

    `dropout` (not in the paper) acts between the convolutions of each block.
    Reference: Han et al. (2017), Deep Pyramidal Residual Networks, arXiv 1610.02915.

    >>> sum(p.numel() for p in pyramidnet(depth=20, alpha=48).parameters())
    310845
    """
    channels, _, _ = image_shape(inputs, "a PyramidNet")
    check_dropout(dropout)
    blocks, rest = divmod(depth - 2, 6)
    if rest or blocks < 1 or not 0 <= alpha < math.inf:
        raise ValueError(
            "a PyramidNet needs a depth of 6n + 2 (8, 14, ..., 110) and a finite alpha >= 0; "
            f"got {depth} and {alpha}"
        )
    return PyramidNet(blocks, alpha, channels, classes, dropout)


def pyramidnet110(
    inputs: tuple[int, ...] = (3, 32, 32),
    classes: int = 10,
    alpha: float = 270.0,
    dropout: float = 0.0,
) -> PyramidNet:
    """Build PyramidNet-110: 28.5 million parameters, or 1.8 for alpha=48 and 3.9 for alpha=84.

    Reference: Han et al. (2017), Deep Pyramidal Residual Networks, arXiv 1610.02915.
    """
    return pyramidnet(inputs, classes, 110, alpha, dropout)
