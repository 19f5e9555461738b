"""Weather: snow, frost, fog."""

import torch
from torch import Tensor

from toosure.data.corruptions.blur import enlarge, round_to_levels, smear
from toosure.data.corruptions.noise import uniform


def snow(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Whiten the image and add flakes that fall both ways."""
    mean, std, zoom, threshold, radius, length, share = (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    )[severity - 1]
    count, _, height, width = x.shape

    # Flakes are the peaks of enlarged noise, smeared downwards.
    shape = (count, 1, height, width)
    noise = torch.randn(shape, generator=generator, device=x.device, dtype=x.dtype)
    flakes = enlarge(mean + std * noise, zoom)
    flakes = (torch.where(flakes < threshold, 0, flakes).clamp(0, 1) * 255 + 1e-3).floor() / 255
    degrees = uniform((count,), -135, -45, generator)
    flakes = round_to_levels(smear(flakes, radius, length, degrees))

    whitened = torch.maximum(x, luminance(x) * 1.5 + 0.5)
    return share * x + (1 - share) * whitened + flakes + flakes.flip(2, 3)


def luminance(x: Tensor) -> Tensor:
    """Return the luminance (N, 1, H, W)."""
    if x.shape[1] == 1:
        return x
    weights = torch.tensor([0.299, 0.587, 0.114], device=x.device, dtype=x.dtype)
    return (x * weights.view(3, 1, 1)).sum(1, keepdim=True)


def fog(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Add a cloud, and scale so that the brightest value stays what it was."""
    strength, decay = ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))[severity - 1]
    count, _, height, width = x.shape
    brightest = x.amax((1, 2, 3), keepdim=True)
    cloud = plasma(count, max(height, width), decay, generator)[:, None, :height, :width]
    return (x + strength * cloud) * brightest / (brightest + strength)


def plasma(count: int, size: int, decay: float, generator: torch.Generator) -> Tensor:
    """Draw clouds (count, S, S) in [0, 1] by the diamond-square algorithm, S a power of 2 >= size.

    Each pass halves the grid: centres of squares first, then the middles of their sides, each the
    mean of its four neighbours plus noise that falls by `decay` from pass to pass.
    """
    side = 1 << max(1, (size - 1).bit_length())
    field = torch.zeros(count, side, side, device=generator.device, dtype=torch.float32)
    step = side
    roughness = 100.0

    def mean_and_noise(total: Tensor) -> Tensor:
        return total / 4 + roughness * uniform(tuple(total.shape), -roughness, roughness, generator)

    while step >= 2:
        half = step // 2
        corners = field[:, ::step, ::step]
        pairs = corners + corners.roll(-1, 1)
        field[:, half::step, half::step] = mean_and_noise(pairs + pairs.roll(-1, 2))

        centres = field[:, half::step, half::step]
        field[:, ::step, half::step] = mean_and_noise(
            centres + centres.roll(1, 1) + corners + corners.roll(-1, 2)
        )
        field[:, half::step, ::step] = mean_and_noise(
            centres + centres.roll(1, 2) + corners + corners.roll(-1, 1)
        )

        step = half
        roughness /= decay

    field = field - field.amin((1, 2), keepdim=True)
    return field / field.amax((1, 2), keepdim=True)


def frost(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Lay ice over the image; the published set uses photographs of frost, we draw crystals."""
    image_share, ice_share = (
        (1, 0.2),
        (1, 0.3),
        (0.9, 0.4),
        (0.85, 0.4),
        (0.75, 0.45),
    )[severity - 1]
    return image_share * x + ice_share * crystals(x, generator)


def crystals(x: Tensor, generator: torch.Generator) -> Tensor:
    """Draw bright ridges on a bluish ground: one cloud's level lines over another's shade."""
    count, channels, height, width = x.shape
    size = max(height, width)
    lines = plasma(count, size, 2.0, generator)[:, None, :height, :width]
    shade = plasma(count, size, 2.5, generator)[:, None, :height, :width]

    ridges = (1 - (6 * lines % 2 - 1).abs()).clamp(0, 1) ** 2  # three lines where the cloud rises
    ice = 0.35 + 0.35 * shade + 0.45 * ridges
    tint = x.new_tensor([0.9, 1.0, 1.1] if channels == 3 else [1.0])
    return (ice * tint.view(-1, 1, 1)).clamp(0, 1)
