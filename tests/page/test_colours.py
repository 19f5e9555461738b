"""Colours of the pages: runs, too sure, not sure enough and chance are told apart on any paper."""

import re
from itertools import combinations

import numpy as np
import pytest

from toosure.figures.style import DARK, PALETTE
from toosure.page.html import asset

TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
RUNS = [f"c{place}" for place in range(len(PALETTE))]


def sheets():
    """The colours of the light and of the dark page, by name."""
    light, dark = re.findall(r":root[^{]*\{(.*?)\}", asset("page.css"), flags=re.DOTALL)[:2]
    return {
        name: dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", text))
        for name, text in (("light", light), ("dark", dark))
    }


def channels(colour):
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255


def linear(rgb):
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def cielab(rgb):
    matrix = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    ratio = matrix @ linear(rgb) / (0.9505, 1, 1.089)
    x, y, z = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(a, b):
    low, high = sorted(float(linear(rgb) @ (0.2126, 0.7152, 0.0722)) for rgb in (a, b))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("page", ["light", "dark"])
def test_no_run_looks_like_a_verdict_or_another_run(page):
    colours = {name: channels(value) for name, value in sheets()[page].items()}
    (share,) = {
        int(part)
        for part in re.findall(r"color-mix\(in srgb, var\(--\w+\) (\d+)%", asset("page.css"))
    }
    for side in ("over", "under"):  # a weak verdict, as the sheet mixes it
        colours[f"{side} faint"] = (share * colours[side] + (100 - share) * colours["quiet"]) / 100

    meanings = ("over", "under", "over faint", "under faint", "chance")
    pairs = [(run, meaning) for run in RUNS for meaning in meanings] + [*combinations(RUNS, 2)]
    for a, b in pairs:
        assert np.linalg.norm(cielab(colours[a]) - cielab(colours[b])) > 20, (a, b)
    for name in ("over", "under", "over faint", "under faint", "chance", "quiet"):
        assert contrast(colours[name], colours["paper"]) >= 4.5, name  # text, WCAG AA
    for run in RUNS:
        assert contrast(colours[run], colours["paper"]) >= 3, run  # lines


def test_figures_have_the_colours_of_the_sheet():
    light, dark = sheets()["light"], sheets()["dark"]
    assert [light[run] for run in RUNS] == list(PALETTE)
    assert [dark[run] for run in RUNS] == [DARK[colour] for colour in PALETTE]
