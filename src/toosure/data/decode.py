"""Decode one image file to a square of RGB pixels."""

from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
MAX_PIXELS = 1 << 26  # an image of more is a decompression bomb, or not for a classifier


def read_image(file: str | Path | BinaryIO, size: int, resize: int | None = None) -> Tensor:
    """Read one image as uint8 (3, size, size), resized by its shorter side, cut in the middle.

    The shorter side becomes `resize` pixels, or `size`. A JPEG much larger than that is first
    decoded at half, a quarter or an eighth of its size, at least twice the requested one, as Pillow
    does for thumbnails.
    """
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise ValueError("images need Pillow: pip install 'toosure[images]'") from error

    side = size if resize is None else resize
    margin = (side - size) // 2
    pillow_errors = (
        OSError,
        SyntaxError,
        ValueError,
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
    )
    try:
        with Image.open(file, formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise ValueError(f"it claims {image.width:,} x {image.height:,} pixels")
            image.draft("RGB", (2 * side, 2 * side))
            square = ImageOps.fit(to_rgb(image), (side, side), Image.Resampling.BILINEAR)
            square = square.crop((margin, margin, margin + size, margin + size))
    except pillow_errors as error:
        raise ValueError(f"{file} cannot be read as an image: {error}") from error
    return torch.tensor(np.asarray(square)).permute(2, 0, 1)


def to_rgb(image: "PillowImage") -> "PillowImage":
    """Convert to RGB; Pillow alone would turn 16-bit grey white, and warn of clear palettes."""
    if image.mode[0] in "IF":  # values beyond one byte
        # I;16 has 16 bits; so has plain I from PNG and PPM, but in a TIFF it has 32.
        if image.mode == "F" or (image.mode == "I" and image.format not in ("PNG", "PPM")):
            raise ValueError("its values are neither of 8 nor of 16 bits")
        from PIL import Image

        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")
