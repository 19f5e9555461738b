"""Probabilities go in as `probs=`; passed as logits they are refused, and logits never are."""

import pickle

import pytest
import torch
from test_inputs import ON_LOGITS, PAIRED
from torch import tensor

from toosure import metrics
from toosure.evaluate import evaluate
from toosure.metrics import streaming
from toosure.metrics.distributions import are_probabilities
from toosure.metrics.inputs import known_outputs
from toosure.posthoc import Temperature
from toosure.predictions import from_probs

generator = torch.Generator().manual_seed(0)
LOGITS = 3 * torch.randn(60, 4, generator=generator, dtype=torch.float64)
LABELS = torch.multinomial((LOGITS / 2).softmax(1), 1, generator=generator).squeeze(1)
PROBS = LOGITS.softmax(1)
OTHERS = [metrics.accuracy_coverage, metrics.soft_correct, metrics.top_label]
STREAMING = {
    "ECE": streaming.ECE,
    "MCE": streaming.MCE,
    "AdaptiveECE": streaming.AdaptiveECE,
    "ReliabilityTable": streaming.ReliabilityTable,
    "ClasswiseECE": lambda: streaming.ClasswiseECE(4),
    "NLL": streaming.NLL,
    "Brier": streaming.Brier,
    "Accuracy": streaming.Accuracy,
}


def flat(value):
    """Return a metric's numbers as one tensor."""
    parts = value if isinstance(value, tuple) else (value,)
    return torch.cat([part.double().reshape(-1) for part in parts])


@pytest.mark.parametrize("metric", [*ON_LOGITS, *OTHERS], ids=lambda m: m.__name__)
def test_probabilities_passed_as_logits_are_refused(metric):
    with pytest.raises(ValueError, match=r"logits are probabilities.*pass them as probs="):
        metric(PROBS, LABELS)


@pytest.mark.parametrize("metric", [*ON_LOGITS, *OTHERS], ids=lambda m: m.__name__)
def test_the_remedies_give_the_value_of_the_logits(metric):
    value = flat(metric(LOGITS, LABELS))
    assert flat(metric(probs=PROBS, labels=LABELS)) == pytest.approx(value, abs=1e-6, nan_ok=True)

    # What looks like probabilities and is not: the sentence says to add 1.
    alike = metric(PROBS + 1, LABELS)
    with known_outputs():
        expected = metric(PROBS, LABELS)
    assert flat(alike) == pytest.approx(flat(expected), abs=1e-6, nan_ok=True)


def test_probs_give_what_an_evaluation_of_probabilities_gives():
    evaluation = evaluate(from_probs(PROBS, LABELS))
    for name, estimate in evaluation.metrics.items():
        metric = getattr(metrics, name, None)
        if metric is not None:
            value = float(metric(probs=PROBS, labels=LABELS))
            assert value == pytest.approx(estimate.value, rel=1e-12), name


@pytest.mark.parametrize(
    "metric", [m for m in PAIRED if not m.__name__.startswith("reliab")], ids=lambda m: m.__name__
)
def test_intervals_take_probabilities(metric):
    if metric in (metrics.nll_split, metrics.brier_split):
        pytest.skip("no number")
    options = {"samples": 20}
    interval = metrics.confidence_interval(metric, probs=PROBS, labels=LABELS, **options)
    expected = metrics.confidence_interval(metric, LOGITS, LABELS, **options)
    for number, other in zip(interval, expected, strict=True):
        assert float(number) == pytest.approx(float(other), abs=1e-4, nan_ok=True)
    with pytest.raises(ValueError, match="logits are probabilities"):
        metrics.confidence_interval(metric, PROBS, LABELS, **options)


def test_an_interval_of_a_metric_of_ones_own_gets_logits():
    def mean_top(logits, labels):
        return logits.softmax(1).amax(1).mean()

    interval = metrics.confidence_interval(mean_top, probs=PROBS, labels=LABELS, samples=5)
    assert float(interval.value) == pytest.approx(float(PROBS.amax(1).mean()))
    with pytest.raises(ValueError, match="probs must be rows of numbers"):
        metrics.confidence_interval(mean_top, probs=PROBS / 2, labels=LABELS, samples=5)


def test_resampled_rows_are_not_looked_at_again():
    logits = tensor([[0.25, 0.75], [3.0, 0.0]])  # the first row alone would be refused
    labels = tensor([1, 0])
    interval = metrics.confidence_interval(metrics.classwise_ece, logits, labels, samples=20)
    assert interval.low <= interval.value <= interval.high


@pytest.mark.parametrize("metric", [metrics.auroc_ood, metrics.fpr95_ood])
@pytest.mark.parametrize("score", ["confidence", "entropy"])
def test_out_of_distribution_scores(metric, score):
    others = LOGITS.roll(1, 0) / 3
    value = metric(LOGITS, others, score)
    assert metric(probs=PROBS, ood_probs=others.softmax(1), score=score) == pytest.approx(value)
    with pytest.raises(ValueError, match="logits are probabilities"):
        metric(PROBS, others.softmax(1), score)
    with pytest.raises(ValueError, match="energy is a score of logits"):
        metric(probs=PROBS, ood_probs=PROBS, score="energy")


@pytest.mark.parametrize("name", STREAMING)
def test_streaming_checks_the_first_update_only(name):
    metric = STREAMING[name]()
    for _ in range(2):  # also when the first attempt was refused
        with pytest.raises(ValueError, match="logits are probabilities"):
            metric.update(PROBS, LABELS)

    metric = STREAMING[name]()
    metric.update(LOGITS[:30], LABELS[:30])
    metric.update(LOGITS[30:], LABELS[30:])
    expected = metric.compute()
    metric.update(tensor([[0.25, 0.75, 0.0, 0.0]]), tensor([1]))  # a batch of one, by chance

    metric = pickle.loads(pickle.dumps(STREAMING[name]()))
    metric.update(probs=PROBS[:30], labels=LABELS[:30])
    metric.update(probs=PROBS[30:], labels=LABELS[30:])
    assert flat(metric.compute()) == pytest.approx(flat(expected), abs=1e-6, nan_ok=True)


@pytest.mark.parametrize(
    "rows",
    [
        [[0.0, 0.0], [0.0, 0.0]],  # of a network at its start
        [[0.2, 0.9], [0.6, 0.1]],  # in [0, 1], and do not sum to 1
        [[0.3, 0.7], [0.3, 0.8]],  # one that does
        [[1.5, -0.5], [0.5, 0.5]],  # sum to 1, and leave [0, 1]
        [[1.0], [1.0]],  # one column is sure either way
        [[-0.1, -2.4]],  # log-probabilities
        [[float("-inf"), 0.0]],
        [[float("nan"), 0.0]],
    ],
)
def test_logits_are_not_taken_for_probabilities(rows):
    assert not are_probabilities(tensor(rows))


@pytest.mark.parametrize(
    "rows", [[[0.5, 0.5]], [[1.0, 0.0], [0.0, 1.0]], [[0.3, 0.3, 0.4]], [[0.333, 0.333, 0.333]]]
)
def test_one_row_uniform_rows_and_sure_ones_are_probabilities(rows):
    assert are_probabilities(tensor(rows))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_probabilities_are_found_in_every_precision(dtype):
    assert are_probabilities(LOGITS.to(dtype).softmax(1))


def test_what_is_missing_or_too_much_is_named():
    with pytest.raises(ValueError, match=r"give logits, or probabilities as probs=.*got neither"):
        metrics.ece(labels=LABELS)
    with pytest.raises(ValueError, match="got both"):
        metrics.ece(LOGITS, LABELS, probs=PROBS)
    with pytest.raises(ValueError, match="labels are missing"):
        metrics.ece(probs=PROBS)
    with pytest.raises(ValueError, match=r"sum to 1, to within 0.001; row 0 sums to 2"):
        metrics.ece(probs=2 * PROBS, labels=LABELS)


def test_gradients_reach_probabilities_and_are_finite_at_zero():
    probs = tensor([[1.0, 0.0], [0.4, 0.6]], requires_grad=True)
    metrics.nll(probs=probs, labels=tensor([0, 1])).backward()
    assert probs.grad.isfinite().all() and probs.grad[1, 1] != 0


def test_an_interval_looks_through_a_function_of_ones_own():
    def refinement(logits, labels):
        return metrics.brier_split(logits, labels).refinement

    with pytest.raises(ValueError, match="logits are probabilities"):
        metrics.confidence_interval(refinement, PROBS, LABELS, samples=2)
    interval = metrics.confidence_interval(
        metrics.classwise_ece, probs=PROBS, labels=LABELS, samples=2
    )
    assert interval.value == metrics.classwise_ece(probs=PROBS, labels=LABELS)


@pytest.mark.parametrize("score", [metrics.auroc_ood, metrics.fpr95_ood])
def test_out_of_distribution_scores_check_both_sets(score):
    for sets in ({"probs": 100 * PROBS, "ood_probs": PROBS}, {"probs": PROBS, "ood_probs": LOGITS}):
        with pytest.raises(ValueError, match="probs must be rows of numbers"):
            score(**sets)


def test_calibrators_check_probabilities():
    percentages = 100 * PROBS
    with pytest.raises(ValueError, match="these are percentages"):
        Temperature().fit(probs=percentages, labels=LABELS)

    fitted = Temperature().fit(probs=PROBS, labels=LABELS)
    for call in (fitted.predict_proba, fitted.transform):
        with pytest.raises(ValueError, match="these are percentages"):
            call(probs=percentages)
