"""Figures others published for logits of really trained networks, and the fixture's by hand."""

import numpy as np
import pytest
import torch

from toosure import metrics


def load(folder, name):
    arrays = np.load(folder / "logits" / name)
    labels = torch.from_numpy(arrays["test_labels"]).long().flatten()
    return torch.from_numpy(arrays["test_logits"]), labels


RESNET110 = {
    "ece": (metrics.ece, {}, 0.047503519),
    "mce": (metrics.mce, {}, 0.295799),
    "nll": (metrics.nll, {}, 0.358274),
    "brier": (metrics.brier, {}, 0.11019),
    "accuracy": (metrics.accuracy, {}, 0.9356),
    "classwise_ece": (
        metrics.classwise_ece,
        {"bins": 14, "edge": "left", "reduction": "sum"},
        0.098456,
    ),
}


@pytest.mark.parametrize("name", RESNET110)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_resnet110_on_cifar10(name, dtype, real_data):
    logits, labels = load(real_data, "logits_resnet110_c10.npz")
    metric, options, published = RESNET110[name]
    assert float(metric(logits.to(dtype), labels, **options)) == pytest.approx(published, abs=2e-6)


def test_resnet110_best_temperature(real_data):
    arrays = np.load(real_data / "logits" / "logits_resnet110_c10.npz")
    labels = torch.from_numpy(arrays["val_labels"]).long().flatten()
    split = metrics.nll_split(torch.from_numpy(arrays["val_logits"]), labels)
    assert float(split.temperature) == pytest.approx(2.395, abs=5e-4)
    logits, labels = load(real_data, "logits_resnet110_c10.npz")
    scaled = logits.double() / split.temperature
    assert float(metrics.nll(scaled, labels)) == pytest.approx(0.209261, abs=2e-6)


def test_flsd53_on_cifar10(real_data):
    logits, labels = load(real_data, "logits_resnet50_c10_focalcal.npz")
    assert f"{100 * (1 - float(metrics.accuracy(logits, labels))):.2f}" == "4.98"
    assert f"{100 * float(metrics.ece(logits, labels)):.2f}" == "1.55"


def test_vgg16_coarse_auroc(real_data):
    """Part G of the methods: T = 10, 15, 16, 20, 50, 100, and the exact macro figure."""
    arrays = np.load(real_data / "logits" / "probs_vgg16_c10_verifiedcal.npz")
    probs = torch.from_numpy(arrays["test_probs"]).double()
    logits = probs.clamp(min=0).log()
    labels = torch.from_numpy(arrays["test_labels"]).long().flatten()
    published = {10: 97.66, 15: 97.96, 16: 97.99, 20: 98.08, 50: 98.50, 100: 98.76}
    for thresholds, figure in published.items():
        ours = 100 * float(metrics.auroc_ovr_binned(logits, labels, thresholds))
        assert ours == pytest.approx(figure, abs=0.006)
    assert 100 * float(metrics.auroc_ovr(logits, labels)) == pytest.approx(99.72, abs=0.006)


FIXTURE_F = [
    (metrics.ece, {}, 0.32925889),
    (metrics.ece, {"bins": 2}, 0.18502704),
    (metrics.nll, {}, 0.68762214),
    (metrics.mmce, {}, 0.22237769),
    (metrics.mmce, {"weighted": True}, 0.44475537),
    (metrics.mmce, {"weighted": True, "normalization": "reference"}, 0.22237741),
    (metrics.dece, {}, 0.32921968),
    (metrics.dece, {"accuracy_slope": 1e4}, 0.32925454),
    (metrics.sece, {}, 0.32925889),
    (metrics.sece, {"bandwidth": 0.05}, 0.32925683),
    (metrics.sece, {"bandwidth": 0.1}, 0.31076369),
    (metrics.sece, {"bandwidth": 0.3}, 0.18787399),
    (metrics.sece, {"bandwidth": 1e9}, 0.19015238),
    (metrics.sece, {"form": "grid"}, 0.41686921),
    (metrics.sece, {"form": "grid", "bandwidth": 0.05}, 0.33137423),
    (metrics.sece, {"form": "grid", "bandwidth": 0.1}, 0.30161561),
    (metrics.skce, {"estimator": "biased"}, 0.06659517),
    (metrics.skce, {"estimator": "unbiased"}, -0.0492103),
    (metrics.skce, {"estimator": "linear"}, -0.00046618),
    (metrics.auroc_ovr, {}, 0.88888889),
    (metrics.auroc_ovr_binned, {"thresholds": 5}, 0.80555556),
    (metrics.auroc_ovr_binned, {}, 0.88888889),
    (metrics.auroc_misclass, {}, 1.0),
]


@pytest.mark.parametrize(("metric", "options", "figure"), FIXTURE_F)
def test_fixture_by_hand(metric, options, figure, fixture_f):
    value = metric(*fixture_f, **options)
    assert value.dtype == torch.float64 and value.ndim == 0
    assert float(value) == pytest.approx(figure, abs=1e-8)


def test_fixture_parts(fixture_f):
    assert float(metrics.median_distance(fixture_f[0])) == pytest.approx(0.62517941, abs=1e-8)
    assert metrics.soft_correct(*fixture_f).tolist() == pytest.approx(
        [1, 0, 1, 0.00013945], abs=1e-8
    )
    split = metrics.nll_split(*fixture_f)
    assert float(split.temperature) == pytest.approx(0.91069966, abs=1e-6)
    assert float(split.refinement) == pytest.approx(0.68582141, abs=1e-8)
    per_class = metrics.auroc_ovr(*fixture_f, reduction="none")
    assert per_class.tolist() == pytest.approx([1, 2 / 3, 1])
