"""The initial weights that most convolutional networks here share."""

from torch import nn


def he_initialise(model: nn.Module) -> None:
    """Draw convolutions from N(0, 2 / (k^2 channels out)) and set the biases of heads to 0.

    This is the initialisation of fb.resnet.torch, which the code of WRN, PyramidNet and DenseNet
    shares. The rest is PyTorch's own: BatchNorm at 1 and 0, heads uniform within
    1/sqrt(channels in).
    Reference: He et al. (2015), Delving Deep into Rectifiers, Sec. 2.2, arXiv 1502.01852.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
