"""Mean and standard deviation of raw pixels, and images standardised by them."""

from typing import Literal

import torch
from torch import Tensor

Standardise = Literal["channel", "global", "none"]


def pixel_statistics(pixels: Tensor, white: int, standardise: Standardise) -> tuple[Tensor, Tensor]:
    """Return the mean and standard deviation of raw pixels (N, C, H, W) in units of white."""
    if standardise == "none":
        return torch.zeros(pixels.shape[1], 1, 1), torch.ones(pixels.shape[1], 1, 1)

    if standardise == "channel":
        moments = torch.stack([raw_moments(channel) for channel in pixels.unbind(1)])  # (C, 2)
        mean = moments[:, 0].view(-1, 1, 1)
        std = (moments[:, 1].view(-1, 1, 1) - mean.square()).sqrt()
    elif standardise == "global":
        # In parts: torch makes int64 copies of what it sums, eight times the images.
        total = torch.zeros(pixels.shape[1:], dtype=torch.int64, device=pixels.device)
        for part in pixels.split(64):
            total += part.sum(0, dtype=torch.int64)
        mean = total.double() / len(pixels)  # (C, H, W)
        std = (raw_moments(pixels)[1] - mean.square().mean()).sqrt().view(1, 1, 1)
    else:
        raise ValueError(f"standardise must be channel, global or none; got {standardise!r}")

    std = torch.where(std > 0, std, torch.ones_like(std))  # constant pixels stay 0
    return (mean / white).float(), (std / white).float()


def array_statistics(x: Tensor, standardise: Standardise) -> tuple[Tensor, Tensor, float]:
    """Return mean, standard deviation and the value that counts as 1, of rows of any kind.

    Images of bytes count in units of 255. Floats are as they are: a channel of an image, or a
    column of a table, has a mean and a deviation. Whole numbers, which name tokens, have none.

    >>> mean, std, white = array_statistics(torch.tensor([[1.0, 5.0], [3.0, 5.0]]), "channel")
    >>> mean.tolist(), std.tolist(), white
    ([2.0, 5.0], [1.0, 1.0], 1.0)
    """
    if x.dtype == torch.uint8 and x.ndim == 4:
        return *pixel_statistics(x, 255, standardise), 255.0
    white = 255.0 if x.dtype == torch.uint8 else 1.0
    if standardise == "none" or x.dtype == torch.int64:
        return torch.zeros(()), torch.ones(()), white

    rows = x.double() / white
    if standardise == "channel":
        others = [axis for axis in range(x.ndim) if axis != 1]
        mean = rows.mean(others, keepdim=True)[0]
        std = rows.std(others, correction=0, keepdim=True)[0]
    elif standardise == "global":
        mean = rows.mean(0)
        std = (rows - mean).square().mean().sqrt()
    else:
        raise ValueError(f"standardise must be channel, global or none; got {standardise!r}")
    std = torch.where(std > 0, std, torch.ones_like(std))  # constant columns stay 0
    return mean.float(), std.float(), white


def standardised(pixels: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Return uint8 pixels, of which white is 255, as (pixel / 255 - mean) / std."""
    return pixels.to(mean.dtype).div_(255).sub_(mean).div_(std)


def raw_pixels(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Return the uint8 pixels that `standardised` made floats of."""
    return (x * std + mean).mul_(255).round_().clamp_(0, 255).byte()


def raw_moments(pixels: Tensor) -> Tensor:
    """Return the means of v and v^2 over uint8 values, from exact counts of each value."""
    counts = torch.bincount(pixels.flatten(), minlength=256).double()
    value = torch.arange(256, dtype=torch.float64, device=pixels.device)
    return torch.stack([counts @ value, counts @ value.square()]) / pixels.numel()
