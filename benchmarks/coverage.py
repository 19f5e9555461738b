"""How often a 95 % interval holds the true calibration error, and how wide it is.

    PYTHONPATH=src python benchmarks/coverage.py [--sets 400] [--write]
    PYTHONPATH=src python benchmarks/coverage.py --sets 300 --methods    # for docs/metrics.md

Rows are right with probability confidence - error, so that every bin, and smECE at any width, has
the true error. Confidences are even on 0.52 to 1, or crowd near 1 as those of a trained network do.
Of classwise ECE, labels are drawn from softmax(z / T) and softmax(z) is claimed: the true error is
that of the mean probabilities of each class and bin, over a million rows. The NLL is that of
calibrated rows of a mean confidence of 98 %, whose few misses make most of it.
"""

import argparse
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import torch

from toosure import metrics

RESULTS = Path(__file__).parent / "results" / "coverage.md"
SIZES = (2, 5, 20, 500, 5_000, 50_000)
ERRORS = (0.0, 0.02)
CLASSWISE_SIZES = (50, 500, 5_000)
CLASSES = (3, 10)
TEMPERATURES = (1.0, 1.3)
NLL_SIZES = (20, 150, 500, 5_000)
CLASSWISE_SAMPLES = 200  # as `toosure evaluate` takes
METRICS = {"ECE": metrics.ece_from_confidence, "smECE": metrics.smece_from_confidence}
METHODS = ("percentile", "basic", "auto")
COMPARED = (  # metric, n, true error: what the methods are compared on
    ("ece", 500, 0.0),
    ("ece", 500, 0.1),
    ("ece", 5_000, 0.0),
    ("ece", 5_000, 0.1),
    ("adaptive_ece", 500, 0.0),
    ("rmsce", 30, 0.1),
    ("rmsce", 500, 0.0),
    ("mce", 500, 0.0),
    ("mce", 500, 0.1),
)


def even(rng, n):
    """Confidences even on 0.52 to 1."""
    return rng.uniform(0.52, 1.0, n)


def crowded(rng, n):
    """Confidences of which most lie near 1."""
    return 0.52 + 0.48 * rng.beta(2.0, 0.7, n)


def sure(rng, n):
    """Confidences from 0.9 up, 0.98 on average."""
    return 0.9 + 0.0999 * rng.beta(2.0, 0.5, n)


DRAWS = {"even": even, "crowded": crowded}


def interval_of_confidences(metric, draw, n, error, seed, method="auto"):
    """Return the ends of one set; it has a seed of its own, for its rows and its bootstrap."""
    rng = np.random.default_rng([n, seed])
    confidence = draw(rng, n)
    correct = rng.random(n) < confidence - error
    return metrics.confidence_interval_from_confidence(
        metric, torch.tensor(confidence), torch.tensor(correct), seed=seed, method=method
    )[1:]


def interval_of_classes(classes, n, temperature, seed):
    """Return the ends of classwise ECE of one set."""
    rng = np.random.default_rng([n, seed])
    logits = 2 * rng.standard_normal((n, classes))
    reached = torch.softmax(torch.tensor(logits / temperature), 1).cumsum(1).numpy()
    labels = (reached[:, :-1] < rng.random((n, 1))).sum(1)
    return metrics.confidence_interval(
        metrics.classwise_ece, logits, labels, seed=seed, samples=CLASSWISE_SAMPLES
    )[1:]


def true_classwise_ece(classes, temperature, n=1_000_000):
    """Return the error of what is claimed against what is true, without the noise of labels."""
    logits = torch.tensor(2 * np.random.default_rng(0).standard_normal((n, classes)))
    claimed = logits.softmax(1)
    rest = claimed - (logits / temperature).softmax(1)
    bins = (claimed * 15).ceil().long() - 1
    sums = [torch.bincount(bins[:, k], rest[:, k], 15).abs().sum() / n for k in range(classes)]
    return float(torch.stack(sums).mean())


def interval_of_nll(n, seed):
    """Return the ends of the NLL of two classes."""
    rng = np.random.default_rng([n, seed])
    confidence = sure(rng, n)
    labels = (rng.random(n) > confidence).astype(int)
    probs = np.stack([confidence, 1 - confidence], 1)
    return metrics.confidence_interval(metrics.nll, probs=probs, labels=labels, seed=seed)[1:]


def true_nll(n=1_000_000):
    """Return the mean NLL of labels that are as probable as claimed."""
    c = sure(np.random.default_rng(0), n)
    return float(-np.mean(c * np.log(c) + (1 - c) * np.log(1 - c)))


def coverage(interval_of, error, sets):
    """Return the shares of intervals that hold the error, end below and begin above, the width."""
    ends = np.array([[float(end) for end in interval_of(seed)] for seed in range(sets)])
    below = float(np.mean(ends[:, 1] < error))
    above = float(np.mean(ends[:, 0] > error))
    return 1 - below - above, below, above, float(np.mean(ends[:, 1] - ends[:, 0]))


def rows_of(sets):
    """Yield a line of the table for every metric, draw, size and error."""
    for (name, metric), draw, n, error in product(METRICS.items(), DRAWS, SIZES, ERRORS):
        interval_of = partial(interval_of_confidences, metric, DRAWS[draw], n, error)
        yield line_of(name, draw, n, error, coverage(interval_of, error, sets))

    for classes, n, temperature in product(CLASSES, CLASSWISE_SIZES, TEMPERATURES):
        error = true_classwise_ece(classes, temperature)
        interval_of = partial(interval_of_classes, classes, n, temperature)
        result = coverage(interval_of, error, sets)
        yield line_of("classwise ECE", f"{classes} classes", n, error, result)

    for n in NLL_SIZES:
        result = coverage(partial(interval_of_nll, n), true_nll(), sets)
        yield line_of("NLL", "sure", n, true_nll(), result)


def rows_of_methods(sets):
    """Yield a line for every metric, size and error of `COMPARED`: what each method holds."""
    for name, n, error in COMPARED:
        metric = getattr(metrics, f"{name}_from_confidence")
        results = {}
        for method in METHODS:
            interval_of = partial(interval_of_confidences, metric, even, n, error, method=method)
            results[method] = coverage(interval_of, error, sets)

        shares = " | ".join(f"{100 * results[method][0]:.0f} %" for method in METHODS)
        widths = ", ".join(f"{results[method][-1]:.3f}" for method in METHODS[1:])
        yield f"| `{name}`, {n:,}, {error:g} | {shares} | {widths} |"


def line_of(name, draw, n, error, result):
    """Return one line of the table."""
    held, below, above, width = result
    return (
        f"| {name} | {draw} | {n:,} | {error:.2g} | {100 * held:.1f} % | "
        f"{100 * below:.1f} % | {100 * above:.1f} % | {width:.4f} |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=400)
    parser.add_argument("--write", action="store_true", help="write results/coverage.md")
    parser.add_argument("--methods", action="store_true", help="compare the methods of intervals")
    options = parser.parse_args()
    if options.methods:
        print(*rows_of_methods(options.sets), sep="\n")
        return

    lines = [
        "| metric | confidences | n | true error | held | too low | too high | mean width |",
        "|---|---|---|---|---|---|---|---|",
    ]
    print(*lines, sep="\n")
    for line in rows_of(options.sets):
        lines.append(line)
        print(line, flush=True)
    if options.write:
        RESULTS.write_text(page(lines, options.sets), encoding="utf-8")


def page(lines, sets):
    """Return the page of results."""
    noise = 100 * 1.96 * (0.95 * 0.05 / sets) ** 0.5
    return f"""# Do 95 % intervals of a calibration error hold it?

`python benchmarks/coverage.py --sets {sets} --write`: {sets} sets of rows for every line, 15 bins,
1,000 replicas ({CLASSWISE_SAMPLES} of classwise ECE). A share of 95 % is known to ± {noise:.1f}
points. *Too low*: the interval ends below the true error; *too high*: it begins above it.

{chr(10).join(lines)}

Aim: at least 93 % on every line. The NLL of few sure rows misses it: among 20 there is often no
miss, and nothing says how costly one would be.
"""


if __name__ == "__main__":
    main()
