"""`corrupt`: one of eighteen corruptions at one of five severities, batched and seeded."""

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from toosure.data.corruptions import blur, digital, noise, weather
from toosure.data.corruptions.jpeg import jpeg_compression
from toosure.data.seeds import mixed

Corruption = Literal[
    "gaussian_noise", "shot_noise", "impulse_noise",
    "defocus_blur", "glass_blur", "motion_blur", "zoom_blur",
    "snow", "frost", "fog", "brightness",
    "contrast", "elastic_transform", "pixelate", "jpeg_compression",
    "speckle_noise", "gaussian_blur", "saturate",
]  # fmt: skip
Severity = Literal[1, 2, 3, 4, 5]
Shift = tuple[Corruption, Severity]  # fog:3 as a word writes it
PIXELS = 1 << 20  # worked on at once

# Each takes pixels (N, C, H, W) in [0, 1], a severity from 1 to 5 and a generator.
METHODS: tuple[Callable[[Tensor, int, torch.Generator], Tensor], ...] = (
    noise.gaussian_noise, noise.shot_noise, noise.impulse_noise,
    blur.defocus_blur, blur.glass_blur, blur.motion_blur, blur.zoom_blur,
    weather.snow, weather.frost, weather.fog, digital.brightness,
    digital.contrast, digital.elastic_transform, digital.pixelate, jpeg_compression,
    noise.speckle_noise, blur.gaussian_blur, digital.saturate,
)  # fmt: skip
CORRUPTIONS = dict(zip(get_args(Corruption), METHODS, strict=True))  # the fifteen, then three more


def corrupt(images: Tensor, name: str, severity: int = 3, seed: int = 0) -> Tensor:
    """Corrupt images (N, C, H, W), uint8 or in [0, 1], of one or three channels, as CIFAR-10-C was.

    The strengths are those of the 32-pixel set, in pixels where they are lengths (elastic's are
    shares of the side), whatever the size of the images; the result has 256 levels, cut off
    downwards as there. Frost's texture is our own. Draws are by seed, alike for all severities; the
    same seed draws otherwise on another kind of device, and for an image in another company.
    Reference: Hendrycks and Dietterich (2019), Benchmarking neural network robustness to common
    corruptions and perturbations, arXiv 1903.12261.

    >>> images = torch.full((2, 3, 32, 32), 100, dtype=torch.uint8)
    >>> corrupt(images, "brightness", severity=2)[0, :, 0, 0]
    tensor([125, 125, 125], dtype=torch.uint8)
    """
    check(images, name, severity)
    pixels = images if images.dtype == torch.uint8 else (images * 255).round().to(torch.uint8)
    cut = pixels.split(together(*images.shape[2:]))
    parts = [corrupt_part(part, name, severity, seed, number) for number, part in enumerate(cut)]
    out = torch.cat(parts) if parts else pixels
    return out if images.dtype == torch.uint8 else out.to(images.dtype) / 255


def together(height: int, width: int) -> int:
    """Return how many images are worked on at once: the draws of one depend on the others there."""
    return max(1, PIXELS // (height * width))


def corrupt_part(pixels: Tensor, name: str, severity: int, seed: int, number: int) -> Tensor:
    """Corrupt the uint8 images of one part, counted from 0."""
    own = mixed(seed, list(CORRUPTIONS).index(name), number)
    generator = torch.Generator(pixels.device).manual_seed(own)
    out = CORRUPTIONS[name](pixels.float() / 255, int(severity), generator)
    # A thousandth of a level lets 128 computed as 127.9999 stay 128.
    return (out.clamp(0, 1) * 255 + 1e-3).to(torch.uint8)


def check_shift(shift: Any, images: Tensor) -> None:
    """Raise if a shift is no corruption and severity that can be made of such images."""
    if not isinstance(shift, tuple | list) or len(shift) != 2:
        raise ValueError(f'shift must be a corruption and a severity, as ("fog", 3); got {shift!r}')
    check(images, *shift)


def check(images: Tensor, name: str, severity: int) -> None:
    if not isinstance(name, str) or name not in CORRUPTIONS:
        close = get_close_matches(str(name), CORRUPTIONS, 1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise ValueError(f"no corruption is called {name!r}{hint} Known: {', '.join(CORRUPTIONS)}")
    if severity not in get_args(Severity):
        raise ValueError(f"severity must be a whole number from 1 to 5; got {severity!r}")
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ValueError(f"images must have shape (N, 1 or 3, H, W); got {tuple(images.shape)}")
    if min(images.shape[2:]) < 4:  # what lies outside is mirrored up to three pixels deep
        raise ValueError(f"images must be of 4 x 4 pixels or more; got {tuple(images.shape[2:])}")
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise ValueError(f"images must be uint8, or floats in [0, 1]; got {images.dtype}")
    if images.is_floating_point() and images.numel():
        low, high = images.aminmax()
        if not (low >= 0 and high <= 1):
            raise ValueError(
                f"images must lie in [0, 1]; got {float(low):g} to {float(high):g}: undo scaling"
            )
