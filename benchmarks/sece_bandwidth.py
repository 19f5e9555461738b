"""What the bandwidth does to SECE: its mean and spread over simulated batches, by form.

    PYTHONPATH=src python benchmarks/sece_bandwidth.py [--svg docs/images/sece_bandwidth.svg]

Batches of 512 confidences crowd towards 1 as those of a trained classifier do; labels are drawn
from a known accuracy, so that the true calibration error is known. The line "auto" is the mean
bandwidth that `batch_bandwidth` chooses.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from toosure.metrics import sece_from_confidence
from toosure.metrics.bandwidth import batch_bandwidth

ROWS = 512
WIDTHS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
FORMS = {
    "points (the paper)": {"form": "points"},
    "points, leave-one-out": {"form": "points", "leave_one_out": True},
    "gap, leave-one-out": {"form": "gap", "leave_one_out": True},
}
COLOURS = ("#b2452f", "#c99a2e", "#2f6db2")
CASES = {"calibrated": 0.0, "over-confident by a tenth of the confidence": 0.1}
PANEL = (430, 300)  # width and height of a panel's plot, in pixels
TOP = 0.35  # of the vertical axis


def batch(excess: float, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw confidences, and hits with accuracy (1 - excess) times the confidence."""
    confidence = 1 - 0.9 * rng.random(ROWS) ** 2.5
    correct = rng.random(ROWS) < (1 - excess) * confidence
    return torch.from_numpy(confidence), torch.from_numpy(correct)


def simulate(excess: float, draws: int) -> tuple[float, float, dict[str, np.ndarray]]:
    """Return the true error, the mean automatic bandwidth, and (draws, widths) values by form."""
    rng = np.random.default_rng(0)
    batches = [batch(excess, rng) for _ in range(draws)]
    true = excess * float(np.mean([float(c.mean()) for c, _ in batches]))
    auto = float(np.mean([float(batch_bandwidth(c)) for c, _ in batches]))

    widths = (*WIDTHS, "auto")
    values = {
        name: np.array(
            [[float(sece_from_confidence(c, a, h, **options)) for h in widths] for c, a in batches]
        )
        for name, options in FORMS.items()
    }
    return true, auto, values


# -- table and picture ------------------------------------------------------------------------


def print_table(case: str, true: float, auto: float, values: dict[str, np.ndarray]) -> None:
    print(f"\n{case}: true error {100 * true:.2f} points, auto bandwidth {auto:.3f}\n")
    print("| form | " + " | ".join(f"{h:g}" for h in WIDTHS) + f" | auto ({auto:.3f}) |")
    print("|---" * (len(WIDTHS) + 2) + "|")
    for name, table in values.items():
        cells = [f"{100 * v.mean():.1f} ± {100 * v.std(ddof=1):.1f}" for v in table.T]
        print(f"| {name} | " + " | ".join(cells) + " |")


def place(h: float, value: float) -> tuple[float, float]:
    """Return the pixels of a bandwidth (logarithmic) and a value within a panel."""
    low, high = np.log10(WIDTHS[0]), np.log10(WIDTHS[-1])
    x = (np.log10(h) - low) / (high - low) * PANEL[0]
    return float(x), float(PANEL[1] * (1 - min(value, TOP) / TOP))


def text(x: float, y: float, words: str, anchor: str = "middle", colour: str = "#333") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{colour}">{words}</text>'


def axes(case: str) -> list[str]:
    """Draw the frame of a panel with its ticks and titles."""
    width, height = PANEL
    parts = [f'<rect width="{width}" height="{height}" fill="none" stroke="#999"/>']
    parts.append(text(width / 2, -12, case))
    parts.append(text(width / 2, height + 38, "bandwidth"))
    for h in WIDTHS:
        parts.append(text(place(h, 0)[0], height + 18, f"{h:g}"))
    for value in (0.0, 0.1, 0.2, 0.3):
        parts.append(text(-6, place(1, value)[1] + 4, f"{100 * value:.0f}", "end"))
    return parts


def panel(case: str, true: float, auto: float, values: dict[str, np.ndarray]) -> str:
    """Draw a panel: a line and a band of one standard deviation for each form."""
    parts = axes(case)
    height = place(1, true)[1]
    parts.append(f'<path d="M0 {height:.1f}H{PANEL[0]}" stroke="#333" stroke-dasharray="6 4"/>')
    parts.append(text(6, height - 6, "true error", "start"))
    x = place(auto, 0)[0]
    parts.append(f'<path d="M{x:.1f} 0V{PANEL[1]}" stroke="#777" stroke-dasharray="2 3"/>')
    parts.append(text(x, 14, "auto"))

    for colour, (name, table) in zip(COLOURS, values.items(), strict=True):
        mean, spread = table.mean(0)[:-1], table.std(0, ddof=1)[:-1]
        upper = [place(h, v) for h, v in zip(WIDTHS, mean + spread, strict=True)]
        lower = [place(h, v) for h, v in zip(WIDTHS, mean - spread, strict=True)]
        band = " ".join(f"{a:.1f},{b:.1f}" for a, b in [*upper, *lower[::-1]])
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in map(place, WIDTHS, mean))
        parts.append(f'<polygon points="{band}" fill="{colour}" opacity="0.15"/>')
        parts.append(
            f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2">'
            f"<title>{name}</title></polyline>"
        )
    return "".join(parts)


def picture(panels: list[str]) -> str:
    """Put panels side by side, with a legend below."""
    width = 60 + len(panels) * (PANEL[0] + 70)
    height = PANEL[1] + 130
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        text(8, 24, "SECE in points, mean and one standard deviation", "start"),
    ]
    for index, each in enumerate(panels):
        parts.append(f'<g transform="translate({50 + index * (PANEL[0] + 70)} 58)">{each}</g>')
    for index, (colour, name) in enumerate(zip(COLOURS, FORMS, strict=True)):
        x = 60 + 300 * index
        y = height - 16
        parts.append(f'<path d="M{x} {y - 5}h30" stroke="{colour}" stroke-width="3"/>')
        parts.append(text(x + 38, y, name, "start"))
    return "\n".join([*parts, "</svg>\n"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--svg", type=Path)
    arguments = parser.parse_args()

    panels = []
    for case, excess in CASES.items():
        true, auto, values = simulate(excess, arguments.draws)
        print_table(case, true, auto, values)
        panels.append(panel(case, true, auto, values))
    if arguments.svg:
        arguments.svg.write_text(picture(panels), encoding="utf-8")


if __name__ == "__main__":
    main()
