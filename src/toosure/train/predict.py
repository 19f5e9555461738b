"""What a finished run says of images it did not see: the test set under a corruption."""

from pathlib import Path

import torch
from torch import Tensor

from toosure.config import RunConfig
from toosure.data.corruptions import Shift
from toosure.objectives import as_objective
from toosure.train.checkpoint import load_checkpoint
from toosure.train.loading import in_float64, load_data
from toosure.train.means import Means
from toosure.watch.measurer import predictor_of
from toosure.watch.split import logits_of


def predict_shifted(run: str | Path, shift: Shift, means: Means) -> tuple[Tensor, Tensor]:
    """Return logits (N, C) and labels of a run's test set under a corruption, as ("fog", 3).

    The network and what else predicts come from the run's latest checkpoint, the data from what
    its config names. Draws of the corruption are those of `train --shift`.
    """
    config = RunConfig.read(run)
    state, _ = load_checkpoint(Path(run))
    if state is None:
        raise ValueError(f"{run} holds no checkpoint: repeat the command that trained it")
    data, device = load_data(config, means), means.torch_device
    wide = config.precision == "float64"
    data = in_float64(data) if wide else data
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(config.seed)
        model = config.word("model").build(inputs=data.inputs, classes=data.classes)
        model = (model.double() if wide else model).to(device)
        loss = config.word("loss").build().to(device)
        objective = as_objective(loss)
        if config.objective:
            word = config.word("objective")
            objective = word.build(loss=loss, seed=config.seed, training_steps=config.steps)
            if hasattr(objective, "to"):
                objective.to(device)
            if hasattr(objective, "setup"):
                objective.setup(model, data)
    model.load_state_dict(state["model"])
    if state["objective"]:
        objective.load_state_dict(state["objective"])
    split = data.shifted(shift)
    assert split is not None
    return logits_of(predictor_of(model, objective), split.x).cpu(), split.y.cpu()
