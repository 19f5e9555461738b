"""Which calibrator, fitted on how many rows: `python benchmarks/calibrators.py DATA`.

DATA/logits holds predictions that others have published. Every calibrator is fitted on 500, 1,000
and 5,000 rows, drawn three times, and judged on 5,000 others: NLL, ECE and accuracy, and what
`auto` takes by the NLL of held-out folds. The table goes to benchmarks/results/calibrators.md.
"""

import sys
import warnings
from pathlib import Path
from statistics import mean

import numpy as np
import torch
from torch import Tensor

from toosure.metrics import accuracy, ece, nll
from toosure.posthoc import CALIBRATORS, choose

RESULTS = Path(__file__).resolve().parent / "results" / "calibrators.md"
FILES = {
    "ResNet-110, CIFAR-10": "logits_resnet110_c10.npz",
    "VGG-16, CIFAR-10": "probs_vgg16_c10_verifiedcal.npz",
    "ResNet-50 by focal loss, CIFAR-10": "logits_resnet50_c10_focalcal.npz",
    "DenseNet-BC-100, CIFAR-100": "probs_densenetbc100_c100_netcal.npz",
}
SIZES = (500, 1000, 5000)
DRAWS = 3
MANY_CLASSES = 50  # above it `auto` leaves these out, and so do we
QUADRATIC = ("matrix", "dirichlet")

Scores = dict[str, tuple[float, float, float]]  # by calibrator: NLL, ECE, accuracy


def load(file: Path) -> tuple[Tensor, Tensor]:
    """Return logits and labels of the 10,000 test images."""
    arrays = np.load(file)
    labels = torch.from_numpy(arrays["test_labels"]).long().flatten()
    if "test_logits" in arrays:
        return torch.from_numpy(arrays["test_logits"]).double(), labels
    probs = torch.from_numpy(arrays["test_probs"]).double()
    return probs.clamp_min(1e-12).log(), labels


def scores_of(logits: Tensor, labels: Tensor, size: int, seed: int) -> tuple[Scores, str]:
    """Fit every calibrator on some rows, judge it on 5,000 others; also say what `auto` takes."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    fit, judge = order[:size], order[5000:]
    classes = logits.shape[1]
    makers = {
        name: maker
        for name, maker in CALIBRATORS.items()
        if classes <= MANY_CLASSES or name not in QUADRATIC
    }

    scores: Scores = {"uncalibrated": judged(logits[judge], labels[judge])}
    for name, maker in makers.items():
        try:
            calibrator = maker().fit(logits[fit], labels[fit])
        except ValueError:  # too few rows for its parameters, or a class without one
            continue
        scores[name] = judged(calibrator(logits[judge]), labels[judge])
    return scores, choose(logits[fit], labels[fit], makers, seed=seed).name


def judged(logits: Tensor, labels: Tensor) -> tuple[float, float, float]:
    return float(nll(logits, labels)), float(ece(logits, labels)), float(accuracy(logits, labels))


def table(title: str, logits: Tensor, labels: Tensor) -> list[str]:
    """Return the table of one network: a row per calibrator, three numbers per size."""
    by_size: dict[int, list[Scores]] = {}
    taken: dict[int, list[str]] = {}
    for size in SIZES:
        draws = [scores_of(logits, labels, size, seed) for seed in range(DRAWS)]
        by_size[size] = [scores for scores, _ in draws]
        taken[size] = [name for _, name in draws]

    heads = [f"NLL, ECE, accuracy by {size:,} rows" for size in SIZES]
    lines = [f"## {title}", "", "| calibrator | " + " | ".join(heads) + " |"]
    lines.append("|---" * (len(SIZES) + 1) + "|")
    names = dict.fromkeys(name for scores in by_size[SIZES[-1]] for name in scores)
    for name in names:
        cells = [cell([s[name] for s in by_size[size] if name in s]) for size in SIZES]
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    chosen = [", ".join(f"`{name}`" for name in taken[size]) for size in SIZES]
    return [*lines, "| `auto` took | " + " | ".join(chosen) + " |", ""]


def cell(scores: list[tuple[float, float, float]]) -> str:
    """Return the means over draws, or a dash where it could not be fitted in one of them."""
    if len(scores) < DRAWS:
        return "–"
    loss, error, right = (mean(values) for values in zip(*scores, strict=True))
    return f"{loss:.4f}, {100 * error:.2f}, {100 * right:.2f}"


def main(folder: str) -> None:
    torch.set_num_threads(1)
    lines = ["# Which calibrator, fitted on how many rows", ""]
    lines += ["Made by `python benchmarks/calibrators.py DATA`, from predictions that others have"]
    lines += [
        "published. Fitted on 500, 1,000 or 5,000 of the 10,000 test rows and judged on 5,000"
    ]
    lines += [
        f"others; means over {DRAWS} draws. NLL in nats, ECE in points (15 bins), accuracy in"
    ]
    lines += ["per cent. –: could not be fitted in every draw.", ""]
    for title, name in FILES.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # fits that become the identity say so
            lines += table(title, *load(Path(folder) / "logits" / name))
        print("\n".join(lines), flush=True)
    RESULTS.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
