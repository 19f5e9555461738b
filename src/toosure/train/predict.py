"""Predictions of a finished run on images it did not see: the test set under a corruption."""

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from toosure.config import RunConfig
from toosure.data import Dataset
from toosure.data.corruptions import Shift
from toosure.objectives import Objective
from toosure.train.build import (
    build_criterion,
    build_model,
    build_objective,
    lay_channels_last,
    load_weights,
    set_up_objective,
)
from toosure.train.checkpoint import load_checkpoint
from toosure.train.control import cut_control_split
from toosure.train.loading import in_float64, load_data
from toosure.train.runtime import Runtime
from toosure.watch.measurer import predictor_of
from toosure.watch.split import logits_of


def restored(
    run: str | Path, runtime: Runtime
) -> tuple[RunConfig, Dataset, nn.Module, Objective[Any]]:
    """Return a run's config, data, network and objective, with the weights of its checkpoint."""
    config = RunConfig.read(run)
    state, note = load_checkpoint(Path(run))
    if state is None:
        raise ValueError(f"{run} holds no checkpoint: repeat the command that trained it")
    if note:
        warnings.warn(
            f"{run}: {note}the weights are those of step {state['step']}, not of the end",
            stacklevel=3,
        )

    data = load_data(config, runtime)
    if config.precision == "float64":
        data = in_float64(data)

    # Building draws initial weights: the caller's generators must not notice.
    device = runtime.torch_device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        model = build_model(config, data, device)
        if device.type == "cuda":
            lay_channels_last(model)  # as in training: faster, and the same kernels
        data, _ = cut_control_split(config, data)
        objective = build_objective(config, build_criterion(config, device), device)
        data = set_up_objective(objective, config, model, data)
    load_weights(model, objective, state)
    return config, data, model, objective


def predict_shifted(run: str | Path, shift: Shift, runtime: Runtime) -> tuple[Tensor, Tensor]:
    """Return logits (N, C) and labels of a run's test set under a corruption, as ("fog", 3).

    The weights come from the run's latest checkpoint, the data from what its config names. The
    random draws of the corruption are those of `train --shift`.
    """
    _, data, model, objective = restored(run, runtime)
    split = data.shifted(shift)
    assert split is not None
    return logits_of(predictor_of(model, objective), split.x).cpu(), split.y.cpu()
