"""How wrong the confidence of single classes is, which ECE pools away.

    PYTHONPATH=src python recipes/gamma_net/class_gaps.py RUNS

Of each run: confidence minus accuracy on the test images, its root mean square over predicted
classes about its mean, the same where every confidence is right (by chance: the images of a class
are few), the smallest and the largest class, and the gammas of the last row.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from toosure.metrics import class_gaps, top_label
from toosure.recipes.benchmark.class_gaps import class_gap_spread
from toosure.runs import Run, find_runs

DRAWS = 200


def main(folder: Path) -> None:
    print("| run | gap | classes, rms | by chance | from, to | gamma | at a bound |")
    print("|---|---|---|---|---|---|---|")
    for run in find_runs(folder):
        with np.load(run.path / "predictions.npz") as file:
            logits = torch.from_numpy(file["test_logits"]).double()
            labels = torch.from_numpy(file["test_labels"])
        confidence, correct = top_label(logits, labels)
        predicted = logits.argmax(1)

        overall = 100 * float((confidence - correct.double()).mean())
        found = 100 * class_gaps(confidence, correct, predicted)
        cells = (
            *(run.name, f"{overall:+.2f}", f"{100 * class_gap_spread(logits, labels):.1f}"),
            f"{100 * by_chance(confidence, predicted):.1f}",
            *(f"{found.min():+.1f}, {found.max():+.1f}", *gammas(run)),
        )
        print("| " + " | ".join(cells) + " |")


def by_chance(confidence: Tensor, predicted: Tensor) -> float:
    """Return the spread of the class gaps where every confidence is right, on average."""
    generator = torch.Generator().manual_seed(0)
    spreads = []
    for _ in range(DRAWS):
        correct = torch.rand(len(confidence), generator=generator) < confidence
        spreads.append(class_gaps(confidence, correct, predicted).std(correction=0))
    return float(torch.stack(spreads).mean())


def gammas(run: Run) -> tuple[str, str]:
    """Return mean and spread of the last batch's gammas, and the share at a bound."""
    row = run.last
    if "objective/gamma_mean" not in row:
        return "–", "–"
    mean, std, bound = (row[f"objective/gamma_{key}"] for key in ("mean", "std", "at_bound"))
    return f"{mean:.2f} ± {std:.2f}", f"{bound:.0%}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
