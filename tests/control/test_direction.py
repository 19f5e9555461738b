"""Where the actuator works the wrong way round: the controller notices, goes back, and says so."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from toosure.control import (
    DirectionGuard,
    Integrator,
    Radius,
    RadiusControl,
    Reading,
    log_temperature,
)
from toosure.control.integrator import PATIENCE
from toosure.control.sensor import WORSE
from toosure.optim import SAM
from toosure.runs.row_warnings import row_warnings

LOOKS = 115
LIMIT = WORSE["log_temperature"]


def steered(slope, drift=0.0, start=0.4, seed=0, jitter=0.03):
    """An integrator after a run on a lagged plant, whose disturbance rises over the last half."""
    draws = np.random.default_rng(seed).normal(0, jitter, LOOKS)
    span = math.log(200)
    integrator = Integrator(low=-span, high=span, direction=DirectionGuard(LIMIT))
    error = start
    for look in range(LOOKS):
        progress = (look + 1) / LOOKS
        position = integrator.update(Reading(error + draws[look], 0.02, 0.9, 0.01), progress)
        rise = drift * max(0.0, 2 * progress - 1)
        error = 0.8 * error + 0.2 * (start + rise - slope * position)
    return integrator


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("slope", [-0.2, -0.5])
def test_a_plant_of_the_wrong_sign_is_left_where_it_began(slope, sign):
    """Too sure, and surer by every move; or not sure enough, and less so by every move."""
    integrator = steered(slope, start=0.4 * sign)
    assert integrator.gave_up
    assert integrator.position == 0.0 and integrator.acted == 0
    assert integrator.direction.way == sign


def test_without_the_guard_it_runs_to_its_bound():
    integrator = Integrator(high=math.log(200))
    error = 0.4
    for look in range(LOOKS):
        error = 0.4 + 0.2 * integrator.update(Reading(error, 0.02, 0.9, 0.01), look / LOOKS)
    assert integrator.at_bound and error > 1


@pytest.mark.parametrize("slope", [0.12, 0.25])
@pytest.mark.parametrize(("start", "drift"), [(0.25, 0.05), (0.05, 0.43), (-0.2, 0.6)])
def test_a_drift_is_not_taken_for_a_plant_of_the_wrong_sign(slope, start, drift):
    """The slopes of the benchmark's fixed radii, and drifts up to what SGD shows there."""
    ends = [steered(slope, drift, start, seed) for seed in range(50)]
    assert not any(end.gave_up for end in ends)
    assert all(end.position > 0.2 for end in ends)


def test_a_radius_that_works_too_little_is_left_as_well():
    """What the guard cannot tell, and docs/control.md says."""
    assert all(steered(0.12, drift=1.2, start=0.05, seed=seed).gave_up for seed in range(50))


def test_a_radius_is_asked_only_after_a_factor_of_four():
    guard = DirectionGuard(LIMIT)
    guard.update(Reading(0.1, 0.02, 0.9, 0.01), 0.0)
    guard.follow(0.0, math.log(3.9))
    worse = Reading(2.0, 0.02, 0.9, 0.01)
    assert not any(guard.update(worse, math.log(3.9)) for _ in range(20))
    assert guard.update(worse, math.log(4.1))
    assert not guard.update(Reading(math.nan, math.inf, 0.9, 0.01), math.log(4.1))


def test_a_growth_within_two_standard_errors_is_noise():
    guard = DirectionGuard(LIMIT)
    guard.update(Reading(0.1, 0.5, 0.9, 0.01), 0.0)
    guard.follow(0.0, 2.0)
    assert not any(guard.update(Reading(1.0, 0.5, 0.9, 0.01), 2.0) for _ in range(50))
    assert guard.update(Reading(1.0, 0.1, 0.9, 0.01), 2.0)


def test_a_turn_is_measured_from_the_error_there():
    """Smoothed, the error still has the other sign at a turn: its lag is no growth."""
    integrator = Integrator(direction=DirectionGuard(LIMIT))
    errors = []
    for look in range(LOOKS):
        errors.append((-0.5 if look < 10 else 0.3) - 0.15 * integrator.position)
        integrator.update(Reading(errors[-1], 0.02, 0.8, 0.01), (look + 1) / LOOKS)
    assert max(np.diff(errors[10:])) <= 0 and errors[10] > 0.4  # the radius works
    assert not integrator.gave_up and abs(errors[-1]) < 0.05


def test_moves_the_other_way_begin_anew():
    guard = DirectionGuard(LIMIT)
    for error, before, after in [(0.1, 0.0, 1.0), (0.5, 1.0, 2.0), (-0.1, 2.0, 1.9)]:
        guard.update(Reading(error, 0.02, 0.9, 0.01), before)
        guard.follow(before, after)
    assert (guard.way, guard.turn) == (-1, 2.0)
    assert guard.level_then == guard.level


def test_the_state_is_kept():
    whole, resumed = Integrator(direction=DirectionGuard(LIMIT)), None
    for look in range(60):
        reading = Reading(0.2 + 0.1 * look, 0.02, 0.9, 0.01)
        whole.update(reading, look / 60)
        if resumed is not None:
            resumed.update(reading, look / 60)
        if look == 3:
            assert not whole.gave_up and whole.position > 0
            resumed = Integrator(direction=DirectionGuard(LIMIT))
            resumed.load_state_dict(whole.state_dict())
    assert whole.gave_up and resumed.state_dict() == whole.state_dict()
    assert "last" not in whole.direction.state_dict()  # each look sets it, and older states lack it


# -- a network that does not learn ----------------------------------------------------------------


def test_where_nothing_is_learned_the_actuator_falls_as_fast_as_it_may():
    integrator = Integrator(rate=1.5, low=-1.0, final_band=0.0)
    nothing = Reading(math.inf, math.inf, 0.1, 0.01)
    positions = [integrator.update(nothing, 1.0) for _ in range(PATIENCE + 4)]
    assert positions[: PATIENCE - 1] == [0.0] * (PATIENCE - 1)  # a slow start is no failure
    assert positions[PATIENCE - 1] == pytest.approx(-math.log(1.5))
    assert positions[-1] == -1.0  # its bound
    assert not integrator.gave_up

    integrator.update(Reading(0.0, 0.02, 0.3, 0.01), 1.0)
    assert integrator.update(nothing, 1.0) == -1.0 and integrator.by_chance == 1


def test_a_look_that_may_be_chance_raises_nothing_and_counts_as_one():
    integrator = Integrator()
    vague = Reading(4.0, 1.2, 0.1, 0.01)  # three standard errors above 0, but 1/T may be 0
    positions = [integrator.update(vague, 0.0) for _ in range(PATIENCE)]
    assert positions == pytest.approx([0.0] * (PATIENCE - 1) + [-math.log(1.5)])

    integrator = Integrator(gain=0.1)  # one that is not sure enough is no such network
    assert integrator.update(Reading(-2.0, 0.6, 0.1, 0.01), 0.0) == pytest.approx(-0.2)
    assert integrator.by_chance == 0


def test_the_guard_undoes_a_rise_to_chance_but_no_fall_at_chance():
    integrator = Integrator(gain=0.5)
    integrator.update(Reading(0.4, 0.02, 0.9, 0.01), 0.0)
    assert integrator.update(Reading(math.inf, math.inf, 0.1, 0.01), 0.0) == 0.0

    integrator = Integrator()
    accuracies = [0.11] * PATIENCE + [0.09]  # noise, but twice the standard error
    readings = [Reading(math.inf, math.inf, accuracy, 0.002) for accuracy in accuracies]
    positions = [integrator.update(reading, 0.0) for reading in readings]
    assert positions[PATIENCE - 1 :] == pytest.approx([-math.log(1.5), -2 * math.log(1.5)])
    assert integrator.acted == -1 and not integrator.resting


def test_a_fall_by_chance_is_no_way_that_could_be_wrong():
    integrator = Integrator(direction=DirectionGuard(LIMIT))
    integrator.update(Reading(0.5, 0.1, 0.1, 0.01), 0.0)
    for _ in range(20):
        integrator.update(Reading(math.inf, math.inf, 0.1, 0.01), 0.0)
    low = integrator.position
    for _ in range(5):
        integrator.update(Reading(-0.6, 0.05, 0.2, 0.01), 0.0)
    assert not integrator.gave_up and integrator.position < low < -math.log(4)


def test_where_all_is_right_nothing_moves():
    integrator = Integrator(final_band=0.0)
    assert integrator.update(Reading(-math.inf, math.inf, 1.0, 0.0), 1.0) == 0.0


def test_the_sensor_tells_nothing_learned_from_all_right():
    labels = torch.arange(30) % 3
    right = 5.0 * nn.functional.one_hot(labels, 3)
    assert log_temperature(right, labels) == (-math.inf, math.inf)
    assert log_temperature(-right, labels) == (math.inf, math.inf)
    unknown = log_temperature(right * math.nan, labels)
    assert unknown == (0.0, math.inf)


# -- in a loop of one's own -----------------------------------------------------------------------


def control_of(logits_at, **settings):
    """A controller around a network whose logits are made up, look by look."""
    model = nn.Linear(2, 2)
    optimizer = SAM(model.parameters(), rho=0.05, lr=0.1)
    data = (torch.randn(400, 2), torch.arange(400) % 2)
    looks = iter(range(1000))
    # Of the rows, 80 % are right; how sure the network is of all of them is `logits_at` a look.
    sign = torch.where(torch.arange(400) % 5 == 0, -1.0, 1.0) * (2.0 * data[1] - 1)

    def predict(_):
        size = logits_at(next(looks))
        return torch.stack([-sign * size / 2, sign * size / 2], 1)

    settings = Radius(every=1, start=0.0, **settings)
    control = RadiusControl(model, optimizer, data, 100, settings, predict=predict)
    return control, optimizer


def take(control, steps):
    for _ in range(steps):
        control.step()


def test_giving_up_is_said_once_and_stands_in_the_row():
    control, optimizer = control_of(lambda look: 2.0 * 1.1**look)
    said = r"control gives up: rho went from 0\.05 to .*surer.*or too little"
    with pytest.warns(UserWarning, match=said):
        take(control, 60)
    assert control.report()["control/gave_up"] == 1
    assert float(optimizer.param_groups[0]["rho"]) == pytest.approx(0.05)
    take(control, 30)  # nothing more is said: a warning is an error here


def test_where_the_radius_works_nothing_is_said():
    control, _ = control_of(lambda look: 1.6)
    take(control, 60)
    assert "control/gave_up" not in control.report()


def test_a_run_that_ends_at_its_bound_says_so():
    control, _ = control_of(lambda look: 3.0, guard=math.inf)
    with pytest.warns(UserWarning, match=r"ended at its bound \(rho 10\)"):
        take(control, 100)


def test_a_run_that_ends_calibrated_at_its_bound_says_nothing():
    right = math.log(4)  # of 80 %
    control, _ = control_of(lambda look: 3.0 if look < 60 else right, guard=math.inf)
    take(control, 100)  # a warning is an error here
    assert control.report()["control/at_bound"] == 1


def test_a_run_that_ends_far_outside_its_band_says_how_far_and_what_helps():
    control, _ = control_of(lambda look: 3.0, gain=0.001)
    said = (
        r"too sure by 0\.77, [\d.]+ standard errors, where 2 are left alone.*a larger start, final_"
    )
    with pytest.warns(UserWarning, match=said):
        take(control, 100)
    unsure, _ = control_of(lambda look: 0.5, gain=0.001, final_band=0)
    with pytest.warns(UserWarning, match="not sure enough by .*a smaller start, or fit"):
        take(unsure, 100)


def test_a_run_that_ends_near_its_band_says_nothing():
    """Within two further standard errors; and after it gave up, which was said then."""
    right = math.log(4)
    control, _ = control_of(lambda look: 1.25 * right if look > 50 else right, gain=0.001)
    take(control, 100)  # a warning is an error here
    last = control.reading
    assert 2 < last.error / last.standard_error < 4


@pytest.mark.parametrize(
    ("last", "has_ended", "told"),
    [
        ({"log_temperature": 0.51}, True, True),
        ({"log_temperature": 0.51}, False, False),  # it goes on
        ({"log_temperature": -0.51}, True, True),
        ({"log_temperature": 0.4}, True, False),
        ({"gap": 0.51, "gave_up": 1}, True, False),
        ({}, True, False),
    ],
)
def test_rows_tell_of_an_end_outside_the_band(last, has_ended, told):
    row = {"standard_error": 0.11, "band": 2.0, "at_bound": 0, "examples": 500} | last
    row = {f"control/{key}": value for key, value in row.items()}
    assert any("dead band" in each for each in row_warnings({}, row, has_ended)) is told
