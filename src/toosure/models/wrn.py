"""The wide residual networks of Zagoruyko and Komodakis."""

from torch import Tensor, nn

from toosure.models.arguments import check_dropout, image_shape
from toosure.models.initialise import he_initialise
from toosure.models.norm_relu import norm_relu


class WideBlock(nn.Module):
    """Normalise, rectify and convolve twice, and add the input or its 1x1 projection."""

    def __init__(self, inputs: int, planes: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, planes, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.projects = inputs != planes
        if self.projects:
            self.shortcut = nn.Conv2d(inputs, planes, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        active = norm_relu(self.bn1, x)
        out = norm_relu(self.bn2, self.conv1(active))
        residual: Tensor = self.conv2(self.dropout(out))
        return residual + (self.shortcut(active) if self.projects else x)


class WideResNet(nn.Module):
    """Stack three stages of pre-activated blocks with 16, 32, 64 times `width` channels."""

    def __init__(
        self, blocks: int, width: int, channels: int, classes: int, dropout: float
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.layer1 = stage(16, 16 * width, blocks, 1, dropout)
        self.layer2 = stage(16 * width, 32 * width, blocks, 2, dropout)
        self.layer3 = stage(32 * width, 64 * width, blocks, 2, dropout)
        self.bn = nn.BatchNorm2d(64 * width)
        self.head = nn.Linear(64 * width, classes)
        he_initialise(self)

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head: the last activation's mean over the image."""
        x = self.layer3(self.layer2(self.layer1(self.conv1(x))))
        return norm_relu(self.bn, x).mean((2, 3))  # (N, 64 width)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))  # (N, classes)
        return logits


def stage(inputs: int, planes: int, blocks: int, stride: int, dropout: float) -> nn.Sequential:
    """Build `blocks` blocks, the first of which changes channels and resolution.

    At width 1 the first stage keeps its channels and so has no projection, as published.
    """
    rest = [WideBlock(planes, planes, 1, dropout) for _ in range(blocks - 1)]
    return nn.Sequential(WideBlock(inputs, planes, stride, dropout), *rest)


def wrn(
    inputs: tuple[int, ...] = (3, 32, 32),
    classes: int = 10,
    depth: int = 28,
    width: int = 10,
    dropout: float = 0.0,
) -> WideResNet:
    """Build the wide residual network WRN-depth-width; the depth is 6n + 4, n blocks per stage.

    `dropout` acts between the convolutions of each block (0.3 in the paper where it is used).
    Reference: Zagoruyko and Komodakis (2016), Wide Residual Networks, arXiv 1605.07146.

    >>> sum(p.numel() for p in wrn(depth=16, width=4).parameters())
    2748890
    """
    channels, _, _ = image_shape(inputs, "a wide ResNet")
    check_dropout(dropout)
    blocks, rest = divmod(depth - 4, 6)
    if rest or blocks < 1 or width < 1:
        raise ValueError(
            f"a wide ResNet needs a depth of 6n + 4 (10, 16, 22, 28, ...) and width >= 1; "
            f"got {depth} and {width}"
        )
    return WideResNet(blocks, width, channels, classes, dropout)


def wrn28_10(
    inputs: tuple[int, ...] = (3, 32, 32), classes: int = 10, dropout: float = 0.0
) -> WideResNet:
    """Build WRN-28-10 (36.5 million parameters), the network most tables use.

    Reference: Zagoruyko and Komodakis (2016), Wide Residual Networks, arXiv 1605.07146.
    """
    return wrn(inputs, classes, 28, 10, dropout)
