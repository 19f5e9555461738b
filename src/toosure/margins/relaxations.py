"""Straight lines below and above tanh, ReLU and max-pooling on an interval, and slope ranges."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

ULP = 2.0**-52


@dataclass(frozen=True)
class Lines:
    """Two lines, `low_slope * h + low` <= f(h) <= `high_slope * h + high` on the interval."""

    low_slope: Tensor
    low: Tensor
    high_slope: Tensor
    high: Tensor


def relu_lines(lower: Tensor, upper: Tensor) -> Lines:
    """Bound ReLU by the chord from above and by 0 or h, whichever is nearer, from below.

    Reference: Zhang et al. (2018), CROWN, arXiv 1811.00866.
    """
    crossing = (lower < 0) & (upper > 0)
    chord = torch.where(crossing, upper / (upper - lower).clamp_min(1e-300), (lower >= 0).to(lower))
    # A chord moved up by its rounding still lies above.
    high = torch.where(crossing, -chord * lower * (1 + 8 * ULP) + 8 * ULP * upper, 0.0)
    low_slope = torch.where(crossing, (upper > -lower).to(lower), chord)
    return Lines(low_slope, torch.zeros_like(lower), chord, high)


def tanh_lines(lower: Tensor, upper: Tensor) -> Lines:
    """Bound tanh by chords and tangents; the line below is the line above, mirrored."""
    high_slope, high = tanh_above(lower, upper)
    low_slope, low = tanh_above(-upper, -lower)
    return Lines(low_slope, -low, high_slope, high)


def tanh_above(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return slope and intercept of a line above tanh on [l, u].

    If the chord's slope is at most tanh'(u) the chord lies above: the gap is convex right of 0,
    zero at u and falling there, and concave left of 0, so positive on both sides. Otherwise any
    tangent at d in [max(l, 0), u] that passes above (l, tanh l) does; that height grows with d,
    and bisection keeps the end where it was checked to be non-negative.
    """
    at_lower, at_upper = lower.tanh(), upper.tanh()
    width = upper - lower

    # First choice: the chord.
    chord = torch.where(width > 0, (at_upper - at_lower) / width.clamp_min(1e-300), 0.0)
    use_chord = (chord <= slope_of_tanh(upper)) & (width > 1e-6)

    # Second: the tangent at the point found by bisection.
    left, right = lower.clamp_min(0.0), upper.clamp_min(0.0)
    for _ in range(30):
        middle = (left + right) / 2
        above = middle.tanh() + slope_of_tanh(middle) * (lower - middle) >= at_lower
        left, right = torch.where(above, left, middle), torch.where(above, middle, right)
    point = torch.where(lower >= 0, (lower + upper) / 2, right)

    # Left of 0 there is no such point, but tanh(u) + smallest slope (h - u) lies above.
    smallest_slope = slope_of_tanh(torch.maximum(lower.abs(), upper.abs()))
    negative = upper <= 0

    slope = torch.where(negative, smallest_slope, slope_of_tanh(point))
    slope = torch.where(use_chord, chord, slope)
    touch = torch.where(use_chord | negative, upper, point)
    height = torch.where(use_chord, torch.maximum(at_upper, at_lower + chord * width), touch.tanh())
    intercept = height - slope * touch
    return slope, intercept + 16 * ULP * (1 + (slope * touch).abs() + (slope * lower).abs())


def slope_of_tanh(h: Tensor) -> Tensor:
    """Return tanh'(h) = 1 / cosh(h)^2 without the cancellation of 1 - tanh^2."""
    e = torch.exp(-2 * h.abs())
    return 4 * e / (1 + e) ** 2


def slope_range(name: str, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Return the least and greatest derivative of the activation on the interval."""
    if name == "relu":
        return (lower > 0).to(lower), (upper >= 0).to(upper)
    at_lower, at_upper = slope_of_tanh(lower), slope_of_tanh(upper)
    crossing = (lower <= 0) & (upper >= 0)
    greatest = torch.where(crossing, 1.0, torch.maximum(at_lower, at_upper))
    least = torch.minimum(at_lower, at_upper)
    return least * (1 - 8 * ULP), greatest * (1 + 8 * ULP)


def windows(x: Tensor, kernel: int, stride: int, padding: int, fill: float = 0.0) -> Tensor:
    """Return the values each pooling window reads, (N, C, H', W', kernel^2)."""
    x = F.pad(x, (padding,) * 4, value=fill)
    return x.unfold(2, kernel, stride).unfold(3, kernel, stride).flatten(-2)


def scatter_windows(
    values: Tensor, shape: torch.Size, kernel: int, stride: int, padding: int
) -> Tensor:
    """Add (N, C, H', W', kernel^2) back to the pixels they were read from: `windows` transposed."""
    n, channels = values.shape[:2]
    height, width = shape[2:]
    columns = values.permute(0, 1, 4, 2, 3).reshape(n, channels * kernel**2, -1)
    padded = (height + 2 * padding, width + 2 * padding)
    image = F.fold(columns, padded, kernel, stride=stride)
    return image[:, :, padding : padding + height, padding : padding + width]


def pool_choice(
    lower: Tensor, upper: Tensor, kernel: int, stride: int, padding: int
) -> tuple[Tensor, Tensor]:
    """Return, per window, which element has the best lower bound (one-hot), and if it must win."""
    low = windows(lower, kernel, stride, padding, -torch.inf)
    high = windows(upper, kernel, stride, padding, -torch.inf)
    best, place = low.max(-1, keepdim=True)
    chosen = torch.zeros_like(low).scatter_(-1, place, 1.0)
    rival = high.masked_fill(chosen.bool(), -torch.inf).amax(-1)
    return chosen, rival <= best.squeeze(-1)
