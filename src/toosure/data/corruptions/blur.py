"""Blurs: defocus, frosted glass, motion, zoom, Gaussian."""

from math import ceil

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from toosure.data.augment import gather_pixels
from toosure.data.corruptions.noise import uniform


def gaussian_matrix(size: int, std: float, truncate: float, mirror: bool, like: Tensor) -> Tensor:
    """Return the (size, size) matrix of a Gaussian filter, borders repeated or mirrored."""
    if std == 0:
        return torch.eye(size, dtype=like.dtype, device=like.device)

    radius = int(truncate * std + 0.5)
    offsets = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 * (offsets / std) ** 2)
    weights /= weights.sum()

    sources = np.arange(size)[:, None] + offsets  # (size, taps)
    if mirror:  # d c b a | a b c d | d c b a
        sources = sources % (2 * size)
        sources = np.where(sources < size, sources, 2 * size - 1 - sources)

    matrix = np.zeros((size, size))
    np.add.at(matrix, (np.arange(size)[:, None], sources.clip(0, size - 1)), weights[None])
    return torch.as_tensor(matrix, dtype=like.dtype, device=like.device)


def smooth(x: Tensor, std: float, truncate: float = 4.0, mirror: bool = False) -> Tensor:
    """Filter the last two axes with a Gaussian, as scipy.ndimage does."""
    rows = gaussian_matrix(x.shape[-2], std, truncate, mirror, x)
    columns = gaussian_matrix(x.shape[-1], std, truncate, mirror, x)
    return rows @ x @ columns.T


def gaussian_blur(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Blur with a Gaussian."""
    return smooth(x, (0.4, 0.6, 0.7, 0.8, 1.0)[severity - 1])


def defocus_blur(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Blur with a disk whose edge is softened by a 3 x 3 Gaussian."""
    radius, edge_std = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))[severity - 1]
    offsets = torch.arange(-3, 4, dtype=x.dtype, device=x.device)
    disk = (offsets[:, None] ** 2 + offsets**2 <= radius**2).to(x.dtype)  # (7, 7)

    edge = torch.exp(-0.5 * (offsets[2:5] / edge_std) ** 2)
    edge = edge / edge.sum()
    kernel = F.conv2d(
        (disk / disk.sum())[None, None], torch.outer(edge, edge)[None, None], padding=1
    )

    # One kernel serves all channels, so they join the batch.
    planes = F.pad(x.flatten(0, 1)[:, None], (3, 3, 3, 3), mode="reflect")
    return F.conv2d(planes, kernel).view_as(x)


def glass_blur(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Blur, take each pixel from a neighbour above or to the left, and blur again.

    The published script visits the pixels from last to first and means to swap neighbours, but
    copies. So each pixel gets the old value of its neighbour, and all can be moved at once.
    """
    std, rounds = ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))[severity - 1]
    # The addend undoes rounding errors. It has to stay below the 3e-4 levels by which a Gaussian
    # of std=0.25 changes smooth areas.
    x = (smooth(x, std) * 255 + 1e-4).floor() / 255

    count, channels, height, width = x.shape
    rows = torch.arange(height, device=x.device)[:, None]
    columns = torch.arange(width, device=x.device)
    # The script's loops never reach the first two rows and columns.
    moves = (rows >= 2) & (columns >= 2)

    for _ in range(rounds):
        step = torch.randint(-1, 1, (2, count, height, width), generator=generator, device=x.device)
        down, right = step * moves
        source = ((rows + down) * width + columns + right).flatten(1)[:, None]  # (N, 1, H W)
        x = x.flatten(2).gather(2, source.expand(-1, channels, -1)).view_as(x)
    return smooth(x, std)


def motion_blur(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Smear along a direction between -45 and 45 degrees, rounded as ImageMagick does."""
    radius, std = ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))[severity - 1]
    degrees = uniform((len(x),), -45, 45, generator)
    return round_to_levels(smear(x, radius, std, degrees))


def round_to_levels(x: Tensor) -> Tensor:
    """Round to the nearest of 256 levels, halves upwards."""
    return (x * 255 + 0.5 + 1e-3).floor() / 255


def smear(x: Tensor, radius: int, std: float, degrees: Tensor) -> Tensor:
    """Sum pixels along a ray from each, weighted by half a Gaussian, as ImageMagick does."""
    taps = torch.arange(2 * radius + 1, device=x.device, dtype=x.dtype)
    weights = torch.exp(-0.5 * (taps / std) ** 2)
    shares = (weights / weights.sum()).tolist()

    angle = torch.deg2rad(degrees)[:, None]
    right = (taps * angle.cos() - 0.5).ceil().long()  # (N, taps)
    down = (taps * angle.sin() - 0.5).ceil().long()

    rows = torch.arange(x.shape[2], device=x.device)
    columns = torch.arange(x.shape[3], device=x.device)
    out = torch.zeros_like(x)
    for tap, share in enumerate(shares):
        r = (rows + down[:, tap, None]).clamp(0, x.shape[2] - 1)
        c = (columns + right[:, tap, None]).clamp(0, x.shape[3] - 1)
        out += share * gather_pixels(x, r, c)
    return out


def zoom_blur(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Average the image with its enlargements by 0, 1, ... percent."""
    max_factor = (1.06, 1.11, 1.16, 1.21, 1.26)[severity - 1]
    factors = np.arange(1, max_factor, 0.01)  # may include its end, as in the published script
    return (x + sum(enlarge(x, factor) for factor in factors)) / (len(factors) + 1)


def enlarge(x: Tensor, factor: float) -> Tensor:
    """Enlarge the middle of an image to the image's size, with linear interpolation."""
    height, width = x.shape[-2:]
    middle = crop_middle(x, ceil(height / factor), ceil(width / factor))
    size = [round(side * factor) for side in middle.shape[-2:]]
    enlarged = F.interpolate(middle, size=size, mode="bilinear", align_corners=True)
    return crop_middle(enlarged, height, width)


def crop_middle(x: Tensor, height: int, width: int) -> Tensor:
    """Cut (height, width) pixels out of the middle of the last two axes."""
    top = (x.shape[-2] - height) // 2
    left = (x.shape[-1] - width) // 2
    return x[..., top : top + height, left : left + width]
