"""How often classes are called wrong that are not, and how often those that are.

Confidences differ by class, and rows are right as often as claimed less the shift of their class.
A shared error multiplies all logits after the labels were drawn: no fault of a class.

    python benchmarks/class_gaps.py > benchmarks/results/class_gaps.md
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from toosure.evaluate.class_gaps import gaps_by_class
from toosure.metrics import ece_from_confidence
from toosure.predictions import Predictions, from_confidence

SETS = 500
DEALS = 400
OPPOSITE = (0.02, -0.02, 0.05, 0.06, 0.01, 0.07, 0.0, 0.01, -0.03, -0.16)
ONE_OF_100 = (0.2, *[0.0] * 99)
DIFFUSE = tuple(0.05 * np.random.default_rng(0).normal(size=100))


class Case(NamedTuple):
    """What rows are drawn from."""

    n: int
    classes: int = 10
    sure: bool = False
    sharper: float = 1.0
    shift: tuple[float, ...] = (0.0,)


def drawn(case: Case, seed: int) -> Predictions:
    """Return confidences, hits and predicted classes."""
    rng = np.random.default_rng((seed, case.n, case.classes))
    easy = np.random.default_rng(99).uniform(1, 4, case.classes)
    predicted = rng.integers(case.classes, size=case.n)
    if case.sure:
        doubt = rng.beta(0.3, 5 * easy[predicted]) / 2
    else:
        doubt = rng.beta(1, easy[predicted]) / 2
    confidence = np.clip(1 - doubt, 0.5, 1 - 1e-9)

    chance = confidence - np.resize(case.shift, case.classes)[predicted]
    correct = rng.random(case.n) < np.clip(chance, 0.02, 1)
    odds = np.log(confidence / (1 - confidence))
    claimed = 1 / (1 + np.exp(-case.sharper * odds))
    one_hot = torch.eye(case.classes)[torch.from_numpy(predicted)]
    return replace(from_confidence(claimed, correct), logits=one_hot)


def judged(case: Case) -> np.ndarray:
    """Return the mean over sets: p below 5 %, a class named, ECE, gap, spread, truth held."""
    many = gaps_by_class(drawn(case._replace(n=1_000_000), 0), samples=50)
    assert many is not None
    truth = many.spread.value

    rows = []
    for seed in range(SETS):
        given = drawn(case, seed)
        found = gaps_by_class(given, seed=seed, samples=DEALS)
        assert found is not None and found.spread.low is not None and found.spread.high is not None
        error = float(ece_from_confidence(given.confidence, given.correct))
        gap = float((given.confidence - given.correct.double()).mean())
        held = found.spread.low <= truth <= found.spread.high
        spread = found.spread.value
        rows.append((found.p_value <= 0.05, bool(found.miscalibrated), error, gap, spread, held))
    return 100 * np.mean(rows, axis=0)


def show(name: str, case: Case) -> None:
    """Print a row of a table."""
    below, named, error, gap, spread, held = judged(case)
    cells = (name, f"{case.classes}", f"{case.n:,}", f"{below:.1f} %", f"{named:.1f} %")
    numbers = (f"{error:.1f}", f"{gap:+.1f}", f"{spread:.1f}", f"{held:.0f} %")
    print("| " + " | ".join(cells + numbers) + " |", flush=True)


def main() -> None:
    head = "| rows | classes | n | p below 5 % | a class named | ECE | gap | `class_gap` | held |"
    print(f"# Classes that are called wrong: {SETS} sets each, {DEALS} deals\n")
    print("Made by `python benchmarks/class_gaps.py` on made-up rows: no machine matters.\n")
    print("ECE, gap and `class_gap` are means, in points; held is how often the 95 % interval of")
    print("`class_gap` holds that of a million rows.\n\n## No class is wrong\n")
    print(f"{head}\n|{'---|' * 9}")
    for sure, kind in ((False, "calibrated, 85 %"), (True, "calibrated, 99 %")):
        for sharper in (1.0, 1.6):
            name = kind if sharper == 1 else f"{kind}, then logits x 1.6"
            for classes in (10, 100):
                for n in (300, 1000, 10_000):
                    show(name, Case(n, classes, sure, sharper))

    print(f"\n## Classes are wrong\n\n{head}\n|{'---|' * 9}")
    for n in (300, 1000, 3000, 10_000):
        show("-16 to +7 points, opposite", Case(n, shift=OPPOSITE))
    show("the same, logits x 1.6", Case(10_000, sharper=1.6, shift=OPPOSITE))
    show("one of 100 at +20 points", Case(10_000, 100, shift=ONE_OF_100))
    show("100 by 5 points, at random", Case(10_000, 100, shift=DIFFUSE))
    show("99 % sure, one of 10 at +6", Case(10_000, sure=True, shift=(0.06, *[0.0] * 9)))
    show("1 point to both sides", Case(100_000, shift=(0.01, -0.01)))


if __name__ == "__main__":
    main()
