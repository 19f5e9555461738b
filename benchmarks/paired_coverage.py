"""How often bounds of a difference between two methods hold it, on simulated test images.

    PYTHONPATH=src python benchmarks/paired_coverage.py [--sets 100] [--write]

Confidences are those of two kept runs of the benchmark. Hits are drawn so that the temperature of
each run is known: right with probability sigmoid(logit(confidence) / T). Both share half of what
makes an image hard. The bounds are those of the recipes themselves, with 100 resamples.

A difference has two true values. As measured: the mean over all sets of 10,000 images, with what
chance adds to each error. Without chance: that of infinitely many images.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from scipy.special import expit, logit
from scipy.stats import norm

from toosure import metrics
from toosure.recipes.benchmark.paired import PairedScores
from toosure.recipes.benchmark.score_files import ScoreFiles
from toosure.recipes.radius.difference_bounds import BoundedScores

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "paired_coverage.md"
RESAMPLES = 100
SHARED = 0.5  # of the variance of what makes an image hard
RUNS = {
    "CIFAR-100": ("c31cf213", "99ed60ad"),  # a steered run, and SAM at rho .1
    "CIFAR-10": ("2d54fdcd", "3e30daeb"),
}
TEMPERATURES = ((1.0, 1.0), (1.05, 1.0), (1.2, 1.2))  # ours, the rival's
SCORES = {"debiased_ece": "debiased ECE", "smece": "smECE", "ece": "ECE"}
HEADER = "| data, T of ours and of the rival | score | true | measured | above the bound | held |"


def simulated(confidence: np.ndarray, right: np.ndarray, rng: np.random.Generator) -> Iterator:
    """Yield sets of test images of two runs, (2, N) each: confidences, and hits drawn for them."""
    while True:
        rows = rng.integers(confidence.shape[1], size=confidence.shape[1])
        own = rng.normal(size=confidence.shape)
        hard = np.sqrt(SHARED) * rng.normal(size=len(rows)) + np.sqrt(1 - SHARED) * own
        yield confidence[:, rows], norm.cdf(hard) < right[:, rows]


def bounds_of(confidence: np.ndarray, hits: np.ndarray, records: list) -> dict[str, tuple]:
    """Return value, one-sided bound and two-sided ends of each difference, NaN where not taken."""
    ours, rival = records
    examples = {
        record.name: {"confidence": c, "correct": h, "log_probability": np.log(c)}
        for record, c, h in zip(records, confidence, hits, strict=True)
    }
    found = {}
    bounded = BoundedScores(examples, RESAMPLES)
    for metric in ("debiased_ece", "smece"):
        difference = bounded.difference(metric, [rival], [ours])
        found[metric] = (difference.value, difference.high, np.nan, np.nan)

    ece = PairedScores(examples, RESAMPLES).differences([rival], [ours]).ece
    found["ece"] = (ece.value, np.nan, ece.low, ece.high)
    return found


def true_differences(confidence: np.ndarray, right: np.ndarray) -> dict[str, float]:
    """Return the differences without chance, of rows that stand for infinitely many each.

    Of 200 copies of a row a share is right, its probability up to a random rounding.
    """
    copies = 200
    rng = np.random.default_rng(1)
    errors = []
    for c, p in zip(confidence, right, strict=True):
        hits = np.arange(copies)[:, None] + rng.random(len(p)) < p * copies
        pair = torch.from_numpy(np.tile(c, copies)), torch.from_numpy(hits.ravel())
        ece = 100 * float(metrics.ece_from_confidence(*pair))
        smece = 100 * float(metrics.smece_from_confidence(*pair))
        errors.append({"ece": ece, "debiased_ece": ece, "smece": smece})
    return {key: errors[0][key] - errors[1][key] for key in SCORES}


def lines(data: str, temperatures: tuple[float, float], sets: int) -> list[str]:
    """Return a line of the table per score."""
    files = ScoreFiles(ROOT / "recipes" / "benchmark")
    records = [next(r for n, r in files.records.items() if n.endswith(e)) for e in RUNS[data]]
    confidence = np.stack([files.examples[r.name]["confidence"].astype(float) for r in records])
    confidence = confidence.clip(1e-6, 1 - 1e-6)
    records[1].config = records[0].config  # of the same seed
    right = expit(logit(confidence) / np.array(temperatures)[:, None])

    draws = simulated(confidence, right, np.random.default_rng(0))
    found = [bounds_of(*next(draws), records) for _ in range(sets)]
    true = true_differences(confidence, right)
    table = []
    for key, name in SCORES.items():
        value, bound, low, high = np.array([each[key] for each in found]).T
        targets = (value.mean(), true[key])
        missed = [f"{100 * np.mean(bound < t):.0f} %" for t in targets]
        held = [f"{100 * np.mean((low <= t) & (t <= high)):.0f} %" for t in targets]
        above = "–" if np.isnan(bound).all() else " / ".join(missed)
        kept = "–" if np.isnan(low).all() else " / ".join(held)
        which = f"{data}, {temperatures[0]:g} and {temperatures[1]:g}"
        table.append(
            f"| {which} | {name} | {true[key]:+z.2f} | {value.mean():+z.2f} | {above} | {kept} |"
        )
        print(table[-1], flush=True)
    return table


def page(table: list[str], sets: int) -> str:
    """Return the page of results."""
    return f"""# Do bounds of a difference between two methods hold it?

`python benchmarks/paired_coverage.py --sets {sets} --write`: {sets} simulated sets of 10,000 test
images for every line, {RESAMPLES} resamples each; points. *Above the bound*: how often the
difference lies above the one-sided 95 % bound of `toosure reproduce radius` (centred; 5 % is due).
*Held*: by the two-sided 95 % interval of the benchmark (percentiles; 95 % is due). Both are given
of the difference as measured on so many images, then of the true one, without what chance adds.

{HEADER}
|---|---|---|---|---|---|
{chr(10).join(table)}

Of differences as measured both hold their level, as far as so few sets can tell (5 % of 100 is
known to ± 4); percentiles hold more. Of the true ones neither does where one network is calibrated
and the other is not: chance adds most to the error of a calibrated network, so that the two look
nearer than they are. No interval over images mends that; the recipe prints what chance alone shows.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()

    print(HEADER)
    table = [
        line
        for data in RUNS
        for temperatures in TEMPERATURES
        for line in lines(data, temperatures, options.sets)
    ]
    if options.write:
        RESULTS.write_text(page(table, options.sets))


if __name__ == "__main__":
    main()
