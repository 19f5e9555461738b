"""What a run predicts at its end, in files: the logits of the held-out splits, a temperature."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from toosure.data import Dataset
from toosure.posthoc.temperature_effect import temperature_scaling
from toosure.runs import RunWriter
from toosure.watch.split import logits_of


def held_out_logits(predictor: nn.Module, data: Dataset, shifted: bool = True) -> dict[str, Any]:
    """Return logits and labels of validation, test and, where there is one, shifted test data."""
    splits = {"val": data.val, "test": data.test}
    if shifted:
        splits["shift"] = data.shifted()

    arrays: dict[str, Any] = {}
    for name, split in splits.items():
        if split is not None and len(split):
            arrays[f"{name}_logits"] = logits_of(predictor, split.x).cpu().numpy()
            arrays[f"{name}_labels"] = split.y.cpu().numpy()
    return arrays


def write_predictions(writer: RunWriter, predictor: nn.Module, data: Dataset) -> None:
    """Write the final logits, for `toosure evaluate --split val`, and what a temperature does."""
    arrays = held_out_logits(predictor, data)
    if arrays:
        writer.write_file("predictions.npz", lambda file: np.savez(file, **arrays))
    if {"val_logits", "test_logits"} <= arrays.keys():
        write_temperature(writer, arrays)


def write_temperature(writer: RunWriter, arrays: Mapping[str, np.ndarray]) -> None:
    """Write what a temperature fitted on validation data does to test data, for the report."""
    val, test = (
        (torch.from_numpy(arrays[f"{name}_logits"]), torch.from_numpy(arrays[f"{name}_labels"]))
        for name in ("val", "test")
    )
    text = json.dumps(temperature_scaling(val, test), indent=2)
    writer.write_file("temperature.json", lambda file: file.write(text.encode()))
