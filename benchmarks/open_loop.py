"""Does it take feedback? A steered radius against the same path, walked without looking.

    PYTHONPATH=src python3 benchmarks/open_loop.py --data-root DATA [--seeds 0 1 2 3]

The small training of control_lag.py. First every seed is steered (`radius:final_band=0,final=5`).
Then each is trained again while rho follows the path that steered the next seed; while it rises
evenly in log rho, from the same start and over the same steps, to where the steered seeds ended in
the (geometric) mean, to a half and to twice of that; and at constant radii. The control split has
no part in these. Per row, means over seeds: rho at the end, and of 4,000 test images log T,
accuracy, NLL and ECE, with the difference from the steered runs of the same seeds and its standard
error. One thread; about two minutes per run.
"""

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

import torch

from control_lag import EVERY, images, logits_of, scores, train
from toosure.control import Radius, log_temperature

START = 0.05
STEERED = Radius(every=EVERY, final_band=0.0, final=5.0)
CONSTANT = (0.3, 0.4, 0.6, 0.8)
RadiusPath = Callable[[int], float]  # rho by step


@dataclass
class Outcome:
    """A run: its last rho, and the scores of its test images."""

    rho: float
    log_temperature: float
    accuracy: float
    nll: float
    ece: float


class Trial:
    """Train runs of one length on one set of images."""

    def __init__(self, root: Path, steps: int) -> None:
        self.train_split, self.test = images(root)
        self.steps = steps

    def run(
        self, seed: int, path: RadiusPath | None = None
    ) -> tuple[Outcome, list[dict[str, float]]]:
        """Train one run, steered unless a path is given; return its outcome and its looks."""
        model, optimizer, control, _ = train(
            self.train_split, START, STEERED, self.steps, seed, path
        )
        x, y = self.test
        logits = logits_of(model, x)
        rho = float(optimizer.param_groups[0]["rho"])
        error = log_temperature(logits, y).value
        return Outcome(rho, error, *scores(logits, y)), control.looks


def replayed(looks: Sequence[dict[str, float]]) -> RadiusPath:
    """Return the path of a steered run: each look's rho from that step on."""
    radii = {int(look["step"]): look["control/rho"] for look in looks}

    def path(step: int) -> float:
        return radii.get(step // EVERY * EVERY, START)

    return path


def rising(end: float, first: int, steps: int) -> RadiusPath:
    """Return a path that rises evenly in log rho, from the start at step `first`, to `end`."""

    def path(step: int) -> float:
        share = max(0.0, step - first) / (steps - first)
        return START * (end / START) ** share

    return path


def row(name: str, outcomes: Sequence[Outcome], steered: Sequence[Outcome]) -> str:
    """Print the means of an arm, and the mean differences from the steered runs."""
    cells = [f"{math.exp(fmean(math.log(each.rho) for each in outcomes)):.2f}"]
    cells.append(f"{fmean(each.log_temperature for each in outcomes):+.3f}")
    for score, digits in (("accuracy", 2), ("nll", 4), ("ece", 2)):
        values = [getattr(each, score) for each in outcomes]
        cell = f"{fmean(values):.{digits}f}"
        if outcomes is not steered:
            pairs = zip(values, steered, strict=True)
            changes = [value - getattr(other, score) for value, other in pairs]
            error = stdev(changes) / math.sqrt(len(changes))
            cell += f" ({fmean(changes):+.{digits}f} ± {error:.{digits}f})"
        cells.append(cell)
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    """Train every arm on every seed, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-root", type=Path, default=Path("data"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--steps", type=int, default=1600)
    options = parser.parse_args()

    torch.set_num_threads(1)
    trial = Trial(options.data_root, options.steps)
    print("| rho | at the end | test log T | accuracy % | NLL | ECE |\n|---|---|---|---|---|---|")

    runs = [trial.run(seed) for seed in options.seeds]
    steered = [outcome for outcome, _ in runs]
    print(row("steered", steered, steered), flush=True)

    paths = [replayed(looks) for _, looks in runs]
    others = paths[1:] + paths[:1]
    end = math.exp(fmean(math.log(each.rho) for each in steered))
    first = min(int(looks[0]["step"]) for _, looks in runs)
    arms: dict[str, list[RadiusPath]] = {"the path of another seed": others}
    for name, factor in (("where it ended", 1.0), ("a half of it", 0.5), ("twice of it", 2.0)):
        risen = rising(factor * end, first, options.steps)
        arms[f"rising to {name}"] = [risen] * len(runs)
    for radius in CONSTANT:
        arms[f"held at {radius}"] = [lambda _, radius=radius: radius] * len(runs)

    for name, each in arms.items():
        outcomes = [
            trial.run(seed, path)[0] for seed, path in zip(options.seeds, each, strict=True)
        ]
        print(row(name, outcomes, steered), flush=True)


if __name__ == "__main__":
    main()
