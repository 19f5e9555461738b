"""Write run folders without training, to look at pages of many: plausible curves and predictions.

python benchmarks/synthetic_runs.py FOLDER --settings 40 --seeds 5 --rows 60
"""

import argparse
import json
from itertools import product
from pathlib import Path

import numpy as np

from toosure.watch.snapshot import snapshot_of

OPTIMIZERS = ("sgd", "adamw", "sam", "csam", "muon")
RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
LOSSES = ("ce", "focal:gamma=1", "focal:gamma=3", "smoothing:eps=0.1")
BATCHES = (64, 128)
EXAMPLES = 400
CLASSES = 5


def settings() -> list[dict[str, object]]:
    """Return two hundred configs, in an order that mixes them."""
    found = [
        {"data": "digits", "model": "mlp", "optimizer": f"{name}:lr={rate}", "loss": loss}
        | {"batch": batch, "steps": 1000, "every": 10, "measure": ["gn_sharpness"]}
        for name, rate, loss, batch in product(OPTIMIZERS, RATES, LOSSES, BATCHES)
    ]
    order = np.random.default_rng(0).permutation(len(found))
    return [found[i] for i in order]


def write_run(folder: Path, config: dict[str, object], rows: int, status: str) -> None:
    """Write one run whose quality depends on its config, and its noise on its seed."""
    generator = np.random.default_rng(abs(hash(json.dumps(config, sort_keys=True))) % 2**32)
    setting = {key: value for key, value in config.items() if key != "seed"}
    skill_generator = np.random.default_rng(len(json.dumps(setting)) * 7919 % 2**16)
    skill = skill_generator.uniform(1.0, 2.2) + generator.normal(0, 0.05)
    heat = skill_generator.uniform(0.7, 2.5)

    shared = np.random.default_rng(1)  # the same examples for all
    labels = shared.integers(0, CLASSES, EXAMPLES)
    evidence = shared.normal(0, 1, (EXAMPLES, CLASSES))
    evidence += 0.3 * generator.normal(0, 1, (EXAMPLES, CLASSES))
    evidence[np.arange(EXAMPLES), labels] += skill

    (folder / "snapshots").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    environment = {"device": "cpu", "command": f"toosure train --optimizer {config['optimizer']}"}
    (folder / "environment.json").write_text(json.dumps(environment))
    (folder / "status.json").write_text(json.dumps({"status": status, "step": 1000}))

    lines = []
    for place, step in enumerate(np.linspace(0, 1000, rows).astype(int).tolist()):
        grown = 1 - np.exp(-step / 150)
        logits = evidence * (0.05 + grown * skill * heat)
        row = {"step": step, "lr": 0.1, "seconds": 0.02 * step, "seconds_measuring": 0.01}
        row |= scores("val", logits, labels, generator) | scores(
            "train", 1.3 * logits, labels, generator
        )
        lines.append(json.dumps(row) + "\n")
        if place in (rows // 3, rows - 1):
            arrays = snapshot_of(logits, labels)
            named = {
                f"{split}_{key}": value
                for split in ("train", "val")
                for key, value in arrays.items()
            }
            np.savez_compressed(folder / "snapshots" / f"{step}.npz", **named)
    (folder / "metrics.jsonl").write_text("".join(lines))

    half = EXAMPLES // 2
    parts = {"val": slice(0, half), "test": slice(half, None)}
    arrays = {f"{name}_logits": logits[part].astype("f4") for name, part in parts.items()}
    arrays |= {f"{name}_labels": labels[part] for name, part in parts.items()}
    np.savez(folder / "predictions.npz", **arrays)


def scores(
    split: str, logits: np.ndarray, labels: np.ndarray, generator: np.random.Generator
) -> dict[str, float]:
    """Return the numbers of a row."""
    shifted = logits - logits.max(1, keepdims=True)
    probabilities = np.exp(shifted) / np.exp(shifted).sum(1, keepdims=True)
    confidence = probabilities.max(1)
    correct = probabilities.argmax(1) == labels
    gap = float(confidence.mean() - correct.mean())
    nll = float(-np.log(probabilities[np.arange(len(labels)), labels] + 1e-12).mean())
    noise = 1 + generator.normal(0, 0.05)
    found = {"loss": nll * noise, "nll": nll, "accuracy": float(correct.mean())}
    found |= {
        "confidence": float(confidence.mean()),
        "ece": abs(gap) + 0.01,
        "smece": abs(gap) + 0.005,
    }
    found |= {
        "gn_sharpness": float(5 * (1 - confidence.mean()) * noise),
        "margin_q01": float(np.quantile(confidence, 0.01) - 1),
    }
    return {f"{split}/{key}": value for key, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--settings", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rows", type=int, default=60)
    arguments = parser.parse_args()

    for number, config in enumerate(settings()[: arguments.settings]):
        for seed in range(arguments.seeds):
            status = "diverged" if number % 17 == 16 else "complete"
            folder = arguments.folder / f"run{number:03}-s{seed}"
            write_run(folder, config | {"seed": seed}, arguments.rows, status)


if __name__ == "__main__":
    main()
