"""Records and examples with chosen accuracy and calibration error, for claims to read."""

from dataclasses import replace

import numpy as np

from toosure.recipes import Setting
from toosure.recipes.benchmark.record import Record
from toosure.recipes.benchmark.scored_rows import Row, ScoredRow
from toosure.recipes.gamma_net import sweeps

IMAGES = 2000


def examples_with(accuracy, gap, images=IMAGES):
    """Return examples whose ECE is `gap`: one confidence, above the accuracy by the gap."""
    correct = np.arange(images) < round(accuracy * images)
    confidence = np.full(images, accuracy + gap, dtype=np.float32)
    return {
        "confidence": confidence,
        "correct": correct,
        "log_probability": np.full(images, -0.5, dtype=np.float32),
    }


def record_with(config, accuracy=0.9, ece=0.02, tce=0.01, sharpness=None):
    """Return the record of a run."""
    errors = ("ece", "debiased_ece", "smece", "adaptive_ece", "classwise_ece")
    others = {"accuracy": accuracy, "nll": 0.5, "aurc": 0.01, "auroc_ovr_binned": 0.99}
    test = dict.fromkeys(errors, ece) | others
    return Record(
        name=config.name,
        config=config,
        seconds=3.0,
        seconds_measuring=1.0,
        temperature=1.2,
        test=test,
        val=test,
        test_after_temperature={**test, "ece": tce},
        commit="c0ffee",
        sharpness=sharpness,
    )


def scored(row, **numbers):
    """Return a row whose runs, or mixtures of runs, all have the same numbers."""
    records = [record_with(config, **numbers) for config in row.configs]
    records += [mixture_with(mixture, **numbers) for mixture in row.mixtures]
    return ScoredRow(row, records)


def mixture_with(mixture, **numbers):
    """Return the record of a mixture whose members were validated on different images."""
    return replace(
        record_with(mixture.config, **numbers),
        name=mixture.name,
        members=[member.name for member in mixture.members],
        temperature=None,
        val={},
        test_after_temperature={},
    )


def residual_row(name, *errors, accuracy=0.9, expected=None, rows=None, **others):
    """Return a row of ResNet-20 in gamma-net's tables: runs with these ECEs, in points.

    The other errors are the same, but for `others`; `rows` are those along training.
    """
    records = []
    for seed, error in enumerate(errors):
        record = record_with(sweeps.config(Setting(), seed), accuracy=accuracy, ece=error / 100)
        test = {**record.test, "mce": error / 100}
        test |= {key: value / 100 for key, value in others.items()}
        records.append(replace(record, test=test, rows=rows))
    row = Row(name, (), len(errors) if expected is None else expected)
    return ScoredRow(row, records)
