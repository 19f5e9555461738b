"""Draw the pictures of docs/method.md: python docs/method_picture.py

In the first, the controller itself steers a plant with a lag, e' = phi e + (1 - phi)(d - b u), in
which a move is felt one look late. The second compares ASAM at constant radii with the steered one,
from the kept scores. Like docs/pictures.py it needs Chromium and selenium.
"""

import math
from statistics import fmean

import numpy as np
import plotly.graph_objects as go
from pictures import FOLDER, as_svg, curve, drawing
from plotly.subplots import make_subplots

from toosure.control import Integrator, Reading
from toosure.figures.style import INK, MAGENTA, PLAIN_AXIS, PLAIN_LAYOUT, QUIET, TEAL
from toosure.recipes import Setting
from toosure.recipes.benchmark.score_files import Record, ScoreFiles
from toosure.recipes.benchmark.scored_rows import with_records
from toosure.recipes.radius import rows

SCORES = FOLDER.parents[2] / "recipes" / "benchmark"
DATA_SETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
LAG = 0.7  # phi: the share of the error that is still there at the next look
START = 0.25  # log T before the controller moves: a network that is too sure by T = 1.28
LOOKS = 80


def errors_of(loop_gain: float) -> list[float]:
    """Return log T at each look, for a plant with b = 1."""
    steered = Integrator(gain=loop_gain, final=1.0, dead_band=0.0, rate=math.inf)
    error, errors = START, []
    for _ in range(LOOKS):
        errors.append(error)
        felt = steered.position
        steered.update(Reading(error, 0.01, 0.9, 0.01), progress=0.0)
        error = LAG * error + (1 - LAG) * (START - felt)
    return errors


def response() -> go.Figure:
    """Draw the response of the loop at three loop gains."""
    looks = np.arange(LOOKS)
    return drawing(
        curve("k b = .06, as here", looks, errors_of(0.06), TEAL),
        curve("k b = .3", looks, errors_of(0.3), MAGENTA),
        curve("k b = 1.03, unstable", looks, errors_of(1.03), QUIET, "dot"),
        curve("no error", looks[[0, -1]], [0.0, 0.0], INK, "dash"),
        x="look",
        y="log T",
    )


def constant_radii() -> go.Figure:
    """Draw the NLL of ASAM at constant radii, and of the steered one where its radius ended."""
    files = ScoreFiles(SCORES)
    titles = [f"{name}: test NLL" for name in DATA_SETS.values()]
    figure = make_subplots(1, 2, subplot_titles=titles, horizontal_spacing=0.14)
    figure.update_layout(PLAIN_LAYOUT)
    figure.update_layout(margin_t=70, legend_y=1.12)

    for column, data in enumerate(DATA_SETS, 1):
        scored = with_records(rows.held(Setting(data=data)), files)
        steered = next(row.records for row in scored if row.name == rows.OURS)
        constant = {
            float(str(row.records[0].config.word("optimizer").value("rho"))): row.records
            for row in scored
            if row.name != rows.OURS
        }
        radii = sorted(constant)
        means = [fmean(map(nll, constant[radius])) for radius in radii]
        figure.add_trace(shown(curve("constant radius", radii, means, TEAL), column), 1, column)

        seeds = [(radius, nll(each)) for radius in radii for each in constant[radius]]
        figure.add_trace(dots("its seeds", seeds, TEAL, 5, column), 1, column)
        ended = [(each.control["rho"], nll(each)) for each in steered]
        figure.add_trace(dots("steered, where it ended", ended, MAGENTA, 9, column), 1, column)

        texts = [f"{radius:g}" for radius in radii]
        axis = {"type": "log", "tickvals": radii, "ticktext": texts, "title_text": "rho"}
        figure.update_xaxes(PLAIN_AXIS | axis, col=column)
        figure.update_yaxes(PLAIN_AXIS, col=column)
    return figure


def nll(record: Record) -> float:
    return float(record.test["nll"])


def dots(
    name: str, points: list[tuple[float, float]], colour: str, size: int, column: int
) -> go.Scatter:
    """Return points, named in the first panel alone."""
    x, y = zip(*points, strict=True)
    marker = {"color": colour, "size": size}
    return shown(go.Scatter(x=x, y=y, name=name, mode="markers", marker=marker), column)


def shown(trace: go.Scatter, column: int) -> go.Scatter:
    return trace.update(showlegend=column == 1)


def main() -> None:
    """Write both pictures."""
    drawings = {"honest_radius": response(), "constant_radii": constant_radii()}
    for name, svg in as_svg(drawings).items():
        (FOLDER / f"{name}.svg").write_text(svg + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
