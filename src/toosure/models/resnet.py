"""The CIFAR residual networks of He et al., with the parameter-free shortcut (option A)."""

import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from toosure.models.arguments import check_dropout, image_shape
from toosure.models.norm_relu import norm_relu
from toosure.models.padding import PadChannels


class Block(nn.Module):
    """Add two 3x3 convolutions to a shortcut that subsamples and pads the channels with zeros."""

    def __init__(self, inputs: int, planes: int, stride: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, planes, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.stride = stride
        missing = planes - inputs  # channels
        self.pad = PadChannels(missing // 2, missing - missing // 2) if missing else nn.Identity()

    def shortcut(self, x: Tensor) -> Tensor:
        """Subsample and pad the input to the shape of the output."""
        if self.stride > 1:
            x = x[:, :, :: self.stride, :: self.stride]
        padded: Tensor = self.pad(x)
        return padded

    def forward(self, x: Tensor) -> Tensor:
        # Nothing is done in place: curvature differentiates twice through these activations.
        out = norm_relu(self.bn1, self.conv1(x))
        return norm_relu(self.bn2, self.conv2(self.dropout(out)), self.shortcut(x))


class ResNet(nn.Module):
    """Stack three stages of `blocks` residual blocks with 16, 32 and 64 channels, then pool."""

    def __init__(self, blocks: int, channels: int, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = stage(16, 16, blocks, 1, dropout)
        self.layer2 = stage(16, 32, blocks, 2, dropout)
        self.layer3 = stage(32, 64, blocks, 2, dropout)
        self.head = nn.Linear(64, classes)

        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the head: the last stage's mean over the image."""
        x = norm_relu(self.bn1, self.conv1(x))
        x = self.layer3(self.layer2(self.layer1(x)))
        return x.mean((2, 3))  # (N, 64)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))  # (N, classes)
        return logits


def stage(inputs: int, planes: int, blocks: int, stride: int, dropout: float) -> nn.Sequential:
    """Build `blocks` blocks, the first of which changes channels and resolution."""
    rest = [Block(planes, planes, 1, dropout) for _ in range(blocks - 1)]
    return nn.Sequential(Block(inputs, planes, stride, dropout), *rest)


def resnet20(
    inputs: tuple[int, ...] = (3, 32, 32), classes: int = 10, dropout: float = 0.0
) -> ResNet:
    """Build the CIFAR ResNet of 20 layers (0.27 million parameters), Kaiming-normal initialisation.

    `dropout` (not in the paper) acts between the convolutions of each block.
    Reference: He et al. (2016), Deep Residual Learning, Sec. 4.2, arXiv 1512.03385.

    >>> sum(p.numel() for p in resnet20().parameters())
    269722
    """
    return cifar_resnet(3, inputs, classes, dropout)


def resnet56(
    inputs: tuple[int, ...] = (3, 32, 32), classes: int = 10, dropout: float = 0.0
) -> ResNet:
    """Build the CIFAR ResNet of 56 layers (0.85 million parameters), Kaiming-normal initialisation.

    Reference: He et al. (2016), Deep Residual Learning, Sec. 4.2, arXiv 1512.03385.
    """
    return cifar_resnet(9, inputs, classes, dropout)


def resnet110(
    inputs: tuple[int, ...] = (3, 32, 32), classes: int = 10, dropout: float = 0.0
) -> ResNet:
    """Build the CIFAR ResNet of 110 layers (1.7 million parameters), Kaiming-normal initialisation.

    Reference: He et al. (2016), Deep Residual Learning, Sec. 4.2, arXiv 1512.03385.
    """
    return cifar_resnet(18, inputs, classes, dropout)


def cifar_resnet(blocks: int, inputs: tuple[int, ...], classes: int, dropout: float) -> ResNet:
    channels, _, _ = image_shape(inputs, "a ResNet")
    check_dropout(dropout)
    return ResNet(blocks, channels, classes, dropout)


def load_published(model: ResNet, path: str | Path) -> ResNet:
    """Load published weights of a CIFAR ResNet (a state dict saved as .npz arrays) into ours.

    The names are those of akamaster's pytorch_resnet_cifar10, whose head is called `linear`.
    Its networks expect (x / 255 - mean) / std with ImageNet's mean and std.
    """
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            published = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    except (zipfile.BadZipFile, EOFError, ValueError) as error:
        raise ValueError(f"{path} is not a whole .npz of arrays: {error}") from error

    renamed = {name.replace("linear.", "head."): value for name, value in published.items()}
    shapes = {name: value.shape for name, value in model.state_dict().items()}
    required = {name for name in shapes if not name.endswith("num_batches_tracked")}
    if missing := sorted(required - renamed.keys()):
        raise ValueError(f"{path} lacks {len(missing)} arrays, such as {missing[0]}")
    if wrong := sorted(name for name in renamed if shapes.get(name) != renamed[name].shape):
        raise ValueError(f"{path} is of another network: {wrong[0]} does not fit")

    model.load_state_dict(renamed, strict=False)
    return model
