"""Last-layer Laplace of a finished run: `toosure calibrate RUN --method laplace`."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from toosure.ensembles.laplace import LastLayerLaplace
from toosure.eval_mode import evaluating
from toosure.objectives.contract import HasPredict
from toosure.objectives.network import check_head, features_and_logits, head_of
from toosure.runs.files import write_arrays
from toosure.train.predictions import held_out_splits
from toosure.train.restore import restore_run
from toosure.train.runtime import Runtime

FILE = "predictions_laplace.npz"
CHUNK = 1024


def laplace_of_run(
    folder: str | Path, runtime: Runtime, precision: float | None = None
) -> LastLayerLaplace:
    """Fit Laplace to the head of a run's network, and write its predictions into the run folder.

    It uses the run's training examples, without crops and flips, and the network of its latest
    checkpoint. An ensemble has no single head, so it raises.
    """
    run = restore_run(folder, runtime)
    if isinstance(run.objective, HasPredict):
        raise ValueError(
            f"laplace needs the head of one network, but {run.config.objective} predicts in its "
            "own way: choose a run without it"
        )

    head = head_of(run.model)
    train = run.data.stream or run.data.train  # streamed images are read from disk, all of them
    check_head(run.model, run.data.train.x[:2], "")
    features, logits = all_features_and_logits(run.model, train.x)
    laplace = LastLayerLaplace(precision).fit(features, logits, train.y, head.weight, head.bias)

    arrays: dict[str, Any] = {"precision": np.array(laplace.precision)}
    for name, split in held_out_splits(run.data).items():
        predicted = laplace.predict(*all_features_and_logits(run.model, split.x))
        arrays[f"{name}_logits"] = predicted.cpu().numpy()
        arrays[f"{name}_labels"] = split.y.cpu().numpy()
    write_arrays(Path(folder) / FILE, arrays)
    return laplace


@torch.no_grad()
def all_features_and_logits(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return features (N, D) and logits (N, C) of all inputs in evaluation mode."""
    with evaluating(model):
        parts = [features_and_logits(model, part) for part in x.split(CHUNK)]
    features, logits = zip(*parts, strict=True)
    return torch.cat(features), torch.cat(logits)
