"""Blurs: defocus, frosted glass, motion, zoom, Gaussian."""

from math import ceil

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from toosure.data.augment import cut
from toosure.data.corruptions.noise import uniform


def gaussian_matrix(size: int, sd: float, truncate: float, mirror: bool, like: Tensor) -> Tensor:
    """Return the (size, size) matrix of a Gaussian filter, borders repeated or mirrored."""
    if sd == 0:
        return torch.eye(size, dtype=like.dtype, device=like.device)
    radius = int(truncate * sd + 0.5)
    reach = np.arange(-radius, radius + 1)
    weight = np.exp(-0.5 * (reach / sd) ** 2)
    weight /= weight.sum()
    place = np.arange(size)[:, None] + reach  # (size, taps)
    if mirror:  # d c b a | a b c d | d c b a
        place = place % (2 * size)
        place = np.where(place < size, place, 2 * size - 1 - place)
    matrix = np.zeros((size, size))
    np.add.at(matrix, (np.arange(size)[:, None], place.clip(0, size - 1)), weight[None])
    return torch.as_tensor(matrix, dtype=like.dtype, device=like.device)


def smooth(x: Tensor, sd: float, truncate: float = 4.0, mirror: bool = False) -> Tensor:
    """Filter the last two axes with a Gaussian, as scipy.ndimage does."""
    rows = gaussian_matrix(x.shape[-2], sd, truncate, mirror, x)
    columns = gaussian_matrix(x.shape[-1], sd, truncate, mirror, x)
    return rows @ x @ columns.T


def gaussian_blur(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Blur with a Gaussian."""
    return smooth(x, (0.4, 0.6, 0.7, 0.8, 1.0)[severity - 1])


def defocus_blur(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Blur with a disk whose edge is softened by a 3 x 3 Gaussian."""
    radius, soft = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))[severity - 1]
    at = torch.arange(-3, 4, dtype=x.dtype, device=x.device)
    disk = (at[:, None] ** 2 + at**2 <= radius**2).to(x.dtype)  # (7, 7)
    edge = torch.exp(-0.5 * (at[2:5] / soft) ** 2)
    edge = edge / edge.sum()
    kernel = F.conv2d(
        (disk / disk.sum())[None, None], torch.outer(edge, edge)[None, None], padding=1
    )
    flat = F.pad(x.flatten(0, 1)[:, None], (3, 3, 3, 3), mode="reflect")
    return F.conv2d(flat, kernel).view_as(x)


def glass_blur(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Blur, take each pixel from a neighbour above or to the left, and blur again.

    The published script goes from the last pixel to the first, means to swap, and copies; so each
    pixel has the old value of its neighbour, and all can be moved at once.
    """
    sd, times = ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))[severity - 1]
    x = (smooth(x, sd) * 255 + 1e-4).floor() / 255  # 0.25 changes smooth places by 3e-4 levels
    count, channels, height, width = x.shape
    rows = torch.arange(height, device=x.device)[:, None]
    columns = torch.arange(width, device=x.device)
    inside = (rows >= 2) & (columns >= 2)  # the script's loops leave two rows and columns alone
    for _ in range(times):
        step = torch.randint(-1, 1, (2, count, height, width), generator=generator, device=x.device)
        down, right = step * inside
        place = ((rows + down) * width + columns + right).flatten(1)[:, None]  # (N, 1, H W)
        x = x.flatten(2).gather(2, place.expand(-1, channels, -1)).view_as(x)
    return smooth(x, sd)


def motion_blur(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Smear along a direction between -45 and 45 degrees, rounded as ImageMagick does."""
    radius, sd = ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))[severity - 1]
    return levels(smear(x, radius, sd, uniform((len(x),), -45, 45, generator)))


def levels(x: Tensor) -> Tensor:
    """Round to the nearest of 256 levels, halves upwards."""
    return (x * 255 + 0.5 + 1e-3).floor() / 255


def smear(x: Tensor, radius: int, sd: float, degrees: Tensor) -> Tensor:
    """Sum pixels along a ray from each, weighted by half a Gaussian, as ImageMagick does."""
    taps = torch.arange(2 * radius + 1, device=x.device, dtype=x.dtype)
    weight = torch.exp(-0.5 * (taps / sd) ** 2)
    shares = (weight / weight.sum()).tolist()
    angle = torch.deg2rad(degrees)[:, None]
    right = (taps * angle.cos() - 0.5).ceil().long()  # (N, taps)
    down = (taps * angle.sin() - 0.5).ceil().long()
    rows = torch.arange(x.shape[2], device=x.device)
    columns = torch.arange(x.shape[3], device=x.device)
    out = torch.zeros_like(x)
    for tap, share in enumerate(shares):
        r = (rows + down[:, tap, None]).clamp(0, x.shape[2] - 1)
        c = (columns + right[:, tap, None]).clamp(0, x.shape[3] - 1)
        out += share * cut(x, r, c)
    return out


def zoom_blur(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Average the image with its enlargements by 0, 1, ... percent."""
    largest = (1.06, 1.11, 1.16, 1.21, 1.26)[severity - 1]
    factors = np.arange(1, largest, 0.01)  # may hold the end itself, as in the published script
    return (x + sum(enlarge(x, factor) for factor in factors)) / (len(factors) + 1)


def enlarge(x: Tensor, factor: float) -> Tensor:
    """Enlarge the middle of an image to the image's size, with linear interpolation."""
    size = x.shape[-2:]
    part = [ceil(side / factor) for side in size]
    top, left = ((side - p) // 2 for side, p in zip(size, part, strict=True))
    middle = x[..., top : top + part[0], left : left + part[1]]
    large = [round(p * factor) for p in part]
    out = F.interpolate(middle, size=large, mode="bilinear", align_corners=True)
    top, left = ((long - side) // 2 for long, side in zip(large, size, strict=True))
    return out[..., top : top + size[0], left : left + size[1]]
