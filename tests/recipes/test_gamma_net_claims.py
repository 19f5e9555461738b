"""The claims of the gamma-net recipe on scores whose verdicts are known."""

import pytest
from made_up_scores import residual_row

from toosure.recipes import Setting
from toosure.recipes.benchmark.scored_rows import ScoredRow
from toosure.recipes.gamma_net import ablations, comparison, sweeps
from toosure.recipes.gamma_net.rows import OURS

PAPER = Setting()
SEEDS = 3


def scored(error, accuracy=0.9, n=SEEDS, **others):
    """Return a row with n of three runs; errors are in points."""
    errors = (error,) * n
    return residual_row("a row", *errors, accuracy=accuracy, expected=SEEDS, **others)


def rows_with(**others):
    """Return gamma-net at 1 point and every other method at 2, but for `others`."""
    rows = {name: scored(2) for name in sweeps.METHODS} | {OURS: scored(1)}
    return rows | others


def verdicts(claims):
    return [claim.passed for claim in claims]


def test_better_than_each_baseline_and_as_accurate():
    assert verdicts(comparison.claims(PAPER, rows_with())) == [True] * 4


def test_one_error_above_a_baseline_fails_that_claim():
    worse = scored(1, adaptive_ece=2.1)
    claims = comparison.claims(PAPER, rows_with(**{OURS: worse}))
    assert verdicts(claims) == [False] * 3 + [True]
    claims = comparison.claims(PAPER, rows_with(focal=scored(0.5)))
    assert verdicts(claims) == [True, False, True, True]


def test_accuracy_may_be_a_point_lower_and_no_more():
    for loss, passed in ((0.009, True), (0.011, False)):
        ours = scored(1, accuracy=0.9 - loss)
        assert comparison.claims(PAPER, rows_with(**{OURS: ours}))[-1].passed is passed


def test_nothing_is_judged_where_runs_are_missing():
    claims = comparison.claims(PAPER, rows_with(CE=scored(2, n=2)))
    assert verdicts(claims) == [None, True, True, None]
    assert claims[0].note == "1 of 6 runs missing or ended early"
    claims = comparison.claims(PAPER, rows_with(focal=scored(2, n=0)))
    assert verdicts(claims) == [True, None, True, None] and claims[1].note == "no complete run"
    assert verdicts(comparison.claims(PAPER, rows_with(**{OURS: scored(1, n=0)}))) == [None] * 4
    assert verdicts(comparison.claims(Setting(quick=True), rows_with())) == [None] * 4


@pytest.mark.parametrize(
    ("own", "noise", "passed"),
    [
        (scored(1), scored(2), True),
        (scored(2), scored(1), False),
        (scored(1), scored(2, n=2), None),
        (scored(1), scored(2, n=0), None),
    ],
)
def test_features_against_noise(own, noise, passed):
    claim = ablations.feature_claim(PAPER, {"penultimate": own, "noise": noise})
    assert claim.passed is passed


@pytest.mark.parametrize(
    ("auto", "passed"),
    [(scored(2.9), True), (scored(3.1), False), (scored(2, n=1), None), (scored(2, n=0), None)],
)
def test_the_bandwidth_of_the_batch_against_fixed_ones(auto, passed):
    setting = Setting(data="cifar100", seeds=(0, 1, 2))
    rows = {name: scored(5) for name in sweeps.BANDWIDTHS}
    rows |= {"0.1": scored(2), "auto": auto}
    assert ablations.rule_claim(setting, rows).passed is passed
    assert ablations.rule_claim(setting, {"auto": scored(2)}).note == "no complete run"
    assert ablations.fixed_claim(rows).found == "ECE 2.00 to 5.00 points"


def test_gamma_at_the_end_and_how_often_it_collapsed():
    def rows(gamma, collapsed):
        ends = {"objective/gamma_mean": gamma, "objective/gamma_collapsed": collapsed}
        return [{**ends, "objective/gamma_mean": 1.0, "objective/gamma_collapsed": 1.0}, ends]

    first = residual_row("noise", 1, rows=rows(2.0, 0.0))
    second = residual_row("noise", 1, rows=rows(4.0, 1.0))
    assert ablations.gamma_text(first) == "2.00"
    both = ScoredRow(first.row, first.records + second.records)
    assert ablations.gamma_text(both) == "3.00 ± 1.41, collapsed in 1 of 2"
