"""Published figures of temperature scaling, and the numbers of the methods' fixtures by hand."""

import numpy as np
import pytest
import torch

from toosure import metrics
from toosure.posthoc import Dirichlet, Isotonic, Platt, Temperature, split_temperature
from toosure.posthoc.binning import averaged_binnings, bin_frequencies
from toosure.posthoc.isotonic import increasing_curve


def load(folder, name, part):
    arrays = np.load(folder / "logits" / name)
    labels = torch.from_numpy(arrays[f"{part}_labels"]).long().flatten()
    return torch.from_numpy(arrays[f"{part}_logits"]), labels


RESNET110 = {
    "nll": (metrics.nll, {}, 0.209261),
    "ece": (metrics.ece, {}, 0.0113208),
    "mce": (metrics.mce, {}, 0.236393),
    "classwise": (
        metrics.classwise_ece,
        {"bins": 14, "edge": "left", "reduction": "sum"},
        0.043437,
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", RESNET110)
def test_resnet110_after_temperature(name, dtype, real_data):
    file = "logits_resnet110_c10.npz"
    logits, labels = load(real_data, file, "val")
    calibrator = Temperature().fit(logits.to(dtype), labels)
    assert f"{float(calibrator.temperature):.3f}" == "2.395"
    metric, options, published = RESNET110[name]
    logits, labels = load(real_data, file, "test")
    value = metric(calibrator(logits.to(dtype)), labels, **options)
    assert float(value) == pytest.approx(published, abs=2e-6)


def test_flsd53_after_the_grid_on_ece(real_data):
    file = "logits_resnet50_c10_focalcal.npz"
    calibrator = Temperature(criterion="ece").fit(*load(real_data, file, "val"))
    assert float(calibrator.temperature) == 1.1
    logits, labels = load(real_data, file, "test")
    assert f"{100 * float(metrics.ece(calibrator(logits), labels)):.2f}" == "0.95"


def test_split_temperature_on_resnet110(real_data):
    split = split_temperature(*load(real_data, "logits_resnet110_c10.npz", "test"), seed=1)
    assert split.temperature == pytest.approx(2.6, abs=0.2)
    assert 0.19 < split.refinement < 0.23 and split.tce < 0.02


# Part D, by hand


def test_temperature_of_the_fixture(fixture_f):
    logits, labels = fixture_f
    calibrator = Temperature().fit(logits, labels)
    assert float(calibrator.temperature) == pytest.approx(0.91069966, abs=1e-7)
    assert float(metrics.nll(calibrator(logits), labels)) == pytest.approx(0.68582141, abs=1e-8)


def test_platt_by_hand():
    scores = torch.tensor([-2, -1, 0.5, 1, 2, -0.3], dtype=torch.float64)
    logits = torch.stack([torch.zeros(6, dtype=torch.float64), scores], 1)
    calibrator = Platt().fit(logits, torch.tensor([0, 0, 1, 1, 1, 1]))
    assert calibrator.theta[1].tolist() == pytest.approx([0.89398092, 0.70930644], abs=1e-8)
    expected = (0.89398092 * scores + 0.70930644).sigmoid()
    torch.testing.assert_close(
        calibrator.predict_proba(logits)[:, 1], expected, atol=1e-7, rtol=1e-7
    )


PROBS, HITS = np.array([0.1, 0.35, 0.4, 0.55, 0.7, 0.8]), np.array([0.0, 1, 0, 0, 1, 1])


def test_histogram_by_hand():
    edges, values = bin_frequencies(PROBS, HITS, 5)
    assert edges.tolist() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])
    assert values.tolist() == pytest.approx([0, 0.5, 0, 1, 0.9, 0.9])  # the empty bin: its middle


def test_isotonic_by_hand():
    at, values = increasing_curve(PROBS, HITS)
    assert np.interp(PROBS, at, values).tolist() == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3, 1, 1])


def test_bbq_by_hand():
    at, values, scores = averaged_binnings(PROBS, HITS, (1, 2, 3))
    assert scores.tolist() == pytest.approx([-4.94164242, -5.8150722, -3.99979817], abs=1e-8)
    weights = np.exp(scores) / np.exp(scores).sum()
    assert weights.tolist() == pytest.approx([0.25111595, 0.1048452, 0.64403885], abs=1e-8)
    assert values[np.searchsorted(at, 0.6) - 1] == pytest.approx(0.27781627, abs=1e-8)


def test_bbq_does_not_split_ties():
    probs = np.array([0.2] * 5 + [0.7])
    at, _, _ = averaged_binnings(probs, np.array([0.0, 1, 0, 1, 0, 1]), range(1, 7))
    assert at.tolist() == pytest.approx([0, 0.45, 1])


def test_dirichlet_map_by_hand(fixture_f):
    weight = torch.eye(3, dtype=torch.float64)
    weight[0, 1] = 0.2
    calibrator = Dirichlet()
    bias = torch.tensor([0.1, 0, -0.1], dtype=torch.float64)
    calibrator.load_state_dict({"weight": weight, "bias": bias})
    probs = calibrator.predict_proba(fixture_f[0][:1])[0]
    assert probs.tolist() == pytest.approx([0.74418536, 0.21284249, 0.04297216], abs=1e-8)


def test_dirichlet_with_a_scaled_identity_is_temperature(fixture_f):
    calibrator = Dirichlet()
    eye = torch.eye(3, dtype=torch.float64)
    calibrator.load_state_dict({"weight": eye / 2.5, "bias": torch.zeros(3).double()})
    torch.testing.assert_close(
        calibrator.predict_proba(fixture_f[0]), (fixture_f[0] / 2.5).softmax(1)
    )


def test_isotonic_blocks_are_means():
    generator = np.random.default_rng(0)
    probs = generator.random(500).round(2)  # with ties
    hits = (generator.random(500) < probs**2).astype(float)
    at, values = increasing_curve(probs, hits)
    fitted = np.interp(probs, at, values)
    assert (np.diff(fitted[np.argsort(probs)]) >= 0).all()
    for value in np.unique(fitted.round(12)):
        block = np.isclose(fitted, value)
        assert hits[block].mean() == pytest.approx(value)
    assert issubclass(Isotonic, torch.nn.Module)
