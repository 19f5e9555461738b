"""Correlations of series: against scipy, regression residuals, closed forms and limits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from toosure.recipes.series import (
    block_interval,
    correlate,
    mean_and_std,
    mean_std_text,
    partial,
    pearson,
    row_pearson,
    spearman,
)


def three(seed, n=80):
    generator = np.random.default_rng(seed)
    c = generator.normal(size=n).cumsum()
    return c + generator.normal(size=n), -0.5 * c + generator.normal(size=n), c


@given(st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_pearson_and_spearman_are_scipys(seed):
    a, b, _ = three(seed)
    a = np.round(a, 1)  # ties
    assert pearson(a, b) == pytest.approx(stats.pearsonr(a, b).statistic)
    assert spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic)


@given(st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_partial_is_the_correlation_of_residuals(seed):
    a, b, c = three(seed)
    design = np.stack([np.ones_like(c), c], 1)
    rest = [x - design @ np.linalg.lstsq(design, x, rcond=None)[0] for x in (a, b)]
    assert partial(a, b, c) == pytest.approx(stats.pearsonr(*rest).statistic)


def test_partial_takes_a_common_trend_away():
    """Two series that share only a trend: r is near one, partial r given the trend near zero."""
    generator = np.random.default_rng(0)
    trend = np.linspace(0, 100, 2000)
    a, b = trend + generator.normal(size=2000), trend + generator.normal(size=2000)
    assert pearson(a, b) > 0.99
    assert abs(partial(a, b, trend)) < 3 / np.sqrt(2000)
    result = correlate(a, b, trend)
    assert abs(result.differences) < 3 / np.sqrt(2000)


def test_differences_of_a_line_and_a_parabola():
    t = np.arange(10.0)
    result = correlate(t**2, t**3, np.cos(t))
    changes = stats.pearsonr(2 * t[:-1] + 1, 3 * t[:-1] ** 2 + 3 * t[:-1] + 1).statistic
    assert result.differences == pytest.approx(changes)
    assert result.spearman == pytest.approx(1) and result.rows == 10


def test_rows_that_are_not_finite_are_left_out():
    a, b, c = three(1)
    short = correlate(a[1:], b[1:], c[1:])
    a[0] = np.nan
    assert correlate(a, b, c) == short
    b[-1] = np.inf
    assert correlate(a, b, c).rows == len(a) - 2


def test_what_never_changes_has_no_correlation():
    flat = np.ones(10)
    assert np.isnan(pearson(flat, np.arange(10.0)))
    assert np.isnan(partial(np.arange(10.0), np.arange(10.0), np.arange(10.0)))
    assert np.isnan(block_interval(flat, np.arange(10.0))).all()
    assert np.isnan(pearson(np.arange(2.0), np.arange(2.0)))


def test_row_pearson_is_pearson_of_each_row():
    generator = np.random.default_rng(0)
    a, b = generator.normal(size=(5, 30)), generator.normal(size=(5, 30))
    expected = [pearson(*pair) for pair in zip(a, b, strict=True)]
    np.testing.assert_allclose(row_pearson(a, b), expected)
    assert np.isnan(row_pearson(np.ones((1, 4)), np.ones((1, 4)))).all()


# -- the block bootstrap --------------------------------------------------------------------


def test_blocks_of_one_row_give_fishers_interval_on_independent_rows():
    """tanh(atanh r ± 1.96 / sqrt(n - 3)), Fisher (1921), for normal pairs."""
    generator = np.random.default_rng(3)
    n, rho = 2000, 0.6
    a = generator.normal(size=n)
    b = rho * a + np.sqrt(1 - rho**2) * generator.normal(size=n)
    low, high = block_interval(a, b, block=1, resamples=4000)
    middle, half = np.arctanh(pearson(a, b)), 1.959964 / np.sqrt(n - 3)
    width = np.tanh(middle + half) - np.tanh(middle - half)
    assert low == pytest.approx(np.tanh(middle - half), abs=0.15 * width)
    assert high == pytest.approx(np.tanh(middle + half), abs=0.15 * width)


def test_one_block_of_all_rows_only_turns_the_series_round():
    a, b, _ = three(5)
    assert block_interval(a, b, block=len(a)) == pytest.approx((pearson(a, b),) * 2)


def test_blocks_widen_the_interval_of_series_that_resemble_their_neighbours():
    """Averages over 25 rows leave n / 25 independent pairs: about 5 times the width."""
    generator = np.random.default_rng(7)
    kernel = np.ones(25) / 25
    a, b = (np.convolve(generator.normal(size=4000), kernel, "valid") for _ in range(2))
    narrow, wide = (np.ptp(block_interval(a, b, block=size)) for size in (1, 200))
    assert wide > 2.5 * narrow


def test_the_interval_is_seeded():
    a, b, _ = three(2)
    assert block_interval(a, b, seed=1) == block_interval(a, b, seed=1)
    assert block_interval(a, b, seed=1) != block_interval(a, b, seed=2)


def test_spread_is_the_sample_deviation_and_says_nothing_of_one_value():
    assert mean_and_std([0.1, 0.4, np.nan]) == pytest.approx((0.25, np.std([0.1, 0.4], ddof=1)))
    assert mean_std_text([]) == "–" and mean_std_text([np.nan, 2.0], ".1f") == "2.0"
