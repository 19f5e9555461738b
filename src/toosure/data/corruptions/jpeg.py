"""JPEG's loss, batched: colours, subsampling, cosine transform, quantisation and back."""

from math import pi

import torch
from torch import Tensor
from torch.nn import functional as F

# The quantisation tables (8, 8) of the standard's Annex K.
LUMINANCE = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
CHROMINANCE = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    *((99,) * 8,) * 4,
)
RGB_TO_YCBCR = (
    (0.299, 0.587, 0.114),
    (-0.168735892, -0.331264108, 0.5),
    (0.5, -0.418687589, -0.081312411),
)
Table = tuple[tuple[int, ...], ...]


def jpeg_compression(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Save as JPEG and read again: quality 80 to 40, colours at half the resolution (4:2:0)."""
    return jpeg(x, (80, 65, 58, 50, 40)[severity - 1])


def jpeg(x: Tensor, quality: int) -> Tensor:
    """Compress pixels (N, 1 or 3, H, W) in [0, 1] at a quality from 1 to 100.

    Only rounding loses anything, here as in the format; the entropy coding is lossless and left
    out. Reference: ITU-T T.81 (1992), Annexes A and K.
    """
    height, width = x.shape[2:]
    levels = (x * 255).round()
    if x.shape[1] == 1:
        return quantise(levels, LUMINANCE, quality)[..., :height, :width] / 255

    matrix = torch.tensor(RGB_TO_YCBCR, device=x.device, dtype=x.dtype)
    planes = torch.einsum("kc,nchw->nkhw", matrix, levels)
    planes[:, 1:] += 128
    # 16 columns, so that the halved colours have whole blocks; rows are padded after halving.
    planes = pad_to_multiple(planes.round().clamp(0, 255), 2, 16)

    luminance = quantise(planes[:, :1], LUMINANCE, quality)[..., :height, :width]
    colour = quantise(halve(planes[:, 1:]), CHROMINANCE, quality)
    # Drop what padding added, so that doubling does not read it.
    colour = colour[..., : (height + 1) // 2, : (width + 1) // 2]
    blue, red = double(colour)[..., :height, :width].sub(128).split(1, 1)

    rgb = [
        luminance + 1.402 * red,
        luminance - 0.344136286 * blue - 0.714136286 * red,
        luminance + 1.772 * blue,
    ]
    return torch.cat(rgb, 1).round().clamp(0, 255) / 255


def pad_to_multiple(planes: Tensor, rows: int = 8, columns: int = 8) -> Tensor:
    """Repeat the last row and column up to multiples of `rows` and `columns`."""
    bottom = -planes.shape[2] % rows
    right = -planes.shape[3] % columns
    return F.pad(planes, (0, right, 0, bottom), mode="replicate")


def halve(planes: Tensor) -> Tensor:
    """Average 2 x 2 pixels; halves are rounded up and down in turn, as libjpeg does."""
    total = F.avg_pool2d(planes, 2, divisor_override=1)
    bias = torch.arange(total.shape[3], device=planes.device) % 2 + 1
    return ((total + bias) / 4).floor()


def double(planes: Tensor) -> Tensor:
    """Double the resolution with weights 3/4 and 1/4 (libjpeg's "fancy" upsampling)."""
    padded = F.pad(planes, (1, 1, 1, 1), mode="replicate")
    middle = padded[:, :, 1:-1]
    upper = 3 * middle + padded[:, :, :-2]
    lower = 3 * middle + padded[:, :, 2:]
    rows = torch.stack([upper, lower], 3).flatten(2, 3)

    # The addends 8 and 7 round halves of 16 up and down in turn.
    middle = rows[..., 1:-1]
    left = 3 * middle + rows[..., :-2] + 8
    right = 3 * middle + rows[..., 2:] + 7
    return torch.stack([left, right], 4).flatten(3, 4).div(16).floor()


def quantise(planes: Tensor, table: Table, quality: int) -> Tensor:
    """Transform blocks of 8 x 8, round their coefficients to multiples of the table, and back.

    The sums between the two directions are rounded to quarters, as libjpeg's integers are:
    otherwise a coefficient near half a step would be rounded the other way.
    """
    planes = pad_to_multiple(planes)
    count, channels, height, width = planes.shape
    blocks = planes.view(count, channels, height // 8, 8, width // 8, 8).transpose(3, 4) - 128

    basis = cosine_basis(planes)  # in both directions, 8 times the orthonormal transform
    coefficients = round_half_up(basis @ (round_half_up(blocks @ basis.T * 4) / 4)) / 8
    steps = quantisation_steps(table, quality, planes)
    quantised = (coefficients.abs() / steps + 0.5).floor() * steps * coefficients.sign()

    blocks = round_half_up((round_half_up(basis.T @ quantised * 4) / 4) @ basis / 8) + 128
    return blocks.transpose(3, 4).reshape(planes.shape).clamp(0, 255)


def round_half_up(x: Tensor) -> Tensor:
    return (x + 0.5).floor()


def cosine_basis(like: Tensor) -> Tensor:
    """Return the cosine transform (8, 8), its rows of squared length 8."""
    index = torch.arange(8, device=like.device, dtype=like.dtype)
    basis = torch.cos(pi * (2 * index + 1) * index[:, None] / 16) * 2**0.5
    basis[0] = 1
    return basis


def quantisation_steps(table: Table, quality: int, like: Tensor) -> Tensor:
    """Scale a table by quality as libjpeg does."""
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    steps = [[min(max((value * scale + 50) // 100, 1), 255) for value in row] for row in table]
    return torch.tensor(steps, device=like.device, dtype=like.dtype)
