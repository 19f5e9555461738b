"""Turn finished runs into `scores.jsonl` and `examples_*.npz`, which `table.py` reads.

    python recipes/benchmark/collect.py RUNS OUT

Runs of several days or machines are gathered by appending to the files of OUT.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from toosure import metrics
from toosure.posthoc import Temperature
from toosure.runs import Run, find_runs

SCORES = (
    *("accuracy", "nll", "brier", "ece", "debiased_ece", "smece", "adaptive_ece", "classwise_ece"),
    *("mce", "aurc", "auroc_misclass", "auroc_ovr", "auroc_ovr_binned"),
)


def scores_of(logits: Tensor, labels: Tensor) -> dict[str, float]:
    confidence, _ = metrics.top_label(logits, labels)
    scores = {name: float(getattr(metrics, name)(logits, labels)) for name in SCORES}
    return scores | {"confidence": float(confidence.mean())}


def predictions_of(run: Run, split: str) -> tuple[Tensor, Tensor]:
    with np.load(run.path / "predictions.npz") as arrays:
        logits = torch.from_numpy(arrays[f"{split}_logits"]).double()
        return logits, torch.from_numpy(arrays[f"{split}_labels"])


def record_of(run: Run) -> dict[str, object]:
    """Return a run as one line of `scores.jsonl`."""
    val = predictions_of(run, "val")
    logits, labels = predictions_of(run, "test")
    temperature = Temperature().fit_quietly(*val)
    return {
        "name": run.name,
        "config": run.config,
        "status": run.status,
        "seconds": run.last["seconds"],
        "seconds_measuring": float(np.nansum(run.columns["seconds_measuring"])),
        "device": run.environment.get("device"),
        "torch": run.environment.get("versions", {}).get("torch"),
        "commit": run.environment.get("commit"),
        "temperature": float(temperature.temperature),
        "test": scores_of(logits, labels),
        "val": scores_of(*val),
        "test_after_temperature": scores_of(temperature(logits), labels),
    }


def examples_of(run: Run) -> dict[str, np.ndarray]:
    """Return what paired comparisons need of each test image."""
    logits, labels = predictions_of(run, "test")
    confidence, correct = metrics.top_label(logits, labels)
    log_probability = logits.log_softmax(1).gather(1, labels[:, None]).squeeze(1)
    return {
        f"{run.name}/confidence": confidence.float().numpy(),
        f"{run.name}/correct": correct.bool().numpy(),
        f"{run.name}/log_probability": log_probability.float().numpy(),
    }


def main(folder: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    lines = out / "scores.jsonl"
    known = {json.loads(line)["name"] for line in lines.open()} if lines.exists() else set()
    examples: dict[str, dict[str, np.ndarray]] = {}
    for run in find_runs(folder):
        if run.name in known or not (run.path / "predictions.npz").is_file():
            continue
        with lines.open("a") as file:
            file.write(json.dumps(record_of(run)) + "\n")
        data = run.config["data"].split(":")[0]
        examples.setdefault(data, {}).update(examples_of(run))
        print(run.name)

    for data, arrays in examples.items():
        file = out / f"examples_{data}.npz"
        if file.exists():
            with np.load(file) as old:
                arrays = {name: old[name] for name in old.files} | arrays
        np.savez_compressed(file, **arrays)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
