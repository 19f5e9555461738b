"""Figures 1, 2, 3, S4, S5 and S6 of the paper, from saved scores, rows and examples."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from toosure.metrics.binned import reliability_from_confidence
from toosure.recipes.benchmark.record import Examples
from toosure.recipes.benchmark.scored_rows import Row
from toosure.recipes.csam import figure_data, figure_rows
from toosure.recipes.csam.charts import Bars, Curve, Panel, draw, grouped_bars
from toosure.recipes.csam.figure_data import FigureRuns, SavedRows, column
from toosure.recipes.csam.rows import name_of
from toosure.recipes.csam.theory_figures import theory_drawings
from toosure.recipes.recipe import Drawing, Setting
from toosure.recipes.run_store import RunStore

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

BINS = 15
FIGURE_1 = ("PyramidNet-110", "ResNet-18")  # of the paper, of the common protocol
DRAWN_ERRORS = ("raw", "temperature", "vector", "histogram", "isotonic")  # as many as colours
SWEPT = {"entropy": "H(p_y), nats", "accuracy": "accuracy, %", "ece": "ECE, points"}


def drawings(setting: Setting, store: RunStore) -> list[Drawing]:
    """Return the figures that have runs."""
    runs = figure_data.read_runs(setting, store)
    return [
        *confidence_drawings(setting, runs),
        *theory_drawings(setting, runs),
        *error_drawings(setting, runs),
        *sweep_drawings(setting, runs),
    ]


# -- Figure 1 -------------------------------------------------------------------------------------


def confidence_drawings(setting: Setting, runs: FigureRuns) -> list[Drawing]:
    """Return Figure 1 for each network that has SGD and SAM on CIFAR-100."""
    made = []
    known = {row.name: record for row, record in runs.known(cifar100_rows(setting))}
    for network in FIGURE_1:
        pair = {
            name: runs.examples[known[f"{network}: {name}"].name]
            for name in ("SGD", "SAM")
            if f"{network}: {name}" in known
        }

        if len(pair) == 2:
            made.append(
                Drawing(
                    f"fig1-{network.lower()}",
                    f"Confidence and reliability, {name_of(setting, network)}, CIFAR-100 "
                    "(Figure 1)",
                    "Above, how sure the predictions are, with lines at the mean confidence and "
                    "the accuracy; below, accuracy by confidence.",
                    partial(draw_confidence, pair),
                )
            )
    return made


def cifar100_rows(setting: Setting) -> list[Row]:
    """Return the rows of Figure 1's data set; a quick recipe has only one data set."""
    data = setting.data_sets[-1]
    return [row for row in figure_rows.networks(setting) if row.data == data]


def draw_confidence(pair: Mapping[str, Examples]) -> "Figure":
    """Draw the histogram of confidence and the reliability of two runs."""
    histograms = []
    reliabilities = []
    for name, examples in pair.items():
        confidence = np.asarray(examples["confidence"], dtype=float)
        correct = np.asarray(examples["correct"], dtype=float)
        table = reliability_from_confidence(confidence, correct, BINS)
        counts = table.counts.numpy()
        filled = counts > 0
        middles = 100 * (np.arange(BINS) + 0.5) / BINS

        shares = 100 * counts / len(confidence)
        top = float(shares.max())
        histograms.append(
            Panel(
                name,
                "confidence, %",
                "images, %",
                [
                    Bars("share of images", middles, shares, 90 / BINS),
                    Curve("accuracy", [100 * correct.mean()] * 2, [0, top]),
                    Curve("mean confidence", [100 * confidence.mean()] * 2, [0, top], "dash"),
                ],
            )
        )
        accuracies = 100 * table.accuracy.numpy()[filled]
        reliabilities.append(
            Panel(
                "",
                "confidence, %",
                "accuracy, %",
                [
                    Bars("accuracy in the bin", middles[filled], accuracies, 90 / BINS),
                    Curve("calibrated", [0, 100], [0, 100], "dash", quiet=True),
                ],
            )
        )
    return draw([histograms, reliabilities], height=230)


# -- Figure 3 -------------------------------------------------------------------------------------


def error_drawings(setting: Setting, runs: FigureRuns) -> list[Drawing]:
    """Return Figure 3: errors after calibration by network, and along training."""
    made = []
    networks = {data: figure_data.network_errors(setting, runs, data) for data in setting.data_sets}
    if any(networks.values()):
        made.append(
            Drawing(
                "fig3-networks",
                "SGD raw and calibrated, SAM raw (Figure 3 a, b)",
                f"ECE of the test images.{missing_bars(networks)}",
                partial(draw_networks, networks),
            )
        )

    along = {data: figure_data.rows_along(setting, runs, data) for data in setting.data_sets}
    if any(along.values()):
        made.append(
            Drawing(
                "fig3-training",
                "ECE before and after a temperature along training, ResNet-56 (Figure 3 c, d)",
                "Of the validation images; the temperature is fitted on one half of them and "
                "judged on the other.",
                partial(draw_along, along),
            )
        )
    return made


def missing_bars(networks: Mapping[str, figure_data.NetworkErrors]) -> str:
    """Say why a bar is missing, if one is."""
    drawn = [both["SGD"] for by_network in networks.values() for both in by_network.values()]
    if all(name in errors for errors in drawn for name in DRAWN_ERRORS):
        return ""
    return " A bar is missing where the calibrator could not be fitted, or its error was not kept."


def draw_networks(
    networks: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]],
) -> "Figure":
    """Draw one panel per data set: bars of SGD raw, SGD calibrated and SAM raw by network."""
    panels = []
    for data, by_network in networks.items():
        series: dict[str, list[float | None]] = {}
        for name in DRAWN_ERRORS:
            label = "SGD" if name == "raw" else f"SGD, {name}"
            series[label] = [both["SGD"].get(name) for both in by_network.values()]
        series["SAM"] = [both["SAM"]["raw"] for both in by_network.values()]
        known = {name: heights for name, heights in series.items() if any(heights)}
        panels.append(Panel(data, "", "ECE, points", grouped_bars(known), tuple(by_network)))
    return draw([panels], height=330)


def draw_along(along: Mapping[str, Mapping[str, SavedRows]]) -> "Figure":
    """Draw ECE and TCE of SGD and SAM along training, one panel per data set."""
    panels = []
    for data, by_optimizer in along.items():
        curves = []
        for name, rows in by_optimizer.items():
            epochs = column(rows, "epoch")[1:]
            curves.append(Curve(f"{name}, ECE", epochs, 100 * column(rows, "val/ece")[1:]))
            after = 100 * column(rows, "val/tce")[1:]
            curves.append(Curve(f"{name}, ECE after T", epochs, after, "dash"))
        panels.append(Panel(data, "epoch", "ECE, points", curves))
    return draw([panels], height=330)


# -- Figures S5 and S6 ----------------------------------------------------------------------------


def sweep_drawings(setting: Setting, runs: FigureRuns) -> list[Drawing]:
    """Return Figures S5 and S6. A single radius or gamma is no curve and stays in the table."""
    made = []
    by_radius = {
        (data, network): figure_data.radius_numbers(setting, runs, data, network)
        for data in setting.data_sets
        for network in ("ResNet-20", "ResNet-56")
    }
    if any(len(numbers) > 1 for numbers in by_radius.values()):
        made.append(
            Drawing(
                "fig-s5",
                "A growing radius of SAM (Figure S5)",
                "Test images at the end of training, one seed.",
                partial(draw_radii, by_radius),
            )
        )

    by_gamma = figure_data.sweep_numbers(runs, figure_rows.gammas(setting))
    if len(by_gamma) > 1:
        made.append(
            Drawing(
                "fig-s6",
                "gamma of CSAM, ResNet-56, CIFAR-10, rho .05 (Figure S6)",
                "Test images at the end of training, one seed; gamma 0 is SAM.",
                partial(draw_gammas, by_gamma),
            )
        )
    return made


def draw_radii(
    by_radius: Mapping[tuple[str, str], Mapping[float, Mapping[str, float]]],
) -> "Figure":
    """Draw H(p_y), accuracy and ECE against rho: one row per data set, one curve per network."""
    rows = []
    for data in dict.fromkeys(data for data, _ in by_radius):
        panels = []
        for key, title in SWEPT.items():
            curves = [
                Curve(network, sorted(numbers), values_at(numbers, key))
                for (of, network), numbers in by_radius.items()
                if of == data and numbers
            ]
            panels.append(Panel(f"{data}: {title}", "rho", "", curves))
        rows.append(panels)
    return draw(rows, height=260)


def draw_gammas(by_gamma: Mapping[float, Mapping[str, float]]) -> "Figure":
    """Draw accuracy and ECE against gamma."""
    panels = [
        Panel(SWEPT[key], "gamma", "", [Curve("CSAM", sorted(by_gamma), values_at(by_gamma, key))])
        for key in ("accuracy", "ece")
    ]
    return draw([panels])


def values_at(numbers: Mapping[float, Mapping[str, float]], key: str) -> list[float]:
    """Return one number in the order of the swept values; NaN if it is unknown."""
    return [numbers[value].get(key, float("nan")) for value in sorted(numbers)]
