"""The predictions at the step with the lowest validation NLL (`--measure best`)."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from toosure.metrics import nll
from toosure.metrics.inputs import known_outputs
from toosure.watch.logits_model import Rows
from toosure.watch.split import Observation, logits_of


class BestPredictions:
    """Keep the logits of the held-out splits from the row with the lowest validation NLL.

    Of equal rows the first is kept. `test` runs only when a step is the best so far. NLL
    decides, not the criterion, so that runs with different losses compare. `train/best.py` keeps
    weights instead of logits, and can end a run early.
    """

    def __init__(
        self,
        test: Rows | None = None,
        group_arrays: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self.test = test
        self.group_arrays = dict(group_arrays or {})
        self.step = -1
        self.nll = math.inf
        self.arrays: dict[str, Tensor] = {}

    def compare(self, step: int, val: Observation) -> None:
        """Compare a step with the best so far, and keep its logits if it is better."""
        with known_outputs():
            now = float(nll(val.logits, val.labels))
        if not now < self.nll:
            return

        self.step = step
        self.nll = now
        self.arrays = {"val_logits": val.logits.cpu(), "val_labels": val.labels.cpu()}
        if self.test is not None:
            self.arrays["test_logits"] = logits_of(self.test.model, self.test.x).cpu()
            self.arrays["test_labels"] = self.test.y.cpu()

    def named_arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of `best.npz`: logits and labels by split, the step and its NLL."""
        arrays = {name: value.numpy() for name, value in self.arrays.items()}
        best = {"step": np.array(self.step), "val_nll": np.array(self.nll)}
        return arrays | self.group_arrays | best

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step, "nll": self.nll, "kept": dict(self.arrays)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.step = state["step"]
        self.nll = state["nll"]
        self.arrays = dict(state["kept"])
