"""bSAM's samples in a run: their predictions in a file of their own, counted by the benchmark."""

import numpy as np
import pytest
import torch

from toosure.config import RunConfig
from toosure.recipes.benchmark.record import predictions_file
from toosure.train import train
from toosure.train.predictions import mean_predictions
from toosure.words import parse

SMALL = {"data": "digits:train=64,val=20,test=30", "model": "mlp:width=4", "batch": 16}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    config = RunConfig(
        **SMALL, optimizer="bsam:samples=4,data_factor=0.05", steps=3, at=(3,), measure=()
    )
    return train(config, tmp_path_factory.mktemp("runs"))


def test_a_run_writes_what_its_samples_predict(run):
    with (
        np.load(run.path / "predictions_bsam.npz") as mixed,
        np.load(run.path / "predictions.npz") as mean,
    ):
        assert set(mixed) == set(mean)
        assert np.array_equal(mixed["test_labels"], mean["test_labels"])
        total = np.exp(mixed["test_logits"].astype(float)).sum(1)
        assert np.abs(total - 1).max() < 1e-5  # logs of probabilities
        softmax = torch.from_numpy(mean["test_logits"]).softmax(1).numpy()
        assert np.abs(np.exp(mixed["test_logits"]) - softmax).max() > 1e-3
    assert predictions_file(run).name == "predictions_bsam.npz"


def test_without_samples_the_mean_predicts(tmp_path):
    plain = train(RunConfig(**SMALL, optimizer="bsam", steps=1, at=(1,), measure=()), tmp_path)
    assert not (plain.path / "predictions_bsam.npz").exists()
    assert predictions_file(plain).name == "predictions.npz"


def test_the_words_of_bsam():
    word = parse("optimizer", "bsam:samples=32,data_factor=4")
    optimizer = word.build([torch.nn.Parameter(torch.ones(2))], data_size=45_000)
    assert optimizer.samples == 32
    assert optimizer.param_groups[0]["data_size"] == 180_000


def test_mean_predictions_average_probabilities_of_each_state():
    from toosure.data import digits

    data = digits(train=20, val=10, test=10)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))

    def states():
        for scale in (0.0, 1.0):
            with torch.no_grad():
                model[1].weight.fill_(scale).mul_(torch.linspace(-1, 1, 640).view(10, 64))
            yield

    arrays = mean_predictions(model, data, states())
    second = model(data.test.x.float()).detach().softmax(1)
    bias = model[1].bias.detach().softmax(0)
    assert np.allclose(np.exp(arrays["test_logits"]), ((second + bias) / 2).numpy(), atol=1e-6)
