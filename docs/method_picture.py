"""Draw the picture of docs/method.md: python docs/method_picture.py

The controller itself steers a plant with a lag, e' = phi e + (1 - phi)(d - b u), in which a move is
felt one look late. Like docs/pictures.py it needs Chromium and selenium.
"""

import math

import numpy as np
from pictures import FOLDER, as_svg, curve, drawing

from toosure.control import Integrator, Reading
from toosure.figures.style import INK, MAGENTA, QUIET, TEAL

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


def main() -> None:
    """Draw the response of the loop at three loop gains."""
    looks = np.arange(LOOKS)
    figure = drawing(
        curve("k b = .06, as here", looks, errors_of(0.06), TEAL),
        curve("k b = .3", looks, errors_of(0.3), MAGENTA),
        curve("k b = 1.03, unstable", looks, errors_of(1.03), QUIET, "dot"),
        curve("no error", looks[[0, -1]], [0.0, 0.0], INK, "dash"),
        x="look",
        y="log T",
    )
    svg = as_svg({"honest_radius": figure})["honest_radius"]
    (FOLDER / "honest_radius.svg").write_text(svg + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
