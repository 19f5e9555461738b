"""Parity with scikit-learn, scipy and netcal, in float64."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import peer_calibrators
import pytest
import torch
from scipy.optimize import minimize
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from toosure import metrics
from toosure.posthoc import (
    BBQ,
    Beta,
    Dirichlet,
    EnsembleTemperature,
    HistogramBinning,
    Isotonic,
    Matrix,
    Platt,
    RankIsotonic,
    Temperature,
    Vector,
    binning,
)
from toosure.posthoc.affine_loss import AffineLoss, odir

ROOT = Path(__file__).resolve().parents[2]
LOGITS, LABELS = (torch.from_numpy(each) for each in peer_calibrators.rows())
LOGITS2, LABELS2 = (torch.from_numpy(each) for each in peer_calibrators.rows(classes=2))


@pytest.fixture(scope="module")
def peers() -> dict:
    """What netcal answers, where `make peers` installed it."""
    python = ROOT / ".peers" / "bin" / "python"
    if not python.exists():
        pytest.skip("no .peers environment: `make peers` installs the libraries to compare with")
    command = [str(python), "-W", "ignore", str(Path(peer_calibrators.__file__))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    out = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return {name: torch.tensor(values) for name, values in json.loads(out.stdout).items()}


def without_floor(calibrator):
    """Netcal and scikit-learn let frequencies be 0."""
    calibrator.floor.fill_(1e-300)
    return calibrator


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("temperature", Temperature),
        ("vector", Vector),  # netcal's LogisticCalibration of several classes
        ("histogram", lambda: HistogramBinning(bins=10)),
        ("isotonic", Isotonic),
    ],
)
def test_netcal(name, make, peers):
    calibrator = make().fit(LOGITS, LABELS)
    if hasattr(calibrator, "floor"):
        without_floor(calibrator)
    probs = calibrator.predict_proba(LOGITS)
    torch.testing.assert_close(probs, peers[name].double(), atol=1e-5, rtol=0)


def test_netcal_beta(peers):
    probs = Beta().fit(LOGITS2, LABELS2).predict_proba(LOGITS2)[:, 1]
    torch.testing.assert_close(probs, peers["beta"].double(), atol=2e-5, rtol=0)


def test_sklearn_isotonic_one_vs_rest():
    probs = LOGITS.exp().numpy()
    columns = [
        IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        .fit(probs[:, k], LABELS.numpy() == k)
        .predict(probs[:, k])
        for k in range(3)
    ]
    wanted = np.stack(columns, 1)
    wanted /= wanted.sum(1, keepdims=True)
    probs = without_floor(Isotonic().fit(LOGITS, LABELS)).predict_proba(LOGITS)
    np.testing.assert_allclose(probs.numpy(), wanted, atol=1e-12)


def test_sklearn_isotonic_of_all_classes_together():
    probs, hits = LOGITS.exp().numpy(), np.eye(3)[LABELS.numpy()]
    pooled = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
    wanted = pooled.fit(probs.ravel(), hits.ravel()).predict(probs.ravel()).reshape(probs.shape)
    wanted = np.maximum(wanted, 1 / 1200) + probs / 1200
    wanted /= wanted.sum(1, keepdims=True)
    probs = RankIsotonic().fit(LOGITS, LABELS).predict_proba(LOGITS)
    np.testing.assert_allclose(probs.numpy(), wanted, atol=1e-12)


def test_sklearn_platt():
    from sklearn.calibration import _SigmoidCalibration

    scores = (LOGITS2[:, 1] - LOGITS2[:, 0]).numpy()
    wanted = _SigmoidCalibration().fit(scores, LABELS2.numpy()).predict(scores)
    probs = Platt().fit(LOGITS2, LABELS2).predict_proba(LOGITS2)[:, 1]
    np.testing.assert_allclose(probs.numpy(), wanted, atol=1e-5)


def test_sklearn_beta():
    """Logistic regression on log p and -log(1 - p), without penalty."""
    p = LOGITS2.exp().numpy()
    features = np.stack([np.log(p[:, 1]), -np.log(p[:, 0])], 1)
    model = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(features, LABELS2.numpy())
    calibrator = Beta().fit(LOGITS2, LABELS2)
    wanted = [*model.coef_[0], model.intercept_[0]]
    assert calibrator.theta[1].tolist() == pytest.approx(wanted, abs=1e-4)


def test_beta_slopes_are_never_negative():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(300, 3, generator=generator, dtype=torch.float64)
    labels = torch.randint(3, (300,), generator=generator)  # nothing to learn: slopes near 0
    theta = Beta().fit_quietly(logits, labels).theta
    assert (theta[:, :2] >= 0).all() and (theta[:, :2] == 0).any()


def slow_affine(logits, labels, lam, diagonal=False):
    """W and b by scipy's BFGS on numpy, as the formula is written."""
    x, y, c = logits.numpy(), labels.numpy(), logits.shape[1]

    def parts(flat):
        weight = np.diag(flat[:c]) if diagonal else flat[:-c].reshape(c, c)
        return weight, flat[-c:]

    def loss(flat):
        weight, bias = parts(flat)
        z = x @ weight.T + bias
        top = z.max(1)
        nll = (np.log(np.exp(z - top[:, None]).sum(1)) + top - z[np.arange(len(y)), y]).mean()
        return nll + float(odir(torch.tensor(weight), torch.tensor(bias), lam, lam))

    start = np.concatenate([np.ones(c) if diagonal else np.eye(c).ravel(), np.zeros(c)])
    return minimize(loss, start, method="BFGS", options={"gtol": 1e-7}).fun


def test_dirichlet_reaches_the_minimum():
    calibrator = Dirichlet(lam=0.1).fit(LOGITS, LABELS)
    penalty = odir(calibrator.weight, calibrator.bias, 0.1, 0.1)
    total = float(metrics.nll(calibrator(LOGITS), LABELS) + penalty)
    assert total == pytest.approx(slow_affine(LOGITS, LABELS, 0.1), abs=1e-8)


def test_matrix_and_vector_reach_the_minimum():
    centred = LOGITS - LOGITS.mean(1, keepdim=True)
    loss = float(metrics.nll(Matrix().fit(LOGITS, LABELS)(LOGITS), LABELS))
    assert loss == pytest.approx(slow_affine(centred, LABELS, 0.0), abs=1e-7)
    loss = float(metrics.nll(Vector().fit(LOGITS, LABELS)(LOGITS), LABELS))
    assert loss == pytest.approx(slow_affine(LOGITS, LABELS, 0.0, diagonal=True), abs=1e-7)


def test_the_two_solvers_agree(monkeypatch):
    """The dense Hessian of few classes, and products with it for many."""
    dense = Dirichlet(lam=0.1).fit(LOGITS, LABELS).predict_proba(LOGITS)
    monkeypatch.setattr("toosure.posthoc.affine_loss.MAX_DENSE_CLASSES", 0)
    products = Dirichlet(lam=0.1).fit(LOGITS, LABELS).predict_proba(LOGITS)
    torch.testing.assert_close(products, dense, atol=1e-4, rtol=0)  # its gradient ends at 1e-5


def test_ensemble_weights_beat_a_fine_grid():
    generator = torch.Generator().manual_seed(0)
    logits = 6 * torch.randn(800, 4, generator=generator, dtype=torch.float64)
    labels = torch.multinomial((logits / 2).softmax(1), 1, generator=generator).squeeze(1)
    noisy = torch.rand(800, generator=generator) < 0.2
    labels = torch.where(noisy, torch.randint(4, (800,), generator=generator), labels)
    calibrator = EnsembleTemperature().fit(logits, labels)
    parts = [
        (logits / calibrator.temperature).softmax(1),
        logits.softmax(1),
        torch.full((800, 4), 0.25),
    ]
    own = torch.stack([part.gather(1, labels[:, None]).squeeze(1).double() for part in parts], 1)
    steps = torch.linspace(0, 1, 101, dtype=torch.float64)
    grid = torch.stack([torch.stack([a, b, 1 - a - b]) for a in steps for b in steps if a + b <= 1])
    lowest = -(own @ grid.T).clamp(min=1e-300).log().mean(0).max()
    ours = metrics.nll(calibrator(logits), labels)
    assert lowest - 1e-3 < ours <= lowest + 1e-9
    assert 0.02 < float(calibrator.weights[2]) < 0.5  # the noise of labels is seen
    assert ours < metrics.nll(Temperature().fit(logits, labels)(logits), labels) - 0.001


def test_separable_rows_have_no_best_matrix():
    logits = torch.eye(3).repeat(20, 1) + 0.1 * torch.randn(60, 3)
    with pytest.warns(UserWarning, match="the NLL has no minimum"):
        Matrix().fit(logits, torch.arange(60) % 3)
    with pytest.warns(UserWarning, match="the NLL has no minimum"):
        Vector().fit(logits, torch.arange(60) % 3)


@pytest.mark.parametrize("unit", [1e-8, 3000.0, 1e8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [Platt, Beta])
def test_units_of_the_logits_do_not_stop_the_sigmoids(kind, dtype, unit):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(400, 4, generator=generator, dtype=torch.float64)
    labels = torch.multinomial((1.5 * logits).softmax(1), 1, generator=generator).squeeze(1)
    logits = (unit * logits).to(dtype)
    calibrator = kind().fit_quietly(logits, labels)
    scaled = metrics.nll(Temperature().fit(logits, labels)(logits), labels)
    assert calibrator.note == ""
    assert float(metrics.nll(calibrator(logits), labels)) < float(scaled)


def test_a_sigmoid_that_stops_early_says_so(monkeypatch):
    monkeypatch.setattr("toosure.posthoc.one_vs_rest.MAX_DECREMENT", -1.0)
    assert "before the fit converged" in Platt().fit_quietly(LOGITS, LABELS).note


def test_many_classes_take_few_products(monkeypatch):
    """Frequent and rare classes: in units of its own curvature each takes as few as the other."""
    generator = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(800, 40, generator=generator) + 8 * torch.linspace(-1, 1, 40)
    labels = torch.multinomial((logits / 2).softmax(1), 1, generator=generator).squeeze(1)
    labels[:40] = torch.arange(40)
    counts, original = [], AffineLoss.hessian_product

    def counted(*arguments):
        counts[-1] += 1
        return original(*arguments)

    monkeypatch.setattr(AffineLoss, "hessian_product", counted)
    losses = []
    for units in (AffineLoss.diagonal_scale, lambda loss, flat: np.ones_like(flat)):
        monkeypatch.setattr(AffineLoss, "diagonal_scale", units)
        counts.append(0)
        losses.append(float(metrics.nll(Vector().fit_quietly(logits, labels)(logits), labels)))
    assert losses[0] == pytest.approx(losses[1], abs=1e-6) and counts[0] < 0.5 * counts[1]


def test_dirichlet_penalty_expects_off_diagonals_of_3_hundredths():
    lam = 4 * 3 / (2 * 0.03**2 * 250)
    assert Dirichlet().penalties(250, 4) == pytest.approx((lam, lam))


def test_bbq_tries_a_tenth_to_ten_times_the_cube_root(monkeypatch):
    seen = []
    original = binning.averaged_binnings

    def noted(probs, hits, sizes):
        seen.append((min(sizes), max(sizes)))
        return original(probs, hits, sizes)

    monkeypatch.setattr(binning, "averaged_binnings", noted)
    BBQ().curve(np.linspace(0, 1, 8000), np.arange(8000) % 2)
    assert seen == [(2, 200)]
