"""JPEG's loss, batched: colours, subsampling, cosine transform, quantisation and back."""

from math import pi

import torch
from torch import Tensor
from torch.nn import functional as F

# The tables of the standard's Annex K, row by row.
LUMINANCE = (
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55,
    14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29, 51, 87, 80, 62,
    18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92,
    49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
)  # fmt: skip
CHROMINANCE = (
    17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99,
    24, 26, 56, 99, 99, 99, 99, 99, 47, 66, 99, 99, 99, 99, 99, 99,
    *(99,) * 32,
)  # fmt: skip
FROM_RGB = (
    (0.299, 0.587, 0.114), (-0.168735892, -0.331264108, 0.5), (0.5, -0.418687589, -0.081312411),
)  # fmt: skip


def jpeg_compression(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Save as JPEG and read again: quality 80 to 40, colours at half the resolution (4:2:0)."""
    return jpeg(x, (80, 65, 58, 50, 40)[severity - 1])


def jpeg(x: Tensor, quality: int) -> Tensor:
    """Compress pixels (N, 1 or 3, H, W) in [0, 1] at a quality from 1 to 100.

    Only rounding is lossy here as in the format; the entropy coding, which loses nothing, is left
    out. Reference: ITU-T T.81 (1992), Annexes A and K.
    """
    height, width = x.shape[2:]
    levels = (x * 255).round()
    if x.shape[1] == 1:
        return coded(levels, LUMINANCE, quality)[..., :height, :width] / 255
    matrix = torch.tensor(FROM_RGB, device=x.device, dtype=x.dtype)
    planes = torch.einsum("kc,nchw->nkhw", matrix, levels)
    planes[:, 1:] += 128
    planes = whole(planes.round().clamp(0, 255), 2, 16)  # rows follow when the colours are halved
    luminance = coded(planes[:, :1], LUMINANCE, quality)[..., :height, :width]
    colour = coded(halved(planes[:, 1:]), CHROMINANCE, quality)
    blue, red = doubled(cropped(colour, height, width))[..., :height, :width].sub(128).split(1, 1)
    rgb = [
        luminance + 1.402 * red,
        luminance - 0.344136286 * blue - 0.714136286 * red,
        luminance + 1.772 * blue,
    ]
    return torch.cat(rgb, 1).round().clamp(0, 255) / 255


def whole(planes: Tensor, rows: int = 8, columns: int = 8) -> Tensor:
    """Repeat the last row and column up to multiples."""
    down, right = -planes.shape[2] % rows, -planes.shape[3] % columns
    return F.pad(planes, (0, right, 0, down), mode="replicate")


def halved(planes: Tensor) -> Tensor:
    """Average 2 x 2 pixels; halves are rounded up and down in turn, as libjpeg does."""
    total = F.avg_pool2d(planes, 2, divisor_override=1)
    bias = torch.arange(total.shape[3], device=planes.device) % 2 + 1
    return ((total + bias) / 4).floor()


def cropped(colour: Tensor, height: int, width: int) -> Tensor:
    """Drop what padding added, so that enlarging does not look at it."""
    return colour[..., : (height + 1) // 2, : (width + 1) // 2]


def doubled(planes: Tensor) -> Tensor:
    """Double the resolution with weights 3/4 and 1/4 (libjpeg's "fancy" upsampling)."""
    near = F.pad(planes, (1, 1, 1, 1), mode="replicate")
    rows = torch.stack(
        [3 * near[:, :, 1:-1] + near[:, :, :-2], 3 * near[:, :, 1:-1] + near[:, :, 2:]], 3
    ).flatten(2, 3)
    middle = rows[..., 1:-1]
    left, right = 3 * middle + rows[..., :-2] + 8, 3 * middle + rows[..., 2:] + 7
    return torch.stack([left, right], 4).flatten(3, 4).div(16).floor()


def coded(planes: Tensor, table: tuple[int, ...], quality: int) -> Tensor:
    """Transform blocks of 8 x 8, round their coefficients to multiples of the table, and back.

    The sums between the two directions are rounded to quarters, as libjpeg's integers are: a
    coefficient near half a step would else be rounded the other way.
    """
    planes = whole(planes)
    count, channels, height, width = planes.shape
    blocks = planes.view(count, channels, height // 8, 8, width // 8, 8).transpose(3, 4) - 128
    basis = cosines(planes)  # both directions together make 8 times the orthonormal transform
    steps = quantisation(table, quality, planes)
    found = nearest(basis @ (nearest(blocks @ basis.T * 4) / 4)) / 8
    kept = (found.abs() / steps + 0.5).floor() * steps * found.sign()
    back = nearest((nearest(basis.T @ kept * 4) / 4) @ basis / 8) + 128
    return back.transpose(3, 4).reshape(planes.shape).clamp(0, 255)


def nearest(x: Tensor) -> Tensor:
    """Round, halves upwards."""
    return (x + 0.5).floor()


def cosines(like: Tensor) -> Tensor:
    """Return the cosine transform (8, 8), its rows of squared length 8."""
    at = torch.arange(8, device=like.device, dtype=like.dtype)
    basis = torch.cos(pi * (2 * at + 1) * at[:, None] / 16) * 2**0.5
    basis[0] = 1
    return basis


def quantisation(table: tuple[int, ...], quality: int, like: Tensor) -> Tensor:
    """Scale a table by quality as libjpeg does."""
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    steps = [min(max((value * scale + 50) // 100, 1), 255) for value in table]
    return torch.tensor(steps, device=like.device, dtype=like.dtype).view(8, 8)
