"""Last-layer Laplace against a dense Hessian of autograd, and on a run."""

import json
import math

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from toosure.cli import app
from toosure.config import RunConfig
from toosure.data import digits
from toosure.ensembles.laplace import LastLayerLaplace
from toosure.train import Runtime, train
from toosure.train.laplace import laplace_of_run

torch.manual_seed(0)
FEATURES = torch.randn(40, 3, dtype=torch.float64)
HEAD = nn.Linear(3, 4).double()
LOGITS = HEAD(FEATURES).detach()
LABELS = torch.randint(4, (40,))


def logits_of(bias):
    return LOGITS if bias else FEATURES @ HEAD.weight.detach().T


def fitted(bias=True, **settings):
    laplace = LastLayerLaplace(**settings)
    return laplace.fit(FEATURES, logits_of(bias), LABELS, HEAD.weight, HEAD.bias if bias else None)


def dense(precision, bias=True):
    """The Hessian of the summed cross-entropy in (C, D + 1) weights, by autograd, and the prior.

    Without bias in (C, D) weights.
    """
    phi, weights = FEATURES, HEAD.weight.detach()
    if bias:
        phi = torch.cat([FEATURES, torch.ones(40, 1, dtype=torch.float64)], 1)
        weights = torch.cat([HEAD.weight, HEAD.bias[:, None]], 1).detach()

    def loss(flat):
        return nn.functional.cross_entropy(phi @ flat.view(4, -1).T, LABELS, reduction="sum")

    flat = weights.flatten()
    hessian = torch.func.hessian(loss)(flat)
    return hessian + precision * torch.eye(len(flat), dtype=torch.float64), phi, flat, loss(flat)


@pytest.mark.parametrize("bias", [True, False])
def test_variances_are_those_of_the_dense_hessian(bias):
    laplace, logits = fitted(bias, precision=0.7), logits_of(bias)
    matrix, phi, _, _ = dense(0.7, bias)
    width = phi.shape[1]
    inverse = torch.linalg.inv(matrix).view(4, width, 4, width)
    wanted = torch.stack([(phi @ inverse[k, :, k] * phi).sum(1) for k in range(4)], 1)
    torch.testing.assert_close(laplace.variance(FEATURES), wanted)
    scaled = logits / (1 + math.pi / 8 * wanted).sqrt()
    torch.testing.assert_close(laplace.predict(FEATURES, logits), scaled.log_softmax(1))


@pytest.mark.parametrize("bias", [True, False])
def test_the_evidence_is_the_dense_one_and_the_precision_its_maximum(bias):
    laplace = fitted(bias)

    def evidence(precision):
        matrix, _, weights, loss = dense(precision, bias)
        size = len(weights)
        log_prior = size / 2 * math.log(precision) - precision * float(weights @ weights) / 2
        return float(-loss) + log_prior - float(torch.logdet(matrix)) / 2

    assert laplace.evidence == pytest.approx(evidence(laplace.precision))
    for factor in (0.9, 1.1):
        assert evidence(laplace.precision * factor) < laplace.evidence


def test_the_kronecker_form_is_exact_where_all_outputs_are_alike():
    flat = torch.zeros_like(LOGITS)
    arguments = (FEATURES, flat, LABELS, HEAD.weight, HEAD.bias)
    full = LastLayerLaplace(0.5, "full").fit(*arguments)
    kronecker = LastLayerLaplace(0.5, "kronecker").fit(*arguments)
    torch.testing.assert_close(kronecker.variance(FEATURES), full.variance(FEATURES))
    assert kronecker.evidence == pytest.approx(full.evidence)
    rough = fitted(precision=0.5, structure="kronecker").variance(FEATURES)
    assert torch.allclose(rough, fitted(precision=0.5).variance(FEATURES), rtol=1.0)


def test_a_large_precision_changes_nothing():
    predicted = fitted(precision=1e9).predict(FEATURES, LOGITS)
    torch.testing.assert_close(predicted, LOGITS.log_softmax(1), atol=1e-6, rtol=0)


def test_mistakes_are_found():
    with pytest.raises(ValueError, match="precision must be"):
        LastLayerLaplace(precision=0.0)
    with pytest.raises(ValueError, match="structure must be"):
        LastLayerLaplace(structure="diagonal")
    with pytest.raises(ValueError, match="call fit"):
        LastLayerLaplace().variance(FEATURES)
    with pytest.raises(ValueError, match="of the same examples"):
        LastLayerLaplace().fit(FEATURES, LOGITS[:3], LABELS, HEAD.weight)


# -- of a run -----------------------------------------------------------------------------------

CONFIG = {
    "data": "digits:train=200,val=100,test=300",
    "model": "mlp:width=16",
    "optimizer": "adamw:lr=0.01",
    "batch": 50,
    "steps": 60,
    "every": 60,
    "measure": (),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(RunConfig(**CONFIG), tmp_path_factory.mktemp("runs"), Runtime("cpu"))


def test_the_command_writes_predictions_and_judges_them(run):
    done = CliRunner().invoke(app, ["calibrate", str(run.path), "--method", "laplace", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["precision"] > 0
    with np.load(run.path / "predictions_laplace.npz") as arrays:
        assert arrays["test_logits"].shape == (300, 10) and "val_logits" in arrays.files
        p = np.exp(arrays["test_logits"])
    np.testing.assert_allclose(p.sum(1), 1)
    plain = np.load(run.path / "predictions.npz")["test_logits"]
    assert p.max(1).mean() < np.exp(plain - np.logaddexp.reduce(plain, 1)[:, None]).max(1).mean()
    shown = CliRunner().invoke(app, ["calibrate", str(run.path), "--method", "laplace"])
    assert "Prior precision" in shown.output and "laplace" in shown.output


def test_what_has_no_single_head_is_refused(run, tmp_path):
    done = CliRunner().invoke(
        app, ["calibrate", str(run.path / "predictions.npz"), "--method", "laplace"]
    )
    assert done.exit_code == 2 and "laplace needs the folder of a run" in done.output
    settings = CONFIG | {"objective": "batch_ensemble:members=2", "steps": 2, "every": 2}
    mixture = train(RunConfig(**settings), tmp_path, Runtime("cpu"), data=digits(train=60, val=20))
    with pytest.raises(ValueError, match="laplace needs the head of one network"):
        laplace_of_run(mixture.path, Runtime("cpu"))


def test_a_label_of_probability_0_leaves_the_precision():
    logits, labels = LOGITS.clone(), LABELS.clone()
    logits[0] = torch.tensor([900.0, 0.0, 0.0, -900.0])
    labels[0] = 3
    found = LastLayerLaplace().fit(FEATURES, logits, labels, HEAD.weight, HEAD.bias)
    assert math.isfinite(found.evidence) and found.precision < 100


def test_a_second_fit_searches_again():
    twice = fitted()
    twice.fit(FEATURES, LOGITS, LABELS, 10 * HEAD.weight, HEAD.bias)
    once = LastLayerLaplace().fit(FEATURES, LOGITS, LABELS, 10 * HEAD.weight, HEAD.bias)
    assert twice.precision == once.precision != fitted().precision
