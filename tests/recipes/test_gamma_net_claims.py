"""The claims of the gamma-net recipe on scores whose verdicts are known."""

import pytest

from toosure.recipes import Setting
from toosure.recipes.gamma_net import ablations, comparison, sweeps
from toosure.recipes.prediction_scores import Scores

PAPER = Setting()


def scored(error, accuracy=0.9, n=3):
    return [Scores(accuracy, error, error, error, error, 1.0, 10_000)] * n


def scores_with(**others):
    """Return gamma-net at .01 and every other method at .02, but for `others`."""
    scores = {name: scored(0.02) for name in sweeps.METHODS} | {sweeps.OURS: scored(0.01)}
    return scores | others


def verdicts(claims):
    return [claim.passed for claim in claims]


def test_better_than_each_baseline_and_as_accurate():
    assert verdicts(comparison.claims(PAPER, scores_with())) == [True] * 4


def test_one_error_above_a_baseline_fails_that_claim():
    worse = [Scores(0.9, 0.01, 0.01, 0.021, 0.01, 1.0, 10_000)] * 3
    claims = comparison.claims(PAPER, scores_with(**{sweeps.OURS: worse}))
    assert verdicts(claims) == [False] * 3 + [True]
    claims = comparison.claims(PAPER, scores_with(focal=scored(0.005)))
    assert verdicts(claims) == [True, False, True, True]


def test_accuracy_may_be_a_point_lower_and_no_more():
    for loss, passed in ((0.009, True), (0.011, False)):
        ours = scored(0.01, accuracy=0.9 - loss)
        assert comparison.claims(PAPER, scores_with(**{sweeps.OURS: ours}))[-1].passed is passed


def test_nothing_is_judged_where_runs_are_missing():
    claims = comparison.claims(PAPER, scores_with(CE=scored(0.02, n=2)))
    assert verdicts(claims) == [None, True, True, None]
    assert claims[0].note == "1 of 6 runs missing or ended early"
    claims = comparison.claims(PAPER, scores_with(focal=[]))
    assert verdicts(claims) == [True, None, True, None] and claims[1].note == "no complete run"
    assert verdicts(comparison.claims(PAPER, scores_with(**{sweeps.OURS: []}))) == [None] * 4
    assert verdicts(comparison.claims(Setting(quick=True), scores_with())) == [None] * 4


@pytest.mark.parametrize(
    ("own", "noise", "passed"),
    [(0.01, 0.02, True), (0.02, 0.01, False), (0.01, None, None)],
)
def test_features_against_noise(own, noise, passed):
    of = {
        "penultimate": scored(own),
        "noise": [] if noise is None else scored(noise),
    }
    (claim,) = ablations.feature_claims(PAPER, of)
    assert claim.passed is passed


@pytest.mark.parametrize(
    ("auto", "passed"),
    [(scored(0.029), True), (scored(0.031), False), (scored(0.02, n=1), None), ([], None)],
)
def test_the_bandwidth_of_the_batch_against_fixed_ones(auto, passed):
    setting = Setting(data="cifar100", seeds=(0, 1, 2))
    of = {name: scored(0.05) for name in sweeps.BANDWIDTHS}
    of |= {"0.1": scored(0.02), "auto": auto}
    assert ablations.rule_claim(setting, of).passed is passed
    assert ablations.rule_claim(setting, {"auto": scored(0.02)}).note == "no complete run"
    assert ablations.fixed_claim(of).found == "ECE 2.00 to 5.00 points"
