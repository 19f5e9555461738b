"""The thirteen places where other libraries go wrong, and ours does not (docs/metrics.md)."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import peer_defects
import pytest
import torch
from torch import tensor

from toosure import metrics

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def peers() -> dict:
    """What the peers answer, where `make peers` installed them."""
    python = ROOT / ".peers" / "bin" / "python"
    if not python.exists():
        pytest.skip("no .peers environment: `make peers` installs the libraries to compare with")
    script = Path(peer_defects.__file__)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [str(python), "-W", "ignore", str(script)]
    out = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return json.loads(out.stdout)


def torchmetrics_ece(probs, labels):
    from torchmetrics.functional.classification import multiclass_calibration_error

    return float(multiclass_calibration_error(probs, labels, probs.shape[1], n_bins=15))


def brute_ece(confidence, correct, bins=15):
    """The definition, bin by bin, in numpy's float64."""
    confidence, correct = np.asarray(confidence, np.float64), np.asarray(correct, np.float64)
    index = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    gaps = [(correct - confidence)[index == b].sum() for b in range(bins)]
    return np.abs(gaps).sum() / len(confidence)


def test_1_certainty_shares_the_last_bin():
    probs = tensor([[1.0, 0.0]] * 50 + [[0.95, 0.05]] * 50)
    labels = tensor([0] * 35 + [1] * 15 + [0] * 50)
    logits = probs.double().log()
    assert float(metrics.ece(logits, labels)) == pytest.approx(0.125, abs=1e-7)
    assert torchmetrics_ece(probs, labels) == pytest.approx(0.175, abs=1e-6)  # the peer's defect


def test_2_sums_are_exact_for_a_million_rows():
    generator = torch.Generator().manual_seed(0)
    confidence = 1 - 0.01 * torch.rand(1_000_000, dtype=torch.float64, generator=generator)
    correct = torch.rand(1_000_000, generator=generator) < confidence - 0.12
    expected = brute_ece(confidence, correct)
    assert float(metrics.ece_from_confidence(confidence, correct)) == pytest.approx(
        expected, abs=1e-12
    )
    probs = torch.stack([confidence, 1 - confidence], 1).float()
    assert abs(torchmetrics_ece(probs, (~correct).long()) - expected) > 1e-3  # the peer's defect


def test_2_twenty_million_equal_confidences():
    correct = torch.arange(20_000_000) % 4 != 0
    assert float(metrics.ece_from_confidence(torch.full((20_000_000,), 0.75), correct)) == 0


def test_3_logits_in_the_unit_interval_are_logits():
    generator = torch.Generator().manual_seed(0)
    logits = torch.rand(2000, 10, generator=generator)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    assert float(metrics.ece(logits, labels)) < 0.05
    assert torchmetrics_ece(logits, labels) > 0.5  # the peer's defect


def test_4_temperature_is_found_in_float32(peers_or_none):
    logits, labels = map(tensor, peer_defects.overconfident())
    single = metrics.nll_split(logits.float(), labels).temperature
    double = metrics.nll_split(logits, labels).temperature
    assert float(double) > 1.5
    assert float(single) == pytest.approx(float(double), abs=1e-5)
    if peers_or_none:
        moved = peers_or_none["netcal_temperature"]
        assert moved["float32"] < 1e-5 < 0.1 < moved["float64"]


def test_5_two_distinct_labels_in_a_multiclass_batch(peers_or_none):
    logits, labels = map(tensor, peer_defects.two_labels())
    probs = logits.softmax(1)
    expected = brute_ece(probs.max(1).values, probs.argmax(1) == labels)
    assert float(metrics.ece(logits, labels)) == pytest.approx(expected, abs=1e-12)
    if peers_or_none:
        assert "RuntimeError" in peers_or_none["netcal_two_labels"]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("normalization", ["paper", "reference"])
def test_6_mmce_gradient_on_an_all_correct_saturated_batch(weighted, normalization, peers_or_none):
    logits = tensor([[60.0, 0.0], [0.0, 60.0]], requires_grad=True)
    metrics.mmce(logits, tensor([0, 1]), weighted, normalization).backward()
    assert logits.grad.isfinite().all()
    if peers_or_none:
        assert peers_or_none["netcal_mmce_gradient"] is True


def test_7_adaptive_bins_do_not_depend_on_the_order_of_ties(peers_or_none):
    confidence, by_hit, by_turns = map(tensor, peer_defects.tied())
    for hits in (by_hit, by_turns):
        assert float(metrics.adaptive_ece_from_confidence(confidence, hits)) == 0.25
    few = metrics.adaptive_ece_from_confidence(tensor([0.9, 0.8]).double(), tensor([True, False]))
    assert float(few) == pytest.approx(0.45)
    if peers_or_none:
        answer = peers_or_none["uncertainty_adaptive"]
        assert answer["sorted"] > answer["by_turns"] + 0.1
        assert answer["few"] == "nan"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_8_smece_takes_every_float(dtype, peers_or_none):
    logits, labels = map(tensor, peer_defects.overconfident(300))
    value = metrics.smece(logits.to(dtype), labels)
    assert float(value) == pytest.approx(float(metrics.smece(logits, labels)), abs=2e-3)
    if peers_or_none:
        assert "RuntimeError" in peers_or_none["uncertainty_smooth"]


def test_9_smece_has_no_bias(peers_or_none):
    confidence, correct = peer_defects.crowded()
    ours = float(metrics.smece_from_confidence(tensor(confidence), tensor(correct)))
    gap = confidence.mean() - correct.mean()  # every smoothing of a one-sided gap has this area
    assert ours == pytest.approx(gap, abs=1e-6)
    if peers_or_none:
        assert peers_or_none["relplot_smece"] > gap * 1.01


def test_10_as_many_bins_as_asked_for_in_any_row_order(peers_or_none):
    confidence, correct = map(tensor, peer_defects.two_bins())
    order = torch.randperm(len(confidence), generator=torch.Generator().manual_seed(0))
    expected = brute_ece(confidence, correct)
    assert float(metrics.ece_from_confidence(confidence, correct)) == pytest.approx(expected)
    ours = [
        float(metrics.adaptive_ece_from_confidence(confidence[rows], correct[rows]))
        for rows in (slice(None), order)
    ]
    assert ours[0] == pytest.approx(ours[1], abs=1e-15)
    if peers_or_none:
        answer = peers_or_none["mapie_bins"]
        assert answer["uniform"] == pytest.approx(brute_ece(confidence, correct, 14))
        assert answer["mixed"] != pytest.approx(answer["sorted"], abs=1e-4)


def test_11_weighted_mmce_normalises_once(fixture_f):
    assert float(metrics.mmce(*fixture_f, weighted=True)) == pytest.approx(0.44475537, abs=1e-8)
    reference = metrics.mmce(*fixture_f, weighted=True, normalization="reference")
    assert float(reference) == pytest.approx(0.22237741, abs=1e-8)


def test_11_classwise_counts_classes_without_labels():
    logits = tensor([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0]]).double()
    labels = tensor([0, 1])
    per_class = metrics.classwise_ece(logits, labels, reduction="none")
    high, low, _ = logits.softmax(1)[0].tolist()
    assert per_class.tolist() == pytest.approx([(1 - high + low) / 2] * 2 + [low], abs=1e-12)
    assert float(metrics.classwise_ece(logits, labels)) == pytest.approx(float(per_class.mean()))


def test_12_level_is_a_share_and_not_a_percentage(peers_or_none):
    logits, labels = map(tensor, peer_defects.overconfident(500))
    widths = []
    for level in (0.9, 0.999):
        _, low, high = metrics.confidence_interval(metrics.ece, logits, labels, level)
        widths.append(float(high - low))
    assert widths[0] * 1.5 < widths[1]
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        metrics.confidence_interval(metrics.ece, logits, labels, level=95)
    if peers_or_none:
        answer = peers_or_none["calibration_width"]
        assert answer["0.1"] > 1.3 * answer["10.0"]


@pytest.mark.parametrize("form", ["top", "canonical"])
def test_13_kde_ece_on_saturated_rows(form):
    logits = tensor([[500.0, 0, 0], [0, 500.0, 0], [0, 0, 500.0], [300.0, 0, 0]]).double()
    logits.requires_grad_()
    value = metrics.kde_ece(logits, tensor([0, 1, 0, 0]), form=form)
    value.backward()
    assert value.isfinite() and logits.grad.isfinite().all()


@pytest.fixture
def peers_or_none(request) -> dict | None:
    """The peers' answers, or None: ours is tested either way."""
    if (ROOT / ".peers" / "bin" / "python").exists():
        return request.getfixturevalue("peers")
    return None


def test_peers_were_asked(peers):
    """Skips, with the reason, where the peers are not installed."""
    assert len(peers) == len(peer_defects.QUESTIONS)


def test_debiased_error_agrees_with_its_authors(peers):
    confidence, correct = map(tensor, peer_defects.two_bins())
    answer = peers["calibration_debiased"]
    ours = {
        norm: float(metrics.debiased_ece_from_confidence(confidence, correct, bins=2, norm=norm))
        for norm in (1, 2)
    }
    assert ours[2] == pytest.approx(answer["l2"], abs=1e-12)
    assert ours[1] == pytest.approx(answer["l1"], abs=5e-4)  # theirs is 20,000 resamples
