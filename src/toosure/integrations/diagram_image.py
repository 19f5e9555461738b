"""A reliability diagram as a small image, for trackers that show no interactive figures."""

from typing import TYPE_CHECKING

import numpy as np

from toosure.figures import Bins
from toosure.figures.reliability import filled_bins
from toosure.figures.style import BLUE, INK, LINE, ORANGE, QUIET

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

SIDE = 360  # pixels of the image, drawn twice as large so that lines are smooth
LEFT, RIGHT, TOP, BOTTOM = 92, 24, 56, 84  # margins, in pixels of the large drawing
TICKS = (0, 20, 40, 60, 80, 100)


def diagram_image(bins: Bins, title: str = "") -> "Image":
    """Draw accuracy over confidence, one mark per bin with its interval, as an image of Pillow.

    Below the dashed line the model is too sure.

    >>> edges, half = np.array([0.0, 0.5, 1.0]), np.array([0.4, 0.6])
    >>> diagram_image(Bins(edges, np.array([3, 5]), half, half, np.array([[0, 1], [0, 1]]))).size
    (360, 360)
    """
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise ValueError("diagrams as images need Pillow: pip install 'toosure[images]'") from error

    image = Image.new("RGB", (2 * SIDE, 2 * SIDE), "white")
    draw = ImageDraw.Draw(image)
    draw_axes(draw, title)
    if np.sum(bins.counts) > 0:
        draw_marks(draw, bins)
    return image.resize((SIDE, SIDE), Image.Resampling.LANCZOS)


def place(confidence: float, accuracy: float) -> tuple[float, float]:
    """Return the pixel of a point that is given in per cent."""
    width = 2 * SIDE - LEFT - RIGHT
    height = 2 * SIDE - TOP - BOTTOM
    return LEFT + width * confidence / 100, 2 * SIDE - BOTTOM - height * accuracy / 100


def draw_axes(draw: "ImageDraw", title: str) -> None:
    """Draw the grid with its numbers, the names of the axes, and the line of the calibrated."""
    for tick in TICKS:
        draw.line([place(tick, 0), place(tick, 100)], LINE, 2)
        draw.line([place(0, tick), place(100, tick)], LINE, 2)
        x, y = place(tick, 0)
        draw.text((x, y + 8), str(tick), QUIET, anchor="mt", font_size=24)
        x, y = place(0, tick)
        draw.text((x - 10, y), str(tick), QUIET, anchor="rm", font_size=24)

    draw.text((SIDE + LEFT / 2, 2 * SIDE - 12), "confidence, %", INK, anchor="mb", font_size=26)
    draw.text((8, 8), f"accuracy, %   {title}", INK, anchor="lt", font_size=26)

    for start in range(0, 100, 4):  # dashes
        draw.line([place(start, start), place(start + 2, start + 2)], QUIET, 3)


def draw_marks(draw: "ImageDraw", bins: Bins) -> None:
    """Draw each bin that holds samples: its area is its share of them."""
    filled = filled_bins(bins)
    columns = ("confidence", "accuracy", "low", "high", "share")
    for confidence, accuracy, low, high, share in np.stack([filled[c] for c in columns], 1):
        colour = ORANGE if confidence > accuracy else BLUE
        draw.line([place(confidence, low), place(confidence, high)], colour, 3)

        x, y = place(confidence, accuracy)
        radius = np.sqrt(36 + 5 * share)
        draw.ellipse([x - radius, y - radius, x + radius, y + radius], colour)
