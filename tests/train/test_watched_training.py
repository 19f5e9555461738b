"""What our loop tells its watch, and how a run ends by what the watch finds."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from toosure import Watch
from toosure.config import RunConfig
from toosure.curvature import batch_sharpness
from toosure.curvature.tracker import SAMPLED
from toosure.data import digits
from toosure.train import Runtime, train

SMALL = {"data": "digits:train=100,val=60", "model": "mlp:width=16"}
CPU = Runtime("cpu")


def start_of(config):
    data = digits(train=100, val=60)
    torch.manual_seed(config.seed)
    return config.word("model").build(inputs=data.inputs, classes=data.classes), data.train


@pytest.mark.parametrize("batch", [8, 50, None])
def test_batch_sharpness_is_that_of_the_runs_batch(batch, tmp_path, monkeypatch):
    few = partial(batch_sharpness, max_batches=10)  # it need not converge here
    monkeypatch.setitem(SAMPLED, "batch_sharpness", few)
    config = RunConfig(**SMALL, batch=batch, steps=1, measure=("batch_sharpness",))
    net, split = start_of(config)
    expected = few(net, (split.x, split.y), batch=batch or 100, seed=1).value
    found = train(config, tmp_path, CPU).rows[0]["train/batch_sharpness"]
    assert found == pytest.approx(expected, rel=1e-6)
    own = Watch(net, nn.CrossEntropyLoss(), split, measure=config.measure, batch=batch or 100)
    assert own.last["train/batch_sharpness"] == found


@pytest.mark.parametrize("loss", ["ce", "mse:scale=sum"])
def test_a_last_step_that_destroys_the_network_is_a_divergence(loss, tmp_path):
    """The loss before that step was fine; only a look after it can tell."""
    config = RunConfig(
        data="digits:train=100,val=60", model="mlp:activation=relu,width=16", loss=loss, steps=1,
        optimizer="sgd:lr=1e38" if loss == "ce" else "sgd:lr=1e10", measure=("best",),
    )  # fmt: skip
    run = train(config, tmp_path, CPU)
    assert (run.status, run.outcome["step"]) == ("diverged", 1)
    assert run.last["diverged"] and [row["step"] for row in run.rows] == [0, 1]
    assert not (run.path / "predictions.npz").exists() and not list(run.path.rglob("*.pt"))
    with np.load(run.path / "best.npz") as best:  # what was good before it is kept
        assert best["step"] == 0
