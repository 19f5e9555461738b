"""A budget on a made-up clock: the share it promises, rows spread over the run, no bursts."""

import types
from itertools import pairwise

import pytest
import torch
from torch import nn

from toosure import Watch
from toosure.watch import background, rows
from toosure.watch.spacing import Spacing, TimeSpent
from toosure.watch.split import Observation, WatchedSplit

COLD, WARM, STEP = 2.0, 0.1, 0.01  # seconds
LATER = 0.04  # of a measurement, the part that can be deferred


@pytest.mark.parametrize("budget", [0.05, 0.3])
def test_budget_bounds_the_share(budget):
    spacing, seconds, measuring, cost, count, ended = Spacing(budget=budget), 1.0, 1.0, 1.0, 0, 1.0
    for step in range(1, 20_000):
        seconds += STEP
        if spacing.due(step, TimeSpent(seconds, measuring, cost, seconds - ended)):
            cost = 0.5 + (step % 3) * 0.1
            seconds, measuring, count = seconds + cost, measuring + cost, count + 1
            ended = seconds
    assert count > 2
    assert 0.7 * budget < measuring / seconds < budget + 0.02


@pytest.fixture
def clock(monkeypatch):
    """A clock that only measuring moves, the first time for longer, and whoever adds to `now`.

    What is worked out on the side takes as long as one waits for it: here, all of its time.
    """
    clock = types.SimpleNamespace(now=100.0, observations=0)
    clock.perf_counter = lambda: clock.now
    observe_now, row_values_now = WatchedSplit.observe, Observation.row_values

    def observe(self, logits):
        clock.now += (WARM if clock.observations else COLD) - LATER
        clock.observations += 1
        return observe_now(self, logits)

    def row_values(observation):
        clock.now += LATER
        return row_values_now(observation)

    class WhenAsked:
        """A background whose calls are made when their result is asked for."""

        def __init__(self, processes):
            pass

        def submit(self, call, here=False):
            return call

        def close(self):
            pass

    monkeypatch.setattr(background, "Background", WhenAsked)
    monkeypatch.setattr(rows, "time", clock)
    monkeypatch.setattr(WatchedSplit, "observe", observe)
    monkeypatch.setattr(Observation, "row_values", row_values)
    return clock


def watched(clock, steps, **settings):
    torch.manual_seed(0)
    data = torch.randn(20, 4), torch.arange(20) % 3
    watch = Watch(nn.Linear(4, 3), nn.CrossEntropyLoss(), data, measure=(), **settings)
    for _ in range(steps):
        clock.now += STEP
        watch.step()
    watch.flush()
    return watch


@pytest.mark.parametrize("defer", [False, True])
@pytest.mark.parametrize("budget", [0.05, 0.3])
def test_rows_are_spread_over_the_run(clock, budget, defer):
    watch = watched(clock, 20_000, budget=budget, defer=defer)
    steps = [row["step"] for row in watch.rows]
    gaps = [(b - a) * STEP for a, b in pairwise(steps)]
    known = COLD - defer * LATER  # of the cold one, before it is paid off
    assert gaps[0] == pytest.approx(known / budget - COLD, abs=2 * STEP + LATER)
    assert min(gaps[1:]) >= WARM * (1 - budget) / budget - STEP
    assert max(gaps[1:]) <= 2 * WARM * (1 - budget) / budget + 2 * STEP
    assert 0.9 * budget < watch.stopwatch.measuring / watch.seconds <= budget + WARM / watch.seconds


def test_the_time_spent_is_that_of_the_rows(clock):
    watch = watched(clock, 1000, budget=0.3)
    assert len(watch.rows) > 3
    assert watch.stopwatch.measuring == pytest.approx(
        sum(row["seconds_measuring"] for row in watch.rows)
    )
    assert watch.stopwatch.measuring == pytest.approx(COLD + WARM * (len(watch.rows) - 1))
    assert watch.last["seconds"] <= watch.seconds


def test_a_saving_is_not_spent_on_steps_in_a_row(clock):
    """After a pause in which nothing was measured, the next rows keep their distance."""
    watch = watched(clock, 1000, budget=0.3)
    clock.now += 1000.0
    before = len(watch.rows)
    for _ in range(100):
        clock.now += STEP
        watch.step()
    assert 1 <= len(watch.rows) - before <= 1 + 100 * STEP / (WARM * 0.7 / 0.3)
