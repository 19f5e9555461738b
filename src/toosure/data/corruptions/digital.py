"""Brightness, contrast, saturation, elastic deformation and coarse pixels."""

import numpy as np
import torch
from torch import Tensor

from toosure.data.corruptions.blur import levels, smooth
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
    value, least = x.amax(1, keepdim=True), x.amin(1, keepdim=True)
    spread = value - least
    saturation = spread / value.clamp(min=1e-6)
    red = torch.tensor([0.0, 1.0, 1.0], device=x.device, dtype=x.dtype).view(3, 1, 1)
    away = torch.where(spread > 0, (value - x) / spread.clamp(min=1e-6), red)
    return value * (1 - away * (saturation * factor + rise).clamp(0, 1))


def contrast(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Draw every value towards its channel's mean."""
    keep = (0.75, 0.5, 0.4, 0.3, 0.15)[severity - 1]
    mean = x.mean((2, 3), keepdim=True)
    return (x - mean) * keep + mean


def elastic_transform(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Move three points of the image at random, then every pixel a little, smoothly."""
    far, smoothness, turn = (
        (0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03),
    )[severity - 1]  # fmt: skip
    count, _, height, width = x.shape
    side = min(height, width)
    x = sample(x, *affine(x, turn * side, generator), edge=True)
    drawn = uniform((count, 2, height, width), -1, 1, generator)
    moved = far * side * smooth(drawn, smoothness * side, truncate=3.0, mirror=True)
    rows = torch.arange(height, device=x.device)[:, None] + moved[:, 0]
    columns = torch.arange(width, device=x.device) + moved[:, 1]
    return sample(x, rows, columns, edge=False)


def affine(x: Tensor, reach: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return where each pixel comes from if three points move by up to `reach`."""
    count, _, height, width = x.shape
    row, column, third = height // 2, width // 2, min(height, width) // 3
    points = [(column + third, row + third), (column + third, row - third)]
    before = torch.tensor([*points, (column - third, row - third)], device=x.device).float()
    after = before + uniform((count, 3, 2), -reach, reach, generator)
    ones = torch.ones(count, 3, 1, device=x.device)
    back = torch.linalg.solve(torch.cat([after, ones], 2), before.expand(count, 3, 2))  # (N, 3, 2)
    r = torch.arange(height, device=x.device).float()[:, None].expand(height, width)
    c = torch.arange(width, device=x.device).float().expand(height, width)
    source = torch.stack([c, r, torch.ones_like(c)], -1).flatten(0, 1) @ back  # (N, H W, 2)
    columns, rows = source.view(count, height, width, 2).unbind(3)
    return rows, columns


def sample(x: Tensor, rows: Tensor, columns: Tensor, edge: bool) -> Tensor:
    """Interpolate x (N, C, H, W) linearly at (rows, columns), (N, H, W) each, mirrored outside.

    `edge` mirrors at the outermost pixel's middle (OpenCV's), else at its border (SciPy's).
    """
    channels, height, width = x.shape[1:]
    flat, out = x.flatten(2), torch.zeros_like(x)
    top, left = rows.floor(), columns.floor()
    for down in (0, 1):
        for right in (0, 1):
            share = (1 - (rows - top - down).abs()) * (1 - (columns - left - right).abs())
            r = mirrored((top + down).long(), height, edge)
            c = mirrored((left + right).long(), width, edge)
            place = (r * width + c).flatten(1)[:, None].expand(-1, channels, -1)
            out += share[:, None] * flat.gather(2, place).view_as(x)
    return out


def mirrored(place: Tensor, size: int, edge: bool) -> Tensor:
    """Fold places outside [0, size) back into it."""
    period = max(1, 2 * size - 2 if edge else 2 * size)
    place = place % period
    return torch.where(place < size, place, (period if edge else period - 1) - place)


def pixelate(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Shrink by averaging and enlarge by repeating, each rounded to 256 levels as Pillow does."""
    share = (0.95, 0.9, 0.85, 0.75, 0.65)[severity - 1]
    height, width = x.shape[2:]
    small = max(1, int(height * share)), max(1, int(width * share))
    x = levels(x @ box_matrix(width, small[1], x).T)
    x = levels(box_matrix(height, small[0], x) @ x)
    return box_matrix(small[0], height, x) @ x @ box_matrix(small[1], width, x).T


def box_matrix(size: int, wanted: int, like: Tensor) -> Tensor:
    """Return the (wanted, size) matrix of Pillow's BOX filter."""
    scale = size / wanted
    reach = max(scale, 1.0)
    matrix = np.zeros((wanted, size))
    for row in range(wanted):
        middle = (row + 0.5) * scale
        first, last = int(middle - reach / 2 + 0.5), int(middle + reach / 2 + 0.5)
        place = np.arange(max(0, first), min(size, last))
        far = (place - middle + 0.5) / reach
        matrix[row, place] = (far > -0.5) & (far <= 0.5)
    matrix /= matrix.sum(1, keepdims=True)
    return torch.as_tensor(matrix, dtype=like.dtype, device=like.device)
