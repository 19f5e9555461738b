"""Brightness, contrast, saturation, elastic deformation and coarse pixels."""

import numpy as np
import torch
from torch import Tensor

from toosure.data.corruptions.blur import round_to_levels, smooth
from toosure.data.corruptions.noise import uniform


def brightness(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Raise the value of HSV: all channels grow in proportion, and black becomes grey."""
    rise = (0.05, 0.1, 0.15, 0.2, 0.3)[severity - 1]
    value = x.amax(1, keepdim=True)
    raised = (value + rise).clamp(max=1)
    return torch.where(value > 0, x * raised / value.clamp(min=1e-6), raised)


def saturate(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Change the saturation of HSV; grey counts as red without colour, as in the published set."""
    factor, rise = ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))[severity - 1]
    if x.shape[1] == 1:
        return x

    value = x.amax(1, keepdim=True)
    spread = value - x.amin(1, keepdim=True)
    saturation = spread / value.clamp(min=1e-6)

    # A channel is value * (1 - saturation * distance): its distance from the largest, in [0, 1].
    red = torch.tensor([0.0, 1.0, 1.0], device=x.device, dtype=x.dtype).view(3, 1, 1)
    distance = torch.where(spread > 0, (value - x) / spread.clamp(min=1e-6), red)
    return value * (1 - distance * (saturation * factor + rise).clamp(0, 1))


def contrast(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Draw every value towards its channel's mean."""
    factor = (0.75, 0.5, 0.4, 0.3, 0.15)[severity - 1]
    mean = x.mean((2, 3), keepdim=True)
    return (x - mean) * factor + mean


def elastic_transform(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Move three points of the image at random, then every pixel a little, smoothly."""
    # Each is a share of the image's shorter side.
    strengths = (
        (0, 0, 0.08),
        (0.05, 0.2, 0.07),
        (0.08, 0.06, 0.06),
        (0.1, 0.04, 0.05),
        (0.1, 0.03, 0.03),
    )
    amplitude, smoothness, affine_reach = strengths[severity - 1]
    count, _, height, width = x.shape
    side = min(height, width)
    x = sample(x, *affine(x, affine_reach * side, generator), edge=True)

    noise = uniform((count, 2, height, width), -1, 1, generator)
    moves = amplitude * side * smooth(noise, smoothness * side, truncate=3.0, mirror=True)
    rows = torch.arange(height, device=x.device)[:, None] + moves[:, 0]
    columns = torch.arange(width, device=x.device) + moves[:, 1]
    return sample(x, rows, columns, edge=False)


def affine(x: Tensor, reach: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return the rows and columns (N, H, W) that pixels come from if three points move.

    The points move by up to `reach` pixels; they define one affine map per image.
    """
    count, _, height, width = x.shape
    row = height // 2
    column = width // 2
    third = min(height, width) // 3
    points = [
        (column + third, row + third),
        (column + third, row - third),
        (column - third, row - third),
    ]
    before = torch.tensor(points, device=x.device).float()
    after = before + uniform((count, 3, 2), -reach, reach, generator)

    # Solve for the inverse map, which takes a pixel of the result to its source.
    ones = x.new_ones(count, 3, 1)
    matrix = torch.cat([after, ones], 2)
    inverse = torch.linalg.solve(matrix, before.expand(count, 3, 2))  # (N, 3, 2)

    r = torch.arange(height, device=x.device).float()[:, None].expand(height, width)
    c = torch.arange(width, device=x.device).float().expand(height, width)
    source = torch.stack([c, r, torch.ones_like(c)], -1).flatten(0, 1) @ inverse  # (N, H W, 2)
    columns, rows = source.view(count, height, width, 2).unbind(3)
    return rows, columns


def sample(x: Tensor, rows: Tensor, columns: Tensor, edge: bool) -> Tensor:
    """Interpolate x (N, C, H, W) linearly at (rows, columns), (N, H, W) each, mirrored outside.

    `edge` mirrors at the middle of the outermost pixel (OpenCV), else at its border (SciPy).
    """
    channels, height, width = x.shape[1:]
    flat = x.flatten(2)
    out = torch.zeros_like(x)
    top = rows.floor()
    left = columns.floor()

    for down in (0, 1):
        for right in (0, 1):
            share = (1 - (rows - top - down).abs()) * (1 - (columns - left - right).abs())
            r = mirror_indices((top + down).long(), height, edge)
            c = mirror_indices((left + right).long(), width, edge)
            source = (r * width + c).flatten(1)[:, None].expand(-1, channels, -1)
            out += share[:, None] * flat.gather(2, source).view_as(x)
    return out


def mirror_indices(index: Tensor, size: int, edge: bool) -> Tensor:
    """Fold indices outside [0, size) back into it; `edge` as in `sample`."""
    period = max(1, 2 * size - 2 if edge else 2 * size)
    index = index % period
    return torch.where(index < size, index, (period if edge else period - 1) - index)


def pixelate(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Shrink by averaging and enlarge by repeating, each rounded to 256 levels as Pillow does."""
    share = (0.95, 0.9, 0.85, 0.75, 0.65)[severity - 1]
    height, width = x.shape[2:]
    small_height = max(1, int(height * share))
    small_width = max(1, int(width * share))

    x = round_to_levels(x @ box_matrix(width, small_width, x).T)
    x = round_to_levels(box_matrix(height, small_height, x) @ x)
    return box_matrix(small_height, height, x) @ x @ box_matrix(small_width, width, x).T


def box_matrix(size: int, new_size: int, like: Tensor) -> Tensor:
    """Return the (new_size, size) matrix of Pillow's BOX filter."""
    scale = size / new_size
    support = max(scale, 1.0)

    matrix = np.zeros((new_size, size))
    for row in range(new_size):
        centre = (row + 0.5) * scale
        first = int(centre - support / 2 + 0.5)
        last = int(centre + support / 2 + 0.5)
        sources = np.arange(max(0, first), min(size, last))
        distance = (sources - centre + 0.5) / support
        matrix[row, sources] = (distance > -0.5) & (distance <= 0.5)

    matrix /= matrix.sum(1, keepdims=True)
    return torch.as_tensor(matrix, dtype=like.dtype, device=like.device)
