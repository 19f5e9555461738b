"""Draw the pictures of docs/which_method.md, and print its table, from the kept scores.

    PYTHONPATH=src python recipes/benchmark/draw.py docs/images     # three SVG files
    PYTHONPATH=src python recipes/benchmark/draw.py --table         # the rows of the page's tables

A method is drawn when it has two runs or more by the common protocol, with the setting that was
chosen for it; run the script again when more have come.
"""

import sys
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

import numpy as np

from toosure.figures.style import FONT, INK, LINE, PALETTE, QUIET
from toosure.metrics.binned import reliability_from_confidence
from toosure.recipes import Setting
from toosure.recipes.benchmark import methods, protocol
from toosure.recipes.benchmark.paired import PairedScores
from toosure.recipes.benchmark.score_files import Record, ScoreFiles
from toosure.recipes.benchmark.tables import grouped
from toosure.recipes.radius.rows import CHOSEN
from toosure.recipes.series import mean_std_text

HERE = Path(__file__).parent
DATA_SETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
WIDTH = 880
NAMES = 150  # pixels for the names of methods
ROW = 30
BINS = 15
Methods = dict[str, list[Record]]  # by the name that the pictures use


def chosen(files: ScoreFiles, data: str) -> Methods:
    """Return the records of each method with its chosen setting, in the order of the protocol.

    One run ranks nothing, and is left out.
    """
    setting = Setting(data=data)
    groups = grouped(files, setting, data)
    words = {**methods.SHARPNESS_AWARE[data], "ASAM, steered": CHOSEN, **methods.OTHERS}
    labels = {
        name: protocol.label(protocol.config(setting, word, data, 0))
        for name, word in words.items()
        if not protocol.unknown_word_error(word)
    }
    found = {name: groups.get(label, []) for name, label in labels.items()}
    return {name: records for name, records in found.items() if len(records) > 1}


# -- table ----------------------------------------------------------------------------------------


def table_rows(files: ScoreFiles, data: str) -> list[str]:
    """Return rows: method, seeds, accuracy, then NLL and ECE before and after a temperature."""
    rows = []
    for name, records in chosen(files, data).items():
        raw = [record.test for record in records]
        after = [record.test_after_temperature for record in records]
        cells = [
            f"{name} (`{protocol.label(records[0].config)}`)",
            str(len(records)),
            mean_std_text([100 * scores["accuracy"] for scores in raw]),
            mean_std_text([scores["nll"] for scores in raw], ".3f"),
            mean_std_text([scores["nll"] for scores in after], ".3f"),
            mean_std_text([100 * scores["ece"] for scores in raw]),
            mean_std_text([100 * scores["ece"] for scores in after]),
        ]
        rows.append("| " + " | ".join(cells) + " |")
    return rows


# -- pieces of a picture --------------------------------------------------------------------------


def text(x: float, y: float, content: str, anchor: str = "start", colour: str = INK) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="{colour}">{escape(content)}</text>'


def path(
    points: Sequence[tuple[float, float]], colour: str, width: float = 1, dash: str = ""
) -> str:
    steps = "L".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<path d="M{steps}" fill="none" stroke="{colour}" stroke-width="{width}"{dashes}/>'


def dot(x: float, y: float, colour: str, filled: bool = True) -> str:
    fill = colour if filled else "#ffffff"
    place = f'cx="{x:.1f}" cy="{y:.1f}" r="5"'
    return f'<circle {place} fill="{fill}" stroke="{colour}" stroke-width="2"/>'


def picture(height: float, parts: Sequence[str], title: str) -> str:
    """Return an SVG on white paper; the title is for readers who do not see it."""
    head = f'viewBox="0 0 {WIDTH} {height:.0f}" font-family="{escape(FONT)}" font-size="13"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {head} role="img"><title>{escape(title)}</title>'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join(parts)}</svg>\n'
    )


class Axis:
    """A horizontal axis from `low` to `high` on a stretch of the picture."""

    def __init__(self, left: float, right: float, low: float, high: float) -> None:
        self.left = left
        self.right = right
        self.low = low
        self.high = high

    def at(self, value: float) -> float:
        return self.left + (self.right - self.left) * (value - self.low) / (self.high - self.low)

    def grid(self, top: float, bottom: float, form: str) -> list[str]:
        """Return vertical lines at round numbers, and the numbers below them."""
        parts = []
        for value in round_numbers(self.low, self.high):
            x = self.at(value)
            parts.append(path([(x, top), (x, bottom)], LINE))
            parts.append(text(x, bottom + 18, f"{value:{form}}", "middle", QUIET))
        return parts


def round_numbers(low: float, high: float) -> list[float]:
    """Return three to seven round numbers between two ends.

    >>> round_numbers(0, 4)
    [0.0, 1.0, 2.0, 3.0, 4.0]
    """
    unit = 10.0 ** np.floor(np.log10((high - low) / 3))
    step = next(k * unit for k in (5, 2, 1) if (high - low) / (k * unit) >= 3)
    first = int(np.ceil(low / step - 1e-9))
    return [float(step * k) for k in range(first, int(np.floor(high / step + 1e-9)) + 1)]


def panels(count: int) -> list[tuple[float, float]]:
    """Return the ends of panels side by side, each with room for names before it."""
    width = (WIDTH - 20) / count
    return [(width * i + NAMES, width * (i + 1) - 10) for i in range(count)]


# -- pictures -------------------------------------------------------------------------------------


def draw_errors(files: ScoreFiles) -> str:
    """Draw the ECE of each method before and after a temperature, with what chance alone shows."""
    parts = []
    most = 0
    for (left, right), (data, title) in zip(panels(2), DATA_SETS.items(), strict=True):
        found = chosen(files, data)
        most = max(most, len(found))
        bottom = 50 + ROW * len(found)
        raw = {n: 100 * mean(r.test["ece"] for r in rs) for n, rs in found.items()}
        after = {
            n: 100 * mean(r.test_after_temperature["ece"] for r in rs) for n, rs in found.items()
        }
        axis = Axis(left, right, 0, 1.08 * max(*raw.values(), *after.values()))

        parts.append(text((left + right) / 2, 22, f"{title}: ECE, points", "middle"))
        start, end = (axis.at(value) for value in protocol.ECE_BY_CHANCE[data])
        parts.append(
            f'<rect x="{start:.1f}" y="40" width="{end - start:.1f}" height="{bottom - 40}" '
            f'fill="{LINE}" fill-opacity="0.6"/>'
        )
        parts += axis.grid(40, bottom, "g")
        for number, name in enumerate(found):
            y = 58 + ROW * number
            parts.append(text(left - 10, y + 4, name, "end"))
            ends = [(axis.at(raw[name]), y), (axis.at(after[name]), y)]
            parts.append(path(ends, QUIET, 1.5))
            parts.append(dot(*ends[1], PALETTE[0], filled=False))
            parts.append(dot(*ends[0], PALETTE[1]))

    y = 50 + ROW * most + 44
    parts += [dot(NAMES, y - 4, PALETTE[1]), text(NAMES + 12, y, "as trained")]
    parts += [
        dot(NAMES + 110, y - 4, PALETTE[0], False),
        text(NAMES + 122, y, "after a temperature"),
    ]
    parts.append(f'<rect x="{NAMES + 280}" y="{y - 11}" width="16" height="12" fill="{LINE}"/>')
    parts.append(text(NAMES + 302, y, "what a perfectly calibrated network shows by chance"))
    return picture(y + 14, parts, "ECE of each method before and after temperature scaling")


def mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def draw_differences(files: ScoreFiles) -> str:
    """Draw accuracy and NLL of each method against SGD, with intervals over test images."""
    parts = []
    top = 0.0
    for data, title in DATA_SETS.items():
        found = chosen(files, data)
        pairs = PairedScores(files.examples)
        others = {n: pairs.differences(found["SGD"], rs) for n, rs in found.items() if n != "SGD"}
        known = {name: result for name, result in others.items() if result is not None}
        bottom = top + 50 + ROW * len(known)

        columns = {"accuracy": "accuracy, points (right is better)", "nll": "NLL (left is better)"}
        for (left, right), (key, label) in zip(panels(2), columns.items(), strict=True):
            results = {name: getattr(result, key) for name, result in known.items()}
            ends = [0.0, *(e for r in results.values() for e in (r.low, r.high))]
            slack = 0.06 * (max(ends) - min(ends))
            axis = Axis(left, right, min(ends) - slack, max(ends) + slack)
            parts.append(text((left + right) / 2, top + 22, f"{title}: {label}", "middle"))
            parts += axis.grid(top + 40, bottom, "g")
            parts.append(path([(axis.at(0), top + 40), (axis.at(0), bottom)], INK, 1.2))
            for number, (name, result) in enumerate(results.items()):
                y = top + 58 + ROW * number
                parts.append(text(left - 10, y + 4, name, "end"))
                interval = [(axis.at(result.low), y), (axis.at(result.high), y)]
                parts.append(path(interval, PALETTE[1], 2))
                parts.append(dot(axis.at(result.value), y, PALETTE[1]))
        top = bottom + 30
    note = "difference from SGD: mean over seeds, 95 % interval over the test images"
    parts.append(text(NAMES, top + 16, note, colour=QUIET))
    return picture(top + 30, parts, "Accuracy and NLL of each method against SGD")


def draw_reliability(
    files: ScoreFiles, names: Sequence[str] = ("SGD", "SAM", "ASAM", "CSAM", "ASAM, steered")
) -> str:
    """Draw confidence minus accuracy by confidence, all seeds of a method together."""
    parts = []
    bottom = 300.0
    for (left, right), (data, title) in zip(panels(2), DATA_SETS.items(), strict=True):
        found = chosen(files, data)
        curves = {n: gaps(files, found[n]) for n in names if n in found}
        heights = [value for _, values in curves.values() for value in values]
        low = min(0.0, *heights) - 1
        high = max(heights) + 1
        axis = Axis(left - 50, right, 0, 100)

        def height(value: float, low: float = low, high: float = high) -> float:
            return bottom - (bottom - 44) * (value - low) / (high - low)

        label = f"{title}: confidence minus accuracy, points"
        parts.append(text((left - 50 + right) / 2, 22, label, "middle"))
        parts += axis.grid(40, bottom, "g")
        for value in round_numbers(low, high):
            parts.append(path([(axis.left, height(value)), (right, height(value))], LINE))
            parts.append(text(axis.left - 8, height(value) + 4, f"{value:g}", "end", QUIET))
        parts.append(path([(axis.left, height(0)), (right, height(0))], INK, 1.2))
        for name, (confidence, values) in curves.items():
            colour = PALETTE[names.index(name) % len(PALETTE)]
            points = [(axis.at(x), height(y)) for x, y in zip(confidence, values, strict=True)]
            parts.append(path(points, colour, 2.2))
        parts.append(text((axis.left + right) / 2, bottom + 38, "confidence, %", "middle", QUIET))

    for number, name in enumerate(names):
        x = NAMES + 110 * number
        y = bottom + 66
        parts.append(path([(x, y - 4), (x + 22, y - 4)], PALETTE[number % len(PALETTE)], 2.5))
        parts.append(text(x + 30, y, name))
    return picture(bottom + 82, parts, "Confidence minus accuracy by confidence")


def gaps(files: ScoreFiles, records: Sequence[Record]) -> tuple[list[float], list[float]]:
    """Return mean confidence and gap of each bin with 50 images or more, in per cent and points."""
    examples = [files.examples[record.name] for record in records if record.name in files.examples]
    confidence = np.concatenate([each["confidence"] for each in examples]).astype(float)
    correct = np.concatenate([each["correct"] for each in examples]).astype(float)
    table = reliability_from_confidence(confidence, correct, BINS)
    filled = table.counts >= 50
    sure = 100 * table.confidence[filled]
    return sure.tolist(), (sure - 100 * table.accuracy[filled]).tolist()


PICTURES = {
    "which_ece": draw_errors,
    "which_differences": draw_differences,
    "which_reliability": draw_reliability,
}


def main(*words: str) -> None:
    files = ScoreFiles(HERE)
    if words == ("--table",):
        for data, title in DATA_SETS.items():
            print(f"{title}\n" + "\n".join(table_rows(files, data)) + "\n")
        return

    (folder,) = words
    for name, draw in PICTURES.items():
        (Path(folder) / f"{name}.svg").write_text(draw(files), encoding="utf-8")
        print(f"{folder}/{name}.svg")


if __name__ == "__main__":
    main(*sys.argv[1:])
