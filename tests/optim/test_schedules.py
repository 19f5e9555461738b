"""Schedules: no setting that raises the rate, turns its sign or does nothing."""

import pytest

from toosure.optim.schedules import Constant, Cosine, StepDecay
from toosure.words import parse


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("constant:warmup=-3", "warmup is a number of steps, at least 0; got -3"),
        ("cosine:warmup=-1", "at least 0"),
        ("step:warmup=-1", "at least 0"),
        ("cosine:final=-1", "final is a share of the rate, from 0 to below 1; got -1"),
        ("cosine:final=1", "below 1"),
        ("step:factor=-1", "factor makes the rate smaller, between 0 and 1; got -1"),
        ("step:factor=10", "between 0 and 1; got 10"),
        ("step:at=1000", "shares of the run, between 0 and 1; write 0.5:0.75; got"),
        ("step:at=0.5:1.5", "shares of the run"),
        ("step:at=()", "shares of the run"),
    ],
)
def test_settings_that_ascend_or_do_nothing(word, message):
    with pytest.raises(ValueError, match=message):
        parse("schedule", word).build()


@pytest.mark.parametrize(
    "schedule", [Constant(warmup=3), StepDecay((0.3, 0.9), 0.5, 2), Cosine(0.1), Cosine(warmup=5)]
)
def test_a_rate_stays_within_its_bounds_and_falls_after_the_warm_up(schedule):
    rates = [schedule(step, 20) for step in range(20)]
    assert all(0 < rate <= 1 for rate in rates)
    after = rates[schedule.warmup :]
    assert after == sorted(after, reverse=True)
