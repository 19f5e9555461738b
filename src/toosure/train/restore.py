"""Restore a finished run from its folder: its network with the weights of its checkpoint."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from toosure.config import RunConfig
from toosure.data import Dataset
from toosure.data.corruptions import Shift
from toosure.objectives import Objective
from toosure.runs import Run
from toosure.train.build import (
    build_criterion,
    build_model,
    build_objective,
    load_weights,
    set_up_objective,
)
from toosure.train.checkpoint import load_checkpoint
from toosure.train.control import cut_control_split
from toosure.train.loading import in_float64, load_data
from toosure.train.runtime import Runtime
from toosure.watch.measurer import predictor_of
from toosure.watch.split import logits_of


@dataclass(frozen=True)
class RestoredRun:
    """The parts of a run, built from its config, with the weights of its latest checkpoint."""

    config: RunConfig
    data: Dataset
    model: nn.Module
    objective: Objective[Any]
    state: dict[str, Any]  # the whole checkpoint

    @property
    def predictor(self) -> nn.Module:
        """The module that predicts: the network, or the objective's prediction with it."""
        return predictor_of(self.model, self.objective)


def restore_run(folder: str | Path, runtime: Runtime) -> RestoredRun:
    """Build the parts of a run, and load its latest checkpoint; raise where it has none."""
    check_trained_here(folder)
    config = RunConfig.read(folder)
    state, note = load_checkpoint(Path(folder))
    if state is None:
        raise ValueError(f"{folder} holds no checkpoint: repeat the command that trained it")
    if note:
        warnings.warn(
            f"{folder}: {note}the weights are of step {state['step']}, not of the end",
            stacklevel=3,
        )

    data = load_data(config, runtime)
    if config.precision == "float64":
        data = in_float64(data)

    # Initial weights are drawn here; the caller's generators must not change.
    device = runtime.torch_device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        model = build_model(config, data, device)
        data, _ = cut_control_split(config, data)
        objective = build_objective(config, build_criterion(config, device), device)
        data = set_up_objective(objective, config, model, data)
    load_weights(model, objective, state)
    return RestoredRun(config, data, model, objective, state)


def check_trained_here(folder: str | Path) -> None:
    """Raise if a run is of a loop of one's own, which keeps no word of its network and data."""
    if Run(folder).examples:
        raise ValueError(
            f"{folder} is the run of a loop of your own: its network and data are not known here, "
            "so it cannot predict again. examples/shifts.py judges such a network on shifts"
        )


def predict_shifted(folder: str | Path, shift: Shift, runtime: Runtime) -> tuple[Tensor, Tensor]:
    """Return logits (N, C) and labels of a run's test set under a corruption, as ("fog", 3).

    The weights come from the run's latest checkpoint, the data from its config. The corruption is
    drawn as by `train --shift`.
    """
    run = restore_run(folder, runtime)
    split = run.data.shifted(shift)
    assert split is not None
    return logits_of(run.predictor, split.x).cpu(), split.y.cpu()
