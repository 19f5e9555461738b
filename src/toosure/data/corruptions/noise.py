"""Noise on each value: Gaussian, Poisson, salt and pepper, speckle."""

import torch
from torch import Tensor


def normal(x: Tensor, generator: torch.Generator) -> Tensor:
    """Draw standard normal values in the shape of `x`."""
    return torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)


def uniform(shape: tuple[int, ...], low: float, high: float, generator: torch.Generator) -> Tensor:
    """Draw float32 values from [low, high) on the generator's device."""
    values = torch.rand(shape, generator=generator, device=generator.device, dtype=torch.float32)
    return low + (high - low) * values


def gaussian_noise(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Add noise of a fixed standard deviation."""
    std = (0.04, 0.06, 0.08, 0.09, 0.10)[severity - 1]
    return x + std * normal(x, generator)


def shot_noise(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Count photons: Poisson with `rate` photons for white."""
    rate = (500, 250, 100, 75, 50)[severity - 1]
    return torch.poisson(x * rate, generator=generator) / rate


def impulse_noise(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Set a share of the values to 0 or 1."""
    share = (0.01, 0.02, 0.03, 0.05, 0.07)[severity - 1]
    hit = uniform(tuple(x.shape), 0, 1, generator) < share
    salt = uniform(tuple(x.shape), 0, 1, generator) < 0.5
    return torch.where(hit, salt.to(x.dtype), x)


def speckle_noise(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """Add noise in proportion to the value."""
    std = (0.06, 0.1, 0.12, 0.16, 0.2)[severity - 1]
    return x + x * std * normal(x, generator)
