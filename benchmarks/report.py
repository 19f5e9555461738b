"""Size of the report and the time to render it: a hundred runs of 5,000 rows, one of 200,000."""

import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from toosure.page.report import report

METRICS = (
    *("loss", "accuracy", "confidence", "ece", "adaptive_ece", "classwise_ece", "mmce", "smece"),
    *("nll", "brier", "entropy", "margin_mean", "margin_min", "margin_q01", "margin_q05"),
    *("margin_q25", "margin_q50", "margin_q75", "log_q", "gn_sharpness", "gn_sharpness_error"),
)  # what `toosure train` writes


def write_run(folder: Path, rows: int, seed: int, snapshots: int = 40) -> None:
    """Write a run folder of random walks, with every key that training writes."""
    generator = np.random.default_rng(seed)
    keys = [f"{split}/{name}" for split in ("train", "val") for name in METRICS]
    walk = np.abs(generator.normal(0, 0.01, (rows, len(keys))).cumsum(0) + 0.5) % 1

    (folder / "snapshots").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"optimizer": f"sgd:lr={1 + seed}", "seed": 0}))
    (folder / "status.json").write_text(json.dumps({"status": "complete", "step": rows - 1}))

    fields = ", ".join(f'"{key}": %.17g' for key in keys)
    template = f'{{"step": %d, "lr": 0.1, "epoch": %g, {fields}, "seconds": %g}}\n'
    with (folder / "metrics.jsonl").open("w") as file:
        for step, values in enumerate(walk.tolist()):
            file.write(template % (step, step / 10, *values, step / 100))

    for step in np.geomspace(1, rows, snapshots).astype(int):
        np.savez_compressed(folder / "snapshots" / f"{step}.npz", **snapshot(generator))


def snapshot(generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Return the arrays of a snapshot: 15 bins, a margin histogram of 60."""
    one = {"edges": np.linspace(0, 1, 16), "counts": generator.integers(1, 999, 15)}
    one |= {"accuracy": generator.random(15), "confidence": generator.random(15)}
    one |= {"interval": generator.random((15, 2)), "margin_edges": np.linspace(-20, 20, 61)}
    one |= {"margin_counts": generator.integers(0, 99, 60)}
    return {f"{split}_{key}": value for split in ("train", "val") for key, value in one.items()}


def measure(name: str, runs: int, rows: int) -> None:
    """Write runs, render their report, print seconds and megabytes."""
    folder = Path(tempfile.mkdtemp())
    try:
        for seed in range(runs):
            write_run(folder / f"r{seed}", rows, seed)

        read = sum(file.stat().st_size for file in folder.glob("*/metrics.jsonl"))
        start, cpu = time.perf_counter(), time.process_time()
        html = report(folder)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    finally:
        shutil.rmtree(folder)

    print(
        f"| {name} | {read / 1e6:,.0f} | {cpu:.1f} | {seconds:.1f} ",
        f"| {len(html.encode()) / 1e6:.1f} |",
        flush=True,
    )


if __name__ == "__main__":
    share = 0.02 if "--quick" in sys.argv else 1
    print(f"{os.cpu_count()} cores; rows as `toosure train` writes them, 40 snapshots per run\n")
    print("| | read, MB | CPU seconds | seconds | page, MB |\n|---|---|---|---|---|")
    measure("100 runs of 5,000 rows", 100, int(5000 * share))
    measure("1 run of 200,000 rows", 1, int(200_000 * share))
