"""How often 95 % intervals hold the truth where rows come in groups, over groups and over rows.

Each group (a sequence, an image) is right more or less often than claimed by a shift of its own
with mean 0, so the true gap and all true calibration errors are 0. Of three classes, a group has
more of one and less of another than claimed.

    python benchmarks/group_coverage.py > benchmarks/results/group_coverage.md
"""

import numpy as np
import torch

from toosure.evaluate.estimates import confidence_gap
from toosure.evaluate.grouped import grouped_gap
from toosure.metrics import (
    classwise_ece,
    confidence_interval,
    confidence_interval_from_confidence,
    ece_from_confidence,
    smece_from_confidence,
)
from toosure.predictions import Predictions

SETS = 400
SAMPLES = 500
CLASSWISE_SAMPLES = 200  # as `toosure evaluate` takes
QUANTITIES = ("gap", "ece", "smece", "classwise_ece")
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


def drawn_classes(seed: int, groups: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return probabilities (N, 3) and labels of the same groups."""
    rng = np.random.default_rng((seed, groups, size, 3))
    probs = 0.25 + 0.25 * rng.dirichlet((1, 1, 1), (groups, size))
    shift = rng.permuted(np.tile([1.0, -1.0, 0.0], (groups, 1)), axis=1)
    shift *= rng.uniform(0, SPREAD, (groups, 1))
    reached = (probs + shift[:, None]).cumsum(2)[..., :-1]
    labels = (reached < rng.random((groups, size, 1))).sum(2)
    return torch.from_numpy(probs.reshape(-1, 3)), torch.from_numpy(labels.ravel())


def held(seed: int, groups: int, size: int) -> np.ndarray:
    """Return which intervals of one set hold 0, and their widths: of groups and rows in turn."""
    given = drawn(seed, groups, size)
    pair = (given.confidence, given.correct)
    options = {"level": 0.95, "seed": seed, "samples": SAMPLES}

    intervals = [grouped_gap(given, **options)[1:], confidence_gap(given, **options)[1:]]
    found = []
    for metric in (ece_from_confidence, smece_from_confidence):
        for resampled in ({"groups": given.groups}, {}):
            found.append(confidence_interval_from_confidence(metric, *pair, **options, **resampled))

    probs, labels = drawn_classes(seed, groups, size)
    of_classes = options | {"probs": probs, "labels": labels, "samples": CLASSWISE_SAMPLES}
    for resampled in ({"groups": given.groups}, {}):
        found.append(confidence_interval(classwise_ece, **of_classes, **resampled))
    intervals += [tuple(map(float, each[1:])) for each in found]
    return np.array([[low <= 1e-9 and high >= 0, high - low] for low, high in intervals])


def main() -> None:
    print(f"# Intervals over groups: {SETS} sets, 95 %, true gap and true errors 0\n")
    print("`python benchmarks/group_coverage.py`. A share of 95 % is known to ± 2.1 points.\n")
    print("| groups x rows | quantity | held, groups | held, rows | mean width, groups | rows |")
    print("|---|---|---|---|---|---|")
    for groups, size in ((10, 50), (20, 50), (50, 20), (200, 10)):
        results = np.mean([held(seed, groups, size) for seed in range(SETS)], axis=0)
        for name, ours, rows in zip(QUANTITIES, results[::2], results[1::2], strict=True):
            shares = f"{100 * ours[0]:.0f} % | {100 * rows[0]:.0f} %"
            print(f"| {groups} x {size} | {name} | {shares} | {ours[1]:.3f} | {rows[1]:.3f} |")


if __name__ == "__main__":
    main()
