"""Runs that are quick to make: numbers with known answers, no training."""

import numpy as np

from toosure.runs import RunWriter

HOSTILE = "<script>alert(1)</script>"


def row(step, ece=0.1, gap=0.1, accuracy=0.8, sharpness=2.0, splits=("train", "val")):
    """One measurement, every quantity of the pages told."""
    found = {"step": step, "lr": 0.1, "seconds": 1 + step / 10, "seconds_measuring": 0.01}
    for split in splits:
        values = {"loss": 2 / (1 + step), "accuracy": accuracy, "confidence": accuracy + gap}
        values |= {"ece": ece, "smece": ece / 2, "nll": 0.5, "gn_sharpness": sharpness}
        values |= {"margin_q01": -1.0 - step / 100}
        found |= {f"{split}/{key}": value for key, value in values.items()}
    return found


def snapshot(seed=0, n=400, splits=("train", "val"), gap=0.1):
    """The bins and histograms of samples drawn by a seed: hits at confidence - gap."""
    generator = np.random.default_rng(seed)
    confidence = generator.uniform(0.3, 1, n)
    correct = generator.random(n) < confidence - gap
    edges = np.linspace(0, 1, 16)
    place = np.clip(np.ceil(confidence * 15).astype(int) - 1, 0, 14)
    counts = np.bincount(place, minlength=15)
    with np.errstate(invalid="ignore"):
        accuracy = np.bincount(place, correct, 15) / counts
        mean = np.bincount(place, confidence, 15) / counts
    low, high = np.clip(accuracy - 0.1, 0, 1), np.clip(accuracy + 0.1, 0, 1)
    margin_counts, margin_edges = np.histogram(generator.normal(seed, 3, n), 60)
    one = {"edges": edges, "counts": counts, "accuracy": accuracy, "confidence": mean}
    one |= {"interval": np.stack([low, high], 1)}
    one |= {"margin_edges": margin_edges, "margin_counts": margin_counts}
    return {f"{split}_{key}": value for split in splits for key, value in one.items()}


def make_run(path, config=None, steps=range(0, 100, 10), status="complete", **numbers):
    """Write a run folder; a number may be a function of the step."""
    with RunWriter(path, config) as writer:
        writer.write_environment({"device": "cpu", "versions": {"python": "3.11", "torch": "2.9"}})
        for place, step in enumerate(steps):
            told = {k: v(step) if callable(v) else v for k, v in numbers.items()}
            writer.append(row(step, **told))
            if place % 3 == 0:
                writer.write_snapshot(step, snapshot(place))
        writer.set_status(status, max(steps, default=0))
    return path
