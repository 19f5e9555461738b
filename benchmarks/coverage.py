"""How often a 95 % interval holds the true calibration error, and how wide it is.

    PYTHONPATH=src python benchmarks/coverage.py [--sets 400] [--write]

Rows are right with probability confidence - error, so that every bin, and smECE at any width, has
the true error. Confidences are even on 0.52 to 1, or crowd near 1 as those of a trained network do.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from toosure import metrics

RESULTS = Path(__file__).parent / "results" / "coverage.md"
SIZES = (500, 5_000, 50_000)
ERRORS = (0.0, 0.02)
METRICS = {"ECE": metrics.ece_from_confidence, "smECE": metrics.smece_from_confidence}


def even(rng, n):
    """Confidences even on 0.52 to 1."""
    return rng.uniform(0.52, 1.0, n)


def crowded(rng, n):
    """Confidences of which most lie near 1."""
    return 0.52 + 0.48 * rng.beta(2.0, 0.7, n)


DRAWS = {"even": even, "crowded": crowded}


def coverage(metric, draw, n, error, sets):
    """Return the share of intervals that hold the error, that miss it below and above, the width.

    Every set has a seed of its own, for its rows and its bootstrap.
    """
    below = above = 0
    widths = []
    for seed in range(sets):
        rng = np.random.default_rng([n, seed])
        confidence = draw(rng, n)
        correct = rng.random(n) < confidence - error
        _, low, high = metrics.confidence_interval_from_confidence(
            metric, torch.tensor(confidence), torch.tensor(correct), seed=seed
        )
        below += bool(high < error)
        above += bool(low > error)
        widths.append(float(high - low))
    return 1 - (below + above) / sets, below / sets, above / sets, float(np.mean(widths))


def rows_of(sets):
    """Yield a line of the table for every metric, draw, size and error."""
    for name, metric in METRICS.items():
        for draw in DRAWS:
            for n in SIZES:
                for error in ERRORS:
                    held, below, above, width = coverage(metric, DRAWS[draw], n, error, sets)
                    yield (
                        f"| {name} | {draw} | {n:,} | {error:g} | {100 * held:.1f} % | "
                        f"{100 * below:.1f} % | {100 * above:.1f} % | {width:.4f} |"
                    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=400)
    parser.add_argument("--write", action="store_true", help="write results/coverage.md")
    options = parser.parse_args()

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
1,000 replicas. A share of 95 % is known to ± {noise:.1f} points. *Too low*: the interval ends below
the true error; *too high*: it begins above it.

{chr(10).join(lines)}

Aim: at least 93 % on every line, for a true error of 0 and of 0.02 at n = 500, 5,000 and 50,000.
"""


if __name__ == "__main__":
    main()
