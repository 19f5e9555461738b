"""The ImageNet residual networks of He et al., with a stem for large images or for small ones."""

from typing import Literal

from torch import Tensor, nn

from toosure.models.arguments import check_dropout, image_shape
from toosure.models.initialise import he_initialise
from toosure.models.norm_relu import norm_relu

Stem = Literal["auto", "imagenet", "small"]
STEMS = ("auto", "imagenet", "small")
MAX_SMALL_SIDE = 64  # pixels; `auto` takes the small stem up to here


class BasicBlock(nn.Module):
    """Add two 3x3 convolutions to a shortcut."""

    widening = 1

    def __init__(self, inputs: int, planes: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, planes, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = shortcut(inputs, planes, stride)

    def forward(self, x: Tensor) -> Tensor:
        # Nothing is done in place, here and below: curvature differentiates twice through
        # activations.
        out = norm_relu(self.bn1, self.conv1(x))
        return norm_relu(self.bn2, self.conv2(self.dropout(out)), self.downsample(x))


class Bottleneck(nn.Module):
    """Add a 3x3 convolution, between 1x1 convolutions that narrow and widen, to a shortcut."""

    widening = 4

    def __init__(self, inputs: int, planes: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, planes, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.dropout = nn.Dropout(dropout)
        self.conv3 = nn.Conv2d(planes, 4 * planes, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * planes)
        self.downsample = shortcut(inputs, 4 * planes, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = norm_relu(self.bn1, self.conv1(x))
        out = norm_relu(self.bn2, self.conv2(out))
        return norm_relu(self.bn3, self.conv3(self.dropout(out)), self.downsample(x))


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Return the identity if the shapes agree, else a projection (option B)."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class ImageNetResNet(nn.Module):
    """Stack a stem and four stages of blocks, each stage twice as wide as the one before.

    Parameters have torchvision's names, except that the last layer `fc` is called `head`.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        blocks: tuple[int, int, int, int],
        channels: int,
        classes: int,
        small: bool,
        width: int,
        dropout: float,
    ) -> None:
        super().__init__()
        kernel, stride = (3, 1) if small else (7, 2)
        self.conv1 = nn.Conv2d(channels, width, kernel, stride, padding=kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, 2, padding=1)

        # The first block of each stage but the first halves the image.
        stages = []
        inputs = width
        for stage, count in enumerate(blocks):
            planes = width << stage
            layers = [block(inputs, planes, 1 if stage == 0 else 2, dropout)]
            inputs = planes * block.widening
            layers += [block(inputs, planes, 1, dropout) for _ in range(count - 1)]
            stages.append(nn.Sequential(*layers))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages

        self.head = nn.Linear(inputs, classes)
        he_initialise(self)

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head: the last stage's mean over the image."""
        x = self.maxpool(norm_relu(self.bn1, self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return x.mean((2, 3))  # (N, 8 width), with bottlenecks (N, 32 width)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))  # (N, classes)
        return logits


def resnet18(
    inputs: tuple[int, ...] = (3, 32, 32),
    classes: int = 10,
    stem: Stem = "auto",
    width: int = 64,
    dropout: float = 0.0,
) -> ImageNetResNet:
    """Build ResNet-18: 11.7 million parameters for ImageNet, 11.2 for CIFAR-10.

    `stem="imagenet"` is a 7x7 convolution and a max-pooling, each of stride 2; "small" is one 3x3
    convolution; "auto" takes "small" for images of at most 64 pixels per side. `width` is that of
    the first stage. `dropout` acts before the last convolution of each block.
    Reference: He et al. (2016), Deep Residual Learning, Table 1, arXiv 1512.03385.

    >>> sum(p.numel() for p in resnet18((3, 224, 224), 1000).parameters())
    11689512
    """
    return build(BasicBlock, (2, 2, 2, 2), inputs, classes, stem, width, dropout)


def resnet50(
    inputs: tuple[int, ...] = (3, 32, 32),
    classes: int = 10,
    stem: Stem = "auto",
    width: int = 64,
    dropout: float = 0.0,
) -> ImageNetResNet:
    """Build ResNet-50 of bottlenecks: 25.6 million parameters for ImageNet, 23.5 for CIFAR-10.

    The 3x3 convolution has the stride, as in fb.resnet.torch and torchvision (in the paper the
    first 1x1 has it). The settings are those of resnet18.
    Reference: He et al. (2016), Deep Residual Learning, Table 1, arXiv 1512.03385.
    """
    return build(Bottleneck, (3, 4, 6, 3), inputs, classes, stem, width, dropout)


def build(
    block: type[BasicBlock] | type[Bottleneck],
    blocks: tuple[int, int, int, int],
    inputs: tuple[int, ...],
    classes: int,
    stem: Stem,
    width: int,
    dropout: float,
) -> ImageNetResNet:
    """Check the settings and build the network; the stem "auto" goes by the size of the images."""
    channels, *sides = image_shape(inputs, "a ResNet")
    check_dropout(dropout)
    if stem not in STEMS:
        raise ValueError(f"stem must be one of {', '.join(STEMS)}; got {stem!r}")
    if width < 1:
        raise ValueError(f"width is the channels of the first stage, at least 1; got {width}")

    small = stem == "small"
    if stem == "auto":
        small = max(sides) <= MAX_SMALL_SIDE
    return ImageNetResNet(block, blocks, channels, classes, small, width, dropout)
