"""Bootstrap intervals: seeded, equal to plain resampling, and covering what they should."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import poisson
from torch import tensor

from toosure import metrics
from toosure.metrics.binned import BinSums, error_of
from toosure.metrics.bootstrap_cells import error_with_fixed_signs
from toosure.metrics.mean_interval import group_values


def rows(n=400, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, 4, generator=generator, dtype=torch.float64) * 2
    labels = torch.multinomial((logits / 1.5).softmax(1), 1, generator=generator).squeeze(1)
    return logits, labels


VECTORISED = [
    metrics.accuracy,
    metrics.aurc,
    metrics.auroc_misclass,
    metrics.binary_entropy,
    metrics.brier,
    metrics.debiased_ece,
    metrics.ece,
    metrics.entropy,
    metrics.mce,
    metrics.nll,
    metrics.rmsce,
]


@pytest.mark.parametrize("metric", VECTORISED, ids=lambda m: m.__name__)
@pytest.mark.parametrize("n", [300, 3000])  # rows themselves, and cells of rows
def test_vectorised_is_plain_resampling(metric, n):
    """The same distribution as calling the metric on resampled rows: means and spreads agree."""
    logits, labels = rows(n)
    fast = metrics.confidence_interval(metric, logits, labels, samples=1000, method="percentile")
    rng = np.random.default_rng(1)
    drawn = [
        float(metric(logits[i], labels[i]))
        for i in (torch.from_numpy(rng.integers(n, size=n)) for _ in range(150))
    ]
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert float(fast.value) == float(metric(logits, labels))
    noise = 0.35 * (high - low)  # what 150 resamples leave uncertain
    assert float(fast.low) == pytest.approx(low, abs=noise)
    assert float(fast.high) == pytest.approx(high, abs=noise)


@pytest.mark.parametrize("crowd", [4e-4, 1e-9])
@pytest.mark.parametrize("metric", [metrics.auroc_misclass, metrics.aurc], ids=lambda m: m.__name__)
def test_rankings_where_confidences_crowd_near_one(metric, crowd):
    rng = np.random.default_rng(0)
    doubt = rng.random(4000)
    correct = tensor(rng.random(4000) < 0.9 - 0.4 * doubt)
    logits = torch.stack([-tensor(crowd * doubt).log(), torch.zeros(4000).double()], 1)
    labels = (~correct).long()
    interval = metrics.confidence_interval(metric, logits, labels, method="percentile")
    picks = (torch.from_numpy(rng.integers(4000, size=4000)) for _ in range(200))
    low, high = np.quantile([float(metric(logits[i], labels[i])) for i in picks], [0.025, 0.975])
    assert float(interval.value) == float(metric(logits, labels))
    assert float(interval.low) == pytest.approx(low, abs=0.25 * (high - low))
    assert float(interval.high) == pytest.approx(high, abs=0.25 * (high - low))


def spread(interval):
    return float(interval.high - interval.low)


@pytest.mark.parametrize("jitter", [0.0, 1e-3])  # two distinct losses, and all distinct
@pytest.mark.parametrize("metric", [metrics.nll, metrics.brier, metrics.accuracy])
def test_rare_large_losses_keep_their_spread(metric, jitter):
    n, wrong = 100_000, 10
    logits = torch.zeros(n, 2, dtype=torch.float64)
    noise = torch.rand(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits[:, 0] = 10 + jitter * noise
    labels = (torch.arange(n) < wrong).long()
    interval = metrics.confidence_interval(metric, logits, labels)
    loss = {metrics.nll: 10.0, metrics.brier: 2.0, metrics.accuracy: 1.0}[metric]
    low, high = poisson(wrong).ppf([0.025, 0.975])  # how many of the wrong rows are drawn
    assert spread(interval) == pytest.approx((high - low) * loss / n, rel=0.15)


def test_many_large_losses_keep_their_spread():
    values = torch.cat([torch.rand(95_000), 10 + torch.rand(5_000)]).double()
    levels, counts = group_values(values)
    assert len(levels) <= 512 and int(counts.sum()) == 100_000
    assert float(counts @ levels) == pytest.approx(float(values.sum()))
    variance = counts @ (levels - values.mean()).square() / 100_000
    assert float(variance) == pytest.approx(float(values.var(correction=0)), rel=1e-12)


def test_each_class_has_its_own_interval():
    logits, labels = rows(200)
    options = {"samples": 100, "method": "percentile"}
    every = metrics.confidence_interval(
        metrics.classwise_ece, logits, labels, reduction="none", **options
    )
    assert every.low.shape == every.high.shape == (4,)

    def second(logits, labels):
        return metrics.classwise_ece(logits, labels, reduction="none")[1]

    alone = metrics.confidence_interval(second, logits, labels, **options)
    assert float(every.low[1]) == float(alone.low) and float(every.high[1]) == float(alone.high)


@pytest.mark.parametrize("name", ["ece", "rmsce", "mce", "adaptive_ece"])
def test_no_gap_at_all_is_not_certain(name):
    confidence, correct = torch.full((1000,), 0.75).double(), torch.arange(1000) < 750
    value, low, high = metrics.confidence_interval_from_confidence(
        getattr(metrics, f"{name}_from_confidence"), confidence, correct
    )
    assert (float(value), float(low)) == (0, 0)
    assert float(high) == pytest.approx(2.24 * np.sqrt(0.75 * 0.25 / 1000), rel=0.1)  # of |N(0, 1)|


def test_one_bin_without_a_gap_adds_its_noise():
    confidence = tensor([0.75, 0.9]).double().repeat_interleave(1000)
    correct = torch.cat([torch.arange(1000) < 750, torch.arange(1000) < 500])
    interval = metrics.confidence_interval_from_confidence(
        metrics.ece_from_confidence, confidence, correct
    )
    rows = confidence - correct.double()  # the error is their mean: both gaps count upwards
    noise = 1.96 * float(rows.std()) / np.sqrt(2000)
    assert float(interval.high - interval.value) == pytest.approx(noise, rel=0.1)


def test_the_largest_gap_is_not_below_the_mean_gap():
    """Its bin may hold a few rows that prove nothing; what all rows prove holds for it too."""
    generator = torch.Generator().manual_seed(0)
    confidence = 0.4 + 0.6 * torch.rand(1500, generator=generator).double()
    correct = torch.rand(1500, generator=generator) < confidence - 0.2
    confidence[:5], correct[:5] = 0.31, False
    mean, largest = (
        metrics.confidence_interval_from_confidence(metric, confidence, correct)
        for metric in (metrics.ece_from_confidence, metrics.mce_from_confidence)
    )
    assert 0.15 < mean.low <= largest.low <= largest.value


def test_any_metric_gets_an_interval():
    logits, labels = rows(60)

    def mine(logits, labels, power=1):
        return metrics.nll(logits, labels) ** power

    fast = metrics.confidence_interval(metrics.nll, logits, labels, samples=400)
    slow = metrics.confidence_interval(mine, logits, labels, samples=400, power=1)
    assert float(slow.high - slow.low) == pytest.approx(float(fast.high - fast.low), rel=0.3)
    for metric in (metrics.smece, metrics.mmce, metrics.classwise_ece, metrics.adaptive_ece):
        value, low, high = metrics.confidence_interval(metric, logits, labels, samples=30)
        assert low <= value <= high and value.isfinite()


def test_seed_decides():
    logits, labels = rows()
    first, again, other = (
        metrics.confidence_interval(metrics.ece, logits, labels, seed=s) for s in (0, 0, 1)
    )
    assert first == again and first.low != other.low


def test_options_reach_the_metric():
    logits, labels = rows()
    interval = metrics.confidence_interval(metrics.ece, logits, labels, bins=5, edge="left", norm=2)
    assert interval.value == metrics.ece(logits, labels, bins=5, edge="left", norm=2)


def test_ties_are_exact_cells():
    confidence = tensor([0.75]).repeat(5000).double()
    correct = torch.arange(5000) % 4 == 0  # accuracy 1/4: the error is a shifted binomial share
    interval = metrics.confidence_interval_from_confidence(
        metrics.ece_from_confidence, confidence, correct, samples=4000
    )
    half = 1.96 * np.sqrt(0.25 * 0.75 / 5000)
    assert float(interval.low) == pytest.approx(0.5 - half, abs=0.1 * half)
    assert float(interval.high) == pytest.approx(0.5 + half, abs=0.1 * half)


TRUE_ERRORS = [  # metric, n, true error: calibrated, nearly so, over-confident by 10 points
    ("ece", 100, 0.0, 89),  # of 100 at 95 %, fewer than 89 cover once in a hundred
    ("ece", 1000, 0.0, 89),
    ("ece", 500, 0.02, 89),
    ("ece", 500, 0.1, 89),
    ("adaptive_ece", 300, 0.0, 89),
    ("adaptive_ece", 300, 0.1, 89),
    ("rmsce", 500, 0.0, 89),
    ("rmsce", 500, 0.1, 89),
    ("mce", 1000, 0.0, 89),
    ("mce", 1000, 0.1, 75),  # documented: eight equal gaps, the largest is biased by their number
]


@pytest.mark.parametrize(("name", "n", "error", "least"), TRUE_ERRORS)
def test_coverage_of_a_known_error(name, n, error, least):
    """Rows right with probability confidence - error, so that every bin's true gap is the error."""
    metric, rng, covered = getattr(metrics, f"{name}_from_confidence"), np.random.default_rng(0), 0
    for _ in range(100):
        confidence = rng.uniform(0.5, 1.0, n).round(2)  # few levels: fast
        correct = rng.random(n) < confidence - error
        value, low, high = metrics.confidence_interval_from_confidence(
            metric, tensor(confidence), tensor(correct), samples=200
        )
        assert low <= value <= high
        covered += float(low) <= error <= float(high)
    assert covered >= least


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("name", ["ece", "smece", "adaptive_ece"])
def test_few_calibrated_rows_do_not_show_an_error(name, n):
    """A gate such as `ece > 0.05` must not fail by noise: of one row it did in most draws."""
    metric, rng, shown = getattr(metrics, f"{name}_from_confidence"), np.random.default_rng(0), 0
    for _ in range(60):
        confidence = rng.uniform(0.5, 1.0, n)
        value, low, high = metrics.confidence_interval_from_confidence(
            metric, tensor(confidence), tensor(rng.random(n) < confidence), samples=100
        )
        assert low <= value <= high and low < high
        shown += float(low) > 0.05
    assert shown <= 5  # 1.5 are expected at 97.5 %


def drawn_classes(n, seed, temperature=1.0):
    """Logits of 4 classes, and labels that are drawn at a temperature of their own."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, 4, generator=generator, dtype=torch.float64)
    labels = torch.multinomial((logits / temperature).softmax(1), 1, generator=generator)
    return logits, labels.squeeze(1)


@pytest.mark.parametrize(("n", "temperature", "error"), [(300, 1.0, 0.0), (1000, 1.5, 0.0510)])
def test_coverage_of_a_known_classwise_error(n, temperature, error):
    """The error at 1.5 is that of 4 million rows, of claimed against true probabilities."""
    held = 0
    for seed in range(40):
        value, low, high = metrics.confidence_interval(
            metrics.classwise_ece, *drawn_classes(n, seed, temperature), samples=100, seed=seed
        )
        assert 0 <= low <= value <= high <= 1
        held += float(low) <= error <= float(high)
    assert held >= 34  # of 40; 38 are expected at 95 %


def test_classwise_intervals_take_every_form():
    logits, labels = drawn_classes(200, 0)
    mean = metrics.confidence_interval(metrics.classwise_ece, logits, labels, samples=50)
    for options, factor in (({"reduction": "sum"}, 4), ({"edge": "left"}, 1)):
        other = metrics.confidence_interval(
            metrics.classwise_ece, logits, labels, samples=50, **options
        )
        wanted = [factor * float(each) for each in mean]
        assert [float(each) for each in other] == pytest.approx(wanted, abs=1e-9)

    of_probs = metrics.confidence_interval(
        metrics.classwise_ece, probs=logits.softmax(1), labels=labels, samples=50
    )
    assert [float(each) for each in of_probs] == pytest.approx([float(v) for v in mean], abs=1e-9)
    for norm in (1, 2, math.inf):
        each = metrics.confidence_interval(
            metrics.classwise_ece, logits, labels, samples=50, reduction="none", norm=norm
        )
        assert each.low.shape == (4,) and (each.low <= each.value).all()
        assert (each.value < each.high).all() and (each.high <= 1).all()


@pytest.mark.parametrize(("error", "true"), [(0.0, 0.0), (0.02, 0.0167), (0.1, 0.0834)])
def test_coverage_of_a_known_kernel_error(error, true):
    """The true values are those of 200,000 confidences whose residuals are the error."""
    rng, held = np.random.default_rng(0), 0
    for seed in range(40):
        confidence = rng.uniform(0.52, 1.0, 300)
        value, low, high = metrics.confidence_interval_from_confidence(
            metrics.mmce_from_confidence,
            tensor(confidence),
            tensor(rng.random(300) < confidence - error),
            samples=100,
            seed=seed,
        )
        assert 0 <= low <= value <= high
        held += float(low) <= true <= float(high)
    assert held >= 34


def test_intervals_end_where_the_metric_does():
    logits = torch.tensor([[4.0, 0.0]]).repeat(150, 1)
    labels = torch.zeros(150, dtype=torch.long)
    labels[0] = 1  # one wrong: the "basic" interval of the NLL went down to -0.06
    for metric in (metrics.nll, metrics.brier, metrics.entropy, metrics.mmce):
        for groups in (None, torch.arange(150) // 5):
            value, low, high = metrics.confidence_interval(
                metric, logits, labels, groups=groups, samples=50
            )
            assert 0 <= low <= value <= high, metric

    unsure_and_right, sure_and_wrong = torch.zeros(50, 1000), torch.zeros(50, 1000)
    unsure_and_right[:, 0], sure_and_wrong[:, 1] = 0.5, 20.0
    far_off = torch.cat([unsure_and_right, sure_and_wrong])
    of_two_sides = metrics.confidence_interval(
        metrics.mmce, far_off, torch.zeros(100, dtype=torch.long), weighted=True, samples=50
    )
    assert of_two_sides.value > 1 and of_two_sides.low <= of_two_sides.value <= of_two_sides.high


@pytest.mark.parametrize("metric", [metrics.dece, metrics.sece, metrics.kde_ece])
def test_errors_without_a_bound_have_no_ends_unless_asked_for(metric):
    logits, labels = rows(60)
    assert metrics.confidence_interval(metric, logits, labels).low.isnan()
    groups = torch.arange(60) // 6
    assert metrics.confidence_interval(metric, logits, labels, groups=groups).high.isnan()
    basic = metrics.confidence_interval(metric, logits, labels, samples=20, method="basic")
    assert 0 <= basic.low < basic.high


def test_a_single_row_has_no_interval_of_its_mean():
    one = metrics.confidence_interval(metrics.nll, torch.tensor([[2.0, -1.0]]), [0])
    assert one.value > 0 and one.low.isnan() and one.high.isnan()


def test_textbook_intervals_fail_at_zero():
    """Why "auto" exists: were one of these to cover 0 after all, it would not be needed."""
    rng, covered = np.random.default_rng(0), dict.fromkeys(("basic", "percentile"), 0)
    for _ in range(50):
        confidence = tensor(rng.uniform(0.5, 1.0, 500).round(2))
        correct = tensor(rng.random(500)) < confidence
        for method in covered:
            _, low, _ = metrics.confidence_interval_from_confidence(
                metrics.ece_from_confidence, confidence, correct, samples=200, method=method
            )
            covered[method] += float(low) == 0
    assert covered["basic"] < 42 and covered["percentile"] == 0


def test_a_clear_error_has_the_textbook_width():
    confidence = torch.full((4000,), 0.9, dtype=torch.float64)
    correct = torch.arange(4000) % 10 < 7
    for name in ("ece", "rmsce", "mce", "adaptive_ece"):
        metric = getattr(metrics, f"{name}_from_confidence")
        interval = metrics.confidence_interval_from_confidence(metric, confidence, correct)
        half = 1.96 * np.sqrt(0.7 * 0.3 / 4000)
        assert float(interval.low) == pytest.approx(0.2 - half, abs=0.1 * half)
        assert float(interval.high) == pytest.approx(0.2 + half, abs=0.1 * half)


@pytest.mark.parametrize("norm", [1, 2, float("inf")])
def test_the_error_along_its_gaps_is_exact_at_home_and_never_above(norm):
    def sums(*correct):
        counts = tensor([10, 20, 30, 40])
        return BinSums(counts, tensor(correct), counts * tensor([0.2, 0.4, 0.6, 0.8]).double())

    home = sums(5, 2, 25, 30)
    error = float(error_of(home, norm))
    assert float(error_with_fixed_signs(home, home, norm)) == pytest.approx(error, abs=1e-14)
    for other in (sums(1, 9, 10, 39), sums(6, 3, 20, 31)):
        assert error_with_fixed_signs(home, other, norm) <= error_of(other, norm)


@given(
    st.lists(st.tuples(st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]), st.booleans()), min_size=1),
    st.integers(1, 16),
)
@settings(max_examples=30, deadline=None)
def test_every_interval_holds_its_value(pairs, bins):
    confidence, correct = (tensor(each) for each in zip(*pairs, strict=True))
    for name in ("ece", "mce", "rmsce", "adaptive_ece", "debiased_ece", "aurc"):
        options = {} if name == "aurc" else {"bins": bins}
        value, low, high = metrics.confidence_interval_from_confidence(
            getattr(metrics, f"{name}_from_confidence"), confidence, correct, samples=20, **options
        )
        assert 0 <= low <= value <= high <= 1, name


def test_wrong_options():
    with pytest.raises(ValueError, match="method must be one of"):
        metrics.confidence_interval(metrics.ece, *rows(), method="magic")
    with pytest.raises(ValueError, match="samples must be a positive integer; got 0"):
        metrics.confidence_interval(metrics.ece, *rows(), samples=0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'bins'"):
        metrics.confidence_interval(metrics.nll, *rows(), bins=3)


def test_what_has_no_interval_is_named():
    logits, labels = rows()
    for metric in (metrics.auroc_ood, metrics.fpr95_ood):
        with pytest.raises(ValueError, match=f"{metric.__name__} compares two sets"):
            metrics.confidence_interval(metric, logits, logits)
    for metric, kind in ((metrics.nll_split, "Split"), (metrics.reliability, "Reliability")):
        with pytest.raises(ValueError, match=f"{metric.__name__} returns {kind}"):
            metrics.confidence_interval(metric, logits, labels)


def test_an_infinite_mean_has_no_interval():
    for n in (10, 5000):
        logits = torch.randn(n, 2, generator=torch.Generator().manual_seed(0))
        logits[0] = tensor([0.0, -torch.inf])
        interval = metrics.confidence_interval(metrics.nll, logits, torch.ones(n).long())
        assert interval.value == torch.inf and interval.low.isnan() and interval.high.isnan()


def nearly_separated(n=80, seed=0):
    """Logits of 3 classes that are told apart but for a few rows: an AUROC close to 1."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 3
    logits = 2.2 * torch.eye(3)[labels] + torch.randn(n, 3, generator=generator)
    return logits.double(), labels


@pytest.mark.parametrize("metric", [metrics.auroc_ovr, metrics.auroc_ovr_binned])
def test_areas_near_one_stay_below_it_and_hold_their_value(metric):
    logits, labels = nearly_separated()
    value, low, high = metrics.confidence_interval(metric, logits, labels, samples=100)
    assert 0.95 < value < 1 and 0 < low < value <= high <= 1
    basic = metrics.confidence_interval(metric, logits, labels, samples=100, method="basic")
    percentile = metrics.confidence_interval(metric, logits, labels, 0.95, 0, 100, "percentile")
    assert basic.high == 1  # cut off there
    assert low == pytest.approx(float(percentile.low)) and float(high) >= float(percentile.high)

    each = metrics.confidence_interval(metric, logits, labels, samples=50, reduction="none")
    assert each.high.shape == (3,) and (each.high <= 1).all() and (each.low <= each.value).all()
    of_groups = metrics.confidence_interval(
        metric, logits, labels, groups=torch.arange(80) // 4, samples=50
    )
    assert of_groups.low < value <= of_groups.high <= 1


@pytest.mark.slow
def test_the_interval_of_an_area_holds_the_truth_about_as_often_as_it_says():
    """The area of two normal classes a distance d apart is Phi(d / sqrt 2)."""
    held = 0
    truth = 0.5 * (1 + math.erf(2.4 / 2))
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        labels = torch.arange(60) % 2
        score = 2.4 * labels + torch.randn(60, generator=generator, dtype=torch.float64)
        logits = torch.stack([torch.zeros(60, dtype=torch.float64), score], 1)
        _, low, high = metrics.confidence_interval(
            metrics.auroc_ovr, logits, labels, seed=seed, samples=100
        )
        held += bool(low <= truth <= high)
    assert held >= 51  # of 60; 57 are expected at 95 %
