"""Keep the best weights of a run by validation data, and end the run early (`--best nll`)."""

import math
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from toosure.config import RunConfig
from toosure.data import Dataset
from toosure.processes import ALONE, Processes
from toosure.runs import RunWriter
from toosure.train.build import load_weights
from toosure.train.predictions import held_out_logits
from toosure.watch.measurer import predictor_of

KEYS = {"nll": "val/nll", "refinement": "val/refinement"}
WEIGHTS_FILE = "best.pt"


class BestWeights:
    """Keep the weights of the row with the lowest validation NLL, before or after a temperature.

    They are written to `best.pt`, and at the end their predictions to `best.npz`. The run ends
    after `patience` rows without one that is better by more than `min_delta`. Refinement, the NLL
    after temperature scaling, is the part of the NLL that no calibrator removes: choose by it, then
    calibrate.
    Reference: Berta et al. (2025), Rethinking early stopping: refine, then calibrate,
    arXiv 2501.19195.
    """

    def __init__(self, config: RunConfig, data: Dataset, processes: Processes = ALONE) -> None:
        assert config.best is not None
        if data.val is None or not len(data.val):
            raise ValueError("best needs validation data: name a val size in the data")
        if config.best == "refinement" and len(data.val) < 2:
            raise ValueError(
                "best=refinement fits a temperature on one half of the validation data and judges "
                "it on the other: name a val size of at least 2, or take best=nll"
            )
        self.criterion = config.best
        self.patience = math.inf if config.patience is None else config.patience
        self.min_delta = config.min_delta or 0.0
        self.processes = processes

        self.step = -1
        self.value = math.inf
        self.reference = math.inf  # a row must beat it by `min_delta` to reset patience
        self.rows_since = 0
        self.last_row = -1  # the step of the row that was compared last

    @property
    def exhausted(self) -> bool:
        """Whether the run ends, for lack of a better row."""
        return self.rows_since >= self.patience

    def compare(self, row: Mapping[str, Any]) -> bool:
        """Compare a row with the best so far, once, and return whether it is better."""
        if row["step"] == self.last_row:
            return False
        self.last_row = row["step"]

        value = self.processes.broadcast(row.get(KEYS[self.criterion], math.inf))
        self.rows_since += 1
        if value < self.reference - self.min_delta:
            self.reference = value
            self.rows_since = 0

        if not value < self.value:
            return False
        self.step = row["step"]
        self.value = value
        return True

    def write(self, writer: RunWriter, model: nn.Module, objective: dict[str, Any]) -> None:
        """Write the current weights, with the state that the objective predicts with."""
        state = {
            "step": self.step,
            "value": self.value,
            "model": model.state_dict(),
            "objective": objective,
        }
        writer.write_file(WEIGHTS_FILE, lambda file: torch.save(state, file))

    def write_predictions(
        self, writer: RunWriter, model: nn.Module, objective: Any, data: Dataset
    ) -> None:
        """Write `best.npz`: what the kept weights predict, their step and validation value.

        Step and value are read from the file. A run that was killed after a better row and resumed
        from an earlier checkpoint may not have measured that row again, but still has its weights.
        """
        file = Path(writer.path) / WEIGHTS_FILE
        if not file.is_file():
            return
        kept = torch.load(file, map_location="cpu", weights_only=True)

        # Load into copies, so that the run's network stays as it is.
        model, objective = deepcopy(model), deepcopy(objective)
        load_weights(model, objective, kept)
        arrays = held_out_logits(predictor_of(model, objective), data, shifted=False)
        arrays |= {"step": np.array(kept["step"]), f"val_{self.criterion}": np.array(kept["value"])}
        writer.write_arrays("best.npz", arrays)

    def state_dict(self) -> dict[str, float]:
        names = ("step", "value", "reference", "rows_since", "last_row")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)


def build_best(config: RunConfig, data: Dataset, processes: Processes) -> BestWeights | None:
    """Return the keeper of the best weights; None without `--best`."""
    return BestWeights(config, data, processes) if config.best else None
