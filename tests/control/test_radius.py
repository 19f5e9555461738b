"""Radius control in a loop of one's own: two lines, any optimizer with a radius, a saved state."""

import math

import pytest
import torch
from torch import nn

from toosure.control import Radius, RadiusControl, Reading
from toosure.losses import FocalLoss
from toosure.optim import CSAM, SAM

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(240, 5, generator=GENERATOR)
Y = (X[:, :3] + 1.5 * torch.randn(240, 3, generator=GENERATOR)).argmax(1)  # hard to learn
TRAIN, CONTROL = (X[:80], Y[:80]), (X[80:], Y[80:])
NO_GUARD = {"guard": math.inf, "start": 0.0}


class ForeignSAM(torch.optim.SGD):
    """Stands for any optimizer from elsewhere that keeps a radius in its groups."""

    def __init__(self, params, rho):
        super().__init__(params, lr=0.2)
        for group in self.param_groups:
            group["rho"] = rho


def own_loop(steps=60, stop=None, state=None, **settings):
    """Train a small network that over-fits; return it with its optimizer and controller."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 3))
    optimizer = SAM(model.parameters(), rho=0.05, lr=0.3)
    criterion = nn.CrossEntropyLoss()
    settings = Radius(every=5, **(NO_GUARD | settings))
    control = RadiusControl(model, optimizer, CONTROL, steps=steps, settings=settings)
    if state is not None:
        for part, saved in zip((model, optimizer, control), state, strict=True):
            part.load_state_dict(saved)

    def closure():
        loss = criterion(model(TRAIN[0]), TRAIN[1])
        loss.backward()
        return loss

    while control.steps_taken < (stop or steps):
        optimizer.step(closure)
        control.step()
    return model, optimizer, control


def test_an_overconfident_network_raises_its_radius():
    _, optimizer, control = own_loop()
    numbers = control.report()
    assert numbers["control/log_temperature"] > 2 * numbers["control/standard_error"]
    assert numbers["control/acted"] == 1
    assert numbers["control/rho"] == optimizer.param_groups[0]["rho"] > 0.1


def test_a_stopped_loop_goes_on_bit_for_bit():
    whole, _, control = own_loop()
    stopped = own_loop(stop=33)
    state = [part.state_dict() for part in stopped]
    resumed, optimizer, control_after = own_loop(state=state)
    assert control_after.state_dict() == control.state_dict()
    assert optimizer.param_groups[0]["rho"] == control.report()["control/rho"]
    for one, two in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, two)


def test_a_controller_made_anew_around_a_moved_gamma_keeps_its_bounds():
    """As in a notebook: the loss has the gamma of before, and the state says where it started."""
    model, loss = nn.Linear(5, 3), FocalLoss(gamma=1.0)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    settings = Radius(actuator="focal", dead_band=1e6)  # no look moves anything
    control = RadiusControl(model, sgd, CONTROL, 100, settings, criterion=loss)
    control.integrator.position = math.log(5)
    control.actuator.set_factor(5.0)

    again = RadiusControl(model, sgd, CONTROL, 100, settings, criterion=loss)
    again.load_state_dict(control.state_dict())
    again.predict = lambda x: x[:, :3]
    again.look(0.5)
    assert loss.gamma == pytest.approx(5.0)
    assert again.integrator.high == pytest.approx(math.log(10))


def test_any_optimizer_with_a_radius_and_any_focal_loss_can_be_steered():
    model = nn.Linear(5, 3)
    foreign = ForeignSAM(model.parameters(), rho=0.1)
    control = RadiusControl(model, foreign, CONTROL, 100, Radius(**NO_GUARD))
    control.predict = lambda x: 20 * X[80:, :3]  # far too sure
    control.look(0.0)
    assert foreign.param_groups[0]["rho"] == pytest.approx(0.15)  # the rate limit

    loss = FocalLoss(gamma=2.0)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    focal = Radius(actuator="focal", sensor="gap", gain=0.5, **NO_GUARD)
    control = RadiusControl(model, sgd, CONTROL, 100, focal, criterion=loss)
    control.predict = lambda x: 20 * X[80:, :3]
    reading = control.look(0.0)
    assert loss.gamma == pytest.approx(2.0 * math.exp(0.5 * reading.error))
    assert set(control.report()) == {
        *("control/gamma", "control/gap", "control/standard_error", "control/acted"),
        *("control/look_seconds", "control/band", "control/at_bound", "control/examples"),
    }
    assert control.report()["control/look_seconds"] == control.look_seconds[0] > 0


class Wrapped(torch.optim.Optimizer):
    """Stands for the optimizer that accelerate and Lightning put around one's own."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    @property
    def param_groups(self):
        return self.optimizer.param_groups


def test_an_optimizer_that_a_framework_wraps_is_steered_as_it_is_alone():
    optimizer = CSAM(nn.Linear(5, 3).parameters(), rho=0.1, lr=0.1)
    model = nn.Linear(5, 3)
    both = Radius(actuator="both")
    alone, wrapped = (
        RadiusControl(model, each, CONTROL, 3000, both, batch=20)
        for each in (optimizer, Wrapped(optimizer))
    )
    assert (
        wrapped.every
        == alone.every
        < RadiusControl(
            model, ForeignSAM(model.parameters(), rho=0.1), CONTROL, 3000, batch=20
        ).every
    )
    assert wrapped.report() == alone.report()

    adadelta = torch.optim.Adadelta(model.parameters())
    with pytest.raises(ValueError, match="decay of an average, not a radius"):
        RadiusControl(model, Wrapped(adadelta), CONTROL, 100)


def test_looks_are_spaced_by_cost_and_stay_between_start_and_until():
    # 200 examples forward, against 3 * 2 passes over 64: at most 3 %.
    by_cost = math.ceil(200 / (0.03 * 6 * 64))
    assert Radius().interval(size=200, batch=64, passes=2, steps=1000) == by_cost
    assert Radius().interval(200, None, 2, steps=1000) == 50
    # However cheap a look is, a run has 120 at most.
    assert Radius().interval(20, 64, 2, steps=6000) == Radius().interval(20, None, 2, 6000) == 50
    assert Radius(every=7).interval(200, 64, 2, steps=6000) == 7

    model = nn.Linear(5, 3)
    optimizer = SAM(model.parameters(), rho=0.1, lr=0.1)
    settings = Radius(every=10, start=0.2, until=0.6)
    control = RadiusControl(model, optimizer, CONTROL, 100, settings)
    assert [step for step in range(1, 101) if control.step()] == [20, 30, 40, 50, 60]
    assert [s for s in range(10, 101, 10) if settings.looks_after(s, 100)] == [20, 30, 40, 50, 60]
    returned = Radius(return_from=0.3)
    assert [s for s in range(10, 101, 10) if returned.looks_after(s, 100)] == [10, 20, 30]


def test_several_processes_take_one_reading():
    model = nn.Linear(5, 3)
    control = RadiusControl(model, SAM(model.parameters(), lr=0.1), CONTROL, 100)
    control.share = lambda reading: Reading(0.2, 0.01, 0.9, 0.01)
    control.look(0.0)
    assert control.report()["control/rho"] == pytest.approx(0.05 * math.exp(0.3 * 0.2))


def test_an_unknown_error_is_not_reported():
    model = nn.Linear(5, 3)
    control = RadiusControl(model, SAM(model.parameters(), lr=0.1), CONTROL, 100)
    control.predict = lambda x: 9 * nn.functional.one_hot(CONTROL[1], 3).float()
    control.look(0.0)
    numbers = control.report()
    assert not {"control/log_temperature", "control/standard_error"} & set(numbers)
    assert numbers["control/acted"] == 0


def test_an_actuator_by_its_name_and_outputs_in_a_dict():
    class Named(nn.Linear):
        def forward(self, x):
            return {"logits": super().forward(x)}

    model = Named(5, 3)
    nn.init.eye_(model.weight)  # as Y was made
    optimizer = CSAM(model.parameters(), rho=0.1, lr=0.1)
    control = RadiusControl(model, optimizer, (X, Y), 100, actuator="both")
    assert math.isfinite(control.look(0.5).error)
    assert set(control.actuator.values()) == {"rho", "gamma"}
    with pytest.raises(ValueError, match="actuator must be"):
        RadiusControl(model, optimizer, (X, Y), 100, actuator="rhoo")
    with pytest.raises(ValueError, match="at least 1; got 0"):
        RadiusControl(model, optimizer, (X, Y), 0)


def test_after_the_return_the_actuator_is_held_and_the_loop_is_told():
    model = nn.Linear(5, 3)
    optimizer = SAM(model.parameters(), rho=0.1, lr=0.1)
    settings = Radius(every=10, return_from=0.5, **NO_GUARD)
    control = RadiusControl(model, optimizer, CONTROL, 100, settings)
    control.predict = lambda x: 20 * X[80:, :3]  # far too sure

    held, looks = [], []
    for step in range(1, 100):
        if control.step():
            looks.append(step)
        held.append(control.held)
    with pytest.warns(UserWarning, match="control ended outside its dead band"):
        control.step()
    held.append(control.held)
    assert looks == [10, 20, 30, 40, 50]  # nothing of the split was trained on before step 51
    assert held == [step >= 50 for step in range(1, 101)]
    assert optimizer.param_groups[0]["rho"] == pytest.approx(0.1 * 1.5**5)
    assert control.report()["control/held"] == 1 and control.report()["control/acted"] == 0


def test_rows_say_how_wide_the_band_is_and_that_the_actuator_is_at_its_bound():
    model = nn.Linear(5, 3)
    settings = Radius(dead_band=1, final_band=0, span=1.2, **NO_GUARD)
    control = RadiusControl(model, ForeignSAM(model.parameters(), rho=0.1), CONTROL, 100, settings)
    control.predict = lambda x: 20 * X[80:, :3]  # far too sure
    control.look(0.75)
    row = control.report()
    assert (row["control/band"], row["control/at_bound"]) == (0.5, 1)

    again = RadiusControl(model, ForeignSAM(model.parameters(), rho=0.1), CONTROL, 100, settings)
    again.load_state_dict(control.state_dict())
    assert again.report() == {k: v for k, v in row.items() if k != "control/look_seconds"}
