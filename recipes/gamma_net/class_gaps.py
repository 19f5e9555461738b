"""How wrong the confidence of single classes is, which ECE pools away.

    PYTHONPATH=src python recipes/gamma_net/class_gaps.py RUNS

Of each run: confidence minus accuracy on the test images, its root mean square over predicted
classes about its mean, the same where every confidence is right (by chance: the images of a class
are few), the smallest and the largest class, and the gammas of the last row.
"""

import sys
from pathlib import Path

import numpy as np

from toosure.runs import Run, find_runs

DRAWS = 200


def main(folder: Path) -> None:
    print("| run | gap | classes, rms | by chance | from, to | gamma | at a bound |")
    print("|---|---|---|---|---|---|---|")
    for run in find_runs(folder):
        with np.load(run.path / "predictions.npz") as file:
            logits, labels = file["test_logits"].astype(float), file["test_labels"]
        shifted = np.exp(logits - logits.max(1, keepdims=True))
        confidence = shifted.max(1) / shifted.sum(1)
        predicted = logits.argmax(1)

        overall = 100 * (confidence - (predicted == labels)).mean()
        found = class_gaps(confidence, predicted == labels, predicted)
        random = np.random.default_rng(0)
        chance = [
            class_gaps(confidence, random.random(len(labels)) < confidence, predicted).std()
            for _ in range(DRAWS)
        ]
        cells = (
            *(run.name, f"{overall:+.2f}", f"{found.std():.1f}", f"{np.mean(chance):.1f}"),
            *(f"{found.min():+.1f}, {found.max():+.1f}", *gammas(run)),
        )
        print("| " + " | ".join(cells) + " |")


def class_gaps(confidence: np.ndarray, correct: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Return confidence minus accuracy of the rows of each predicted class, in points."""
    rows = 100 * (confidence - correct)
    return np.array([rows[predicted == k].mean() for k in np.unique(predicted)])


def gammas(run: Run) -> tuple[str, str]:
    """Return mean and spread of the last batch's gammas, and the share at a bound."""
    row = run.last
    if "objective/gamma_mean" not in row:
        return "–", "–"
    mean, std, bound = (row[f"objective/gamma_{key}"] for key in ("mean", "std", "at_bound"))
    return f"{mean:.2f} ± {std:.2f}", f"{bound:.0%}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
