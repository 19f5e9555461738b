"""`--measure best`: predictions at the least validation NLL, the same after a stop as without."""

import os
import signal

import numpy as np
import pytest
import torch
from torch import nn

from toosure import Watch
from toosure.config import RunConfig
from toosure.models import mlp
from toosure.train import ProgressListener, Runtime, train

CPU = Runtime("cpu")
CONFIG = RunConfig(
    data="digits:train=60,val=80,test=50",
    model="mlp:width=16",
    optimizer="sgd:lr=1",
    steps=60,
    batch=20,
    every=5,
    measure=("best",),
)


def best_of(run):
    with np.load(run.path / "best.npz") as arrays:
        return dict(arrays)


def test_best_is_where_the_validation_nll_is_least(tmp_path):
    run = train(CONFIG, tmp_path, CPU)
    best, nll = best_of(run), run.columns["val/nll"]
    least = int(np.argmin(nll))
    assert 0 < least < len(nll) - 1, "the run must over-fit for this test to say anything"
    assert best["step"] == run.rows[least]["step"]
    assert best["val_nll"] == pytest.approx(nll[least])
    assert best["val_logits"].shape == (80, 10) and best["test_logits"].shape == (50, 10)
    log_p = torch.tensor(best["val_logits"]).double().log_softmax(1).numpy()
    assert -log_p[np.arange(80), best["val_labels"]].mean() == pytest.approx(nll[least])


def test_the_test_logits_are_of_the_same_weights(tmp_path):
    """Trained only up to the best step, the final predictions are the best ones."""
    run = train(CONFIG, tmp_path, CPU)
    best = best_of(run)
    short = train(RunConfig.of({**CONFIG.non_defaults, "steps": int(best["step"])}), tmp_path, CPU)
    with np.load(short.path / "predictions.npz") as arrays:
        np.testing.assert_array_equal(arrays["test_logits"], best["test_logits"])
        np.testing.assert_array_equal(arrays["val_logits"], best["val_logits"])


def test_best_survives_a_stop_after_it(tmp_path):
    whole = best_of(train(CONFIG, tmp_path / "a", CPU))

    class Press(ProgressListener):
        def row(self, row):
            if row["step"] == whole["step"] + 10:
                os.kill(os.getpid(), signal.SIGINT)

    stopped = train(CONFIG, tmp_path / "b", CPU, Press())
    assert stopped.status == "stopped" and not (stopped.path / "best.npz").exists()
    again = best_of(train(CONFIG, tmp_path / "b", CPU))
    assert whole.keys() == again.keys()
    for name, value in whole.items():
        np.testing.assert_array_equal(value, again[name])


def test_best_needs_validation_data_and_is_no_curvature():
    model, x, y = mlp(inputs=4, classes=3, width=8), torch.randn(30, 4), torch.arange(30) % 3
    with pytest.raises(ValueError, match="give val"):
        Watch(model, nn.CrossEntropyLoss(), train=(x, y), measure=("best",))
    watch = Watch(model, nn.CrossEntropyLoss(), train=(x, y), val=(x, y), measure=("best",))
    assert watch.splits["val"].tracker is None and watch.measurer.best.step == 0
    assert "test_logits" not in watch.measurer.best.arrays
