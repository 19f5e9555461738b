"""What the networks for images ask of their arguments, and how their convolutions start."""

from typing import Any

from torch import nn


def image_shape(inputs: Any, network: str) -> tuple[int, int, int]:
    """Return (channels, height, width), or say that the inputs are no images.

    >>> image_shape((3, 32, 32), "a ResNet")
    (3, 32, 32)
    """
    if isinstance(inputs, int) or len(inputs) != 3 or min(inputs) < 1:
        raise ValueError(f"{network} needs images, (channels, height, width); got inputs {inputs}")
    channels, height, width = inputs
    return channels, height, width


def check_dropout(dropout: float) -> None:
    """Raise unless the share of dropped activations lies in [0, 1)."""
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout is the share that is dropped, in [0, 1); got {dropout}")


def start_like_he(model: nn.Module) -> None:
    """Draw convolutions from N(0, 2 / (k^2 channels out)) and set the biases of heads to 0.

    It is the start of fb.resnet.torch, which the codes of WRN, PyramidNet and DenseNet share;
    the rest (BatchNorm at 1 and 0, heads uniform within 1/sqrt(channels in)) is PyTorch's own.
    Reference: He et al. (2015), Delving Deep into Rectifiers, Sec. 2.2, arXiv 1502.01852.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
