"""`corrupt`: apply one of eighteen corruptions at one of five severities, batched and seeded."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, get_args

import torch
from torch import Tensor

from toosure.data.corruptions import blur, digital, noise, weather
from toosure.data.corruptions.jpeg import jpeg_compression
from toosure.data.seeds import derive_seed
from toosure.sentences import did_you_mean

Corruption = Literal[
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
    "speckle_noise",
    "gaussian_blur",
    "saturate",
]
Severity = Literal[1, 2, 3, 4, 5]
Shift = tuple[Corruption, Severity]  # fog:3 on the command line
MAX_PIXELS = 1 << 20  # pixels corrupted at once

# The fifteen of CIFAR-10-C, then three of its extra ones, in the order of `Corruption`. Each takes
# pixels (N, C, H, W) in [0, 1], a severity from 1 to 5 and a generator.
CORRUPTIONS: dict[str, Callable[[Tensor, int, torch.Generator], Tensor]] = {
    "gaussian_noise": noise.gaussian_noise,
    "shot_noise": noise.shot_noise,
    "impulse_noise": noise.impulse_noise,
    "defocus_blur": blur.defocus_blur,
    "glass_blur": blur.glass_blur,
    "motion_blur": blur.motion_blur,
    "zoom_blur": blur.zoom_blur,
    "snow": weather.snow,
    "frost": weather.frost,
    "fog": weather.fog,
    "brightness": digital.brightness,
    "contrast": digital.contrast,
    "elastic_transform": digital.elastic_transform,
    "pixelate": digital.pixelate,
    "jpeg_compression": jpeg_compression,
    "speckle_noise": noise.speckle_noise,
    "gaussian_blur": blur.gaussian_blur,
    "saturate": digital.saturate,
}
assert tuple(CORRUPTIONS) == get_args(Corruption)


def corrupt(images: Tensor, name: str, severity: int = 3, seed: int = 0) -> Tensor:
    """Corrupt images (N, C, H, W), uint8 or in [0, 1], of one or three channels, as in CIFAR-10-C.

    Strengths are those of the 32-pixel set for any size of the images, with lengths in pixels
    (shares of the side for elastic_transform). The result has 256 levels, rounded down as there.
    The texture of frost is drawn, not a photograph. Draws depend on the seed, not on the severity;
    they differ between CPU and GPU, and depend on the images that are corrupted together.
    Reference: Hendrycks and Dietterich (2019), Benchmarking neural network robustness to common
    corruptions and perturbations, arXiv 1903.12261.

    >>> images = torch.full((2, 3, 32, 32), 100, dtype=torch.uint8)
    >>> corrupt(images, "brightness", severity=2)[0, :, 0, 0]
    tensor([125, 125, 125], dtype=torch.uint8)
    """
    check_corruption(images, name, severity)
    is_uint8 = images.dtype == torch.uint8
    pixels = images if is_uint8 else (images * 255).round().to(torch.uint8)

    parts = pixels.split(images_per_part(*images.shape[2:]))
    corrupted = [
        corrupt_part(part, name, severity, seed, number) for number, part in enumerate(parts)
    ]
    out = torch.cat(corrupted) if corrupted else pixels
    return out if is_uint8 else out.to(images.dtype) / 255


def images_per_part(height: int, width: int) -> int:
    """Return how many images are corrupted at once; the draws of one depend on the others."""
    return max(1, MAX_PIXELS // (height * width))


def corrupt_part(pixels: Tensor, name: str, severity: int, seed: int, number: int) -> Tensor:
    """Corrupt the uint8 images of one part; `number` counts the parts from 0."""
    part_seed = derive_seed(seed, list(CORRUPTIONS).index(name), number)
    generator = torch.Generator(pixels.device).manual_seed(part_seed)
    with full_precision(pixels.device):
        out = CORRUPTIONS[name](pixels.float() / 255, int(severity), generator)
    # A thousandth of a level keeps 128 computed as 127.9999 at 128.
    return (out.clamp(0, 1) * 255 + 1e-3).to(torch.uint8)


def full_precision(device: torch.device) -> AbstractContextManager[None]:
    """Forbid TF32 on a GPU: a blur that is rounded to it would darken plain areas by a level."""
    if device.type != "cuda":
        return nullcontext()
    from toosure.curvature.products.precision import exact_float32

    return exact_float32()


def check_shift(shift: object, images: Tensor) -> None:
    """Raise if a shift is not a corruption and a severity that can be applied to such images."""
    if not isinstance(shift, tuple | list) or len(shift) != 2:
        raise ValueError(f'shift must be a corruption and a severity, as ("fog", 3); got {shift!r}')
    check_corruption(images, *shift)


def check_severity(severity: object) -> None:
    """Raise if a severity is not one of the five."""
    if severity not in get_args(Severity):
        raise ValueError(f"severity must be a whole number from 1 to 5; got {severity!r}")


def check_corruption(images: Tensor, name: object, severity: object) -> None:
    """Raise if the name, the severity or the images are not ones that `corrupt` takes."""
    if not isinstance(name, str) or name not in CORRUPTIONS:
        hint = did_you_mean(str(name), CORRUPTIONS, ".")
        raise ValueError(f"no corruption is called {name!r}{hint} Known: {', '.join(CORRUPTIONS)}")
    check_severity(severity)

    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ValueError(f"images must have shape (N, 1 or 3, H, W); got {tuple(images.shape)}")
    if min(images.shape[2:]) < 4:  # defocus_blur mirrors three pixels at the border
        raise ValueError(f"images must be of 4 x 4 pixels or more; got {tuple(images.shape[2:])}")

    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise ValueError(f"images must be uint8, or floats in [0, 1]; got {images.dtype}")
    if images.is_floating_point() and images.numel():
        low, high = images.aminmax()
        if not (low >= 0 and high <= 1):
            raise ValueError(
                f"images must lie in [0, 1]; got {float(low):g} to {float(high):g}: undo scaling"
            )
