"""Last-layer Laplace of a finished run: `toosure calibrate RUN --method laplace`."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from toosure.ensembles.laplace import LastLayerLaplace
from toosure.eval_mode import evaluating
from toosure.objectives.contract import HasPredict
from toosure.objectives.network import features_and_logits, head_of
from toosure.runs.files import write_atomically
from toosure.train.predict import restored
from toosure.train.runtime import Runtime

FILE = "predictions_laplace.npz"
CHUNK = 1024


def laplace_of_run(
    run: str | Path, runtime: Runtime, precision: float | None = None
) -> LastLayerLaplace:
    """Fit Laplace to the head of a run's network, and write its predictions into the run folder.

    The training examples are those of the run, without crops and flips; the network is that of its
    latest checkpoint. An ensemble has no single head, and raises.
    """
    config, data, model, objective = restored(run, runtime)
    if isinstance(objective, HasPredict):
        raise ValueError(
            f"laplace is about the head of one network, and {config.objective} predicts in its own "
            "way: choose a run without it"
        )

    head = head_of(model)
    features, logits = passed(model, data.train.x)
    laplace = LastLayerLaplace(precision).fit(
        features, logits, data.train.y, head.weight, head.bias
    )

    arrays: dict[str, Any] = {"precision": np.array(laplace.precision)}
    for name, split in (("val", data.val), ("test", data.test), ("shift", data.shifted())):
        if split is not None and len(split):
            predicted = laplace.predict(*passed(model, split.x))
            arrays[f"{name}_logits"] = predicted.cpu().numpy()
            arrays[f"{name}_labels"] = split.y.cpu().numpy()
    write_atomically(Path(run) / FILE, lambda file: np.savez(file, **arrays))
    return laplace


@torch.no_grad()
def passed(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return features (N, D) and logits (N, C) of all inputs in evaluation mode."""
    with evaluating(model):
        parts = [features_and_logits(model, part) for part in x.split(CHUNK)]
    features, logits = zip(*parts, strict=True)
    return torch.cat(features), torch.cat(logits)
