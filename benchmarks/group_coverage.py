"""How often 95 % intervals hold the truth where rows come in groups, over groups and over rows.

Each group (a sequence, an image) is right more or less often than claimed by a shift of its own
with mean 0, so the true gap and the true ECE of the bins are 0.

    python benchmarks/group_coverage.py > benchmarks/results/group_coverage.md
"""

import numpy as np
import torch

from toosure.evaluate.estimates import confidence_gap
from toosure.evaluate.grouped import grouped_gap
from toosure.metrics import (
    cluster_interval_from_confidence,
    confidence_interval_from_confidence,
    ece_from_confidence,
)
from toosure.predictions import Predictions

SETS = 400
SAMPLES = 500
SPREAD = 0.25  # the shift of a group is even on [-SPREAD, SPREAD]


def drawn(seed: int, groups: int, size: int) -> Predictions:
    """Return predictions of `groups` groups of `size` rows."""
    rng = np.random.default_rng((seed, groups, size))
    confidence = rng.uniform(0.3, 0.7, (groups, size))
    shift = rng.uniform(-SPREAD, SPREAD, (groups, 1))
    correct = rng.random((groups, size)) < confidence + shift
    rows = torch.arange(groups).repeat_interleave(size)
    tensors = (torch.from_numpy(each.ravel()) for each in (confidence, correct))
    return Predictions("confidence", *tensors, groups=rows)


def held(seed: int, groups: int, size: int) -> np.ndarray:
    """Return which intervals of one set hold 0, and their widths: gap and ECE, groups and rows."""
    given = drawn(seed, groups, size)
    pair = (given.confidence, given.correct)
    options = {"level": 0.95, "seed": seed, "samples": SAMPLES}

    intervals = [grouped_gap(given, **options)[1:], confidence_gap(given, **options)[1:]]
    of_groups = cluster_interval_from_confidence(
        ece_from_confidence, *pair, given.groups, **options
    )
    of_rows = confidence_interval_from_confidence(ece_from_confidence, *pair, **options)
    intervals += [tuple(map(float, each[1:])) for each in (of_groups, of_rows)]
    return np.array([[low <= 1e-9 and high >= 0, high - low] for low, high in intervals])


def main() -> None:
    print(f"# Intervals over groups: {SETS} sets, 95 %, true gap and true ECE 0\n")
    print("| groups x rows | quantity | held, groups | held, rows | mean width, groups | rows |")
    print("|---|---|---|---|---|---|")
    for groups, size in ((10, 50), (20, 50), (50, 20), (200, 10)):
        results = np.mean([held(seed, groups, size) for seed in range(SETS)], axis=0)
        for name, (ours, rows) in (("gap", results[:2]), ("ece", results[2:])):
            shares = f"{100 * ours[0]:.0f} % | {100 * rows[0]:.0f} %"
            print(f"| {groups} x {size} | {name} | {shares} | {ours[1]:.3f} | {rows[1]:.3f} |")


if __name__ == "__main__":
    main()
