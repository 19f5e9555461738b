"""Write the predictions at the end of a run: logits of the held-out splits, a temperature."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from toosure.data import Dataset
from toosure.data.dataset import Split
from toosure.data.seeds import RunStream, derive_seed
from toosure.ensembles import log_mean_probability
from toosure.optim import BSAM
from toosure.posthoc.temperature_effect import temperature_scaling
from toosure.runs import RunWriter
from toosure.watch.split import logits_of


def held_out_splits(data: Dataset, shifted: bool = True) -> dict[str, Split]:
    """Return validation, test and, if there is one, shifted test data; none that is empty."""
    splits = {"val": data.val, "test": data.test}
    if shifted:
        splits["shift"] = data.shifted()
    return {name: split for name, split in splits.items() if split is not None and len(split)}


def held_out_logits(predictor: nn.Module, data: Dataset, shifted: bool = True) -> dict[str, Any]:
    """Return logits and labels of the held-out splits."""
    arrays: dict[str, Any] = {}
    for name, split in held_out_splits(data, shifted).items():
        arrays[f"{name}_logits"] = logits_of(predictor, split.x).cpu().numpy()
        arrays[f"{name}_labels"] = split.y.cpu().numpy()
    return arrays


def mean_predictions(
    predictor: nn.Module, data: Dataset, states: Iterable[object]
) -> dict[str, Any]:
    """Return the log of the mean probability over states of a network, for the held-out splits.

    Each step of the iterable `states` loads another set of weights. For a single state the logits
    are returned.
    """
    splits = held_out_splits(data)
    logits: dict[str, list[Tensor]] = {name: [] for name in splits}
    for _ in states:
        for name, split in splits.items():
            logits[name].append(logits_of(predictor, split.x).cpu())

    arrays: dict[str, Any] = {}
    for name, split in splits.items():
        together = logits[name]
        alone = len(together) == 1
        mixed = together[0] if alone else log_mean_probability(torch.stack(together))
        arrays[f"{name}_logits"] = mixed.numpy()
        arrays[f"{name}_labels"] = split.y.cpu().numpy()
    return arrays


def write_posterior(
    writer: RunWriter, predictor: nn.Module, optimizer: object, data: Dataset, seed: int
) -> None:
    """Write the mean prediction of samples of BSAM's weights.

    BatchNorm keeps the statistics from training. Nothing is written if the optimizer is not BSAM,
    or was not asked for samples.
    """
    if not isinstance(optimizer, BSAM) or not optimizer.samples:
        return
    arrays = mean_predictions(predictor, data, sampled_weights(optimizer, seed))
    if arrays:
        writer.write_arrays("predictions_bsam.npz", arrays)


def sampled_weights(optimizer: BSAM, seed: int) -> Iterator[int]:
    """Load one sample of the weights after another; restore their mean at the end."""
    generator = torch.Generator().manual_seed(derive_seed(seed, RunStream.WEIGHT_SAMPLES, 0))
    for number in range(optimizer.samples):
        with optimizer.sampled(generator):
            yield number


def write_predictions(writer: RunWriter, predictor: nn.Module, data: Dataset) -> None:
    """Write the final logits, for `toosure evaluate --split val`, and the temperature's effect."""
    arrays = held_out_logits(predictor, data)
    if arrays:
        writer.write_arrays("predictions.npz", arrays)
    if {"val_logits", "test_logits"} <= arrays.keys():
        write_temperature(writer, arrays)


def write_temperature(writer: RunWriter, arrays: Mapping[str, np.ndarray]) -> None:
    """Write the effect on test data of a temperature fitted on validation data, for the report.

    One validation row is too few, and nothing is written.
    """
    if len(arrays["val_labels"]) < 2:
        return
    val, test = (
        (torch.from_numpy(arrays[f"{name}_logits"]), torch.from_numpy(arrays[f"{name}_labels"]))
        for name in ("val", "test")
    )
    writer.write_json("temperature.json", temperature_scaling(val, test))
