"""What a controller refuses or warns of: settings, splits, other states, looks that see nothing."""

import math

import numpy as np
import pytest
import torch
from test_radius import CONTROL, ForeignSAM, X, Y
from torch import nn

from toosure.control import Radius, RadiusControl
from toosure.losses import FocalLoss
from toosure.optim import CSAM, SAM


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gain": 0.0}, "gain must be above 0"),
        ({"dead_band": -1.0}, "dead_band is a number of standard errors"),
        ({"final_band": -1.0}, "final_band is a number of standard errors"),
        ({"return_from": 0.05}, "return_from is the share of the run"),
        ({"rate": 1.0}, "rate is a factor above 1"),
        ({"span": math.inf}, "span is a factor above 1"),
        ({"final": 0.0}, "final multiplies the gain"),
        ({"start": 0.5, "until": 0.5}, "shares of the run"),
        ({"guard": 0.0}, "guard is a number"),
        ({"size": 1}, "size is a whole number of at least 2"),
        ({"size": 2.5}, "size is a whole number of at least 2; got 2.5"),
        ({"every": 0}, "every is a whole number of at least 1"),
        ({"every": 2.5}, "every is a whole number of at least 1; got 2.5"),
        ({"sensor": "foo"}, "sensor must be one of 'log_temperature', 'gap'; got 'foo'"),
        ({"actuator": "foo"}, "actuator must be one of 'rho', .*got 'foo'"),
        ({"weights": "foo"}, "weights must be one of 'raw', .*got 'foo'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Radius(**settings)


@pytest.mark.parametrize(
    ("control", "message"),
    [
        (X, "two tensors, inputs and labels"),
        ((X,), "two tensors, inputs and labels"),
        ([(X, Y)], "two tensors, inputs and labels"),
        ("data", "two tensors, inputs and labels"),
        ((X.numpy(), Y.numpy()), "got tuple of ndarray and ndarray"),
        ((X, Y[:3]), "as many labels as inputs"),
        ((X[:1], Y[:1]), "at least two examples; got 1 inputs"),
        ((X / 0, Y), "control inputs must be finite; example 0"),
        ((X.double(), Y), r"they are torch.float64 and its weights torch.float32; convert"),
        ((X, Y + 1), r"labels must be integers in \[0, 3\); got 1 to 3"),
        ((X, torch.full_like(Y, 2)), r"holds one class only \(2\).* draw it at random"),
        ((X, nn.functional.one_hot(Y)), r"labels must have shape \(240,\)"),
    ],
)
def test_a_control_split_is_two_tensors(control, message):
    model = nn.Linear(5, 3)
    with pytest.raises(ValueError, match=message):
        RadiusControl(model, SAM(model.parameters(), lr=0.1), control, 100)


def test_a_model_that_gives_probabilities_is_refused():
    softmax = nn.Sequential(nn.Linear(5, 3), nn.Softmax(1))
    control = RadiusControl(softmax, SAM(softmax.parameters(), lr=0.1), (X, Y), 100)
    with pytest.raises(ValueError, match="remove the model's last Softmax"):
        control.look(0.5)

    sigmoid = nn.Sequential(nn.Linear(5, 1), nn.Sigmoid())
    with pytest.raises(ValueError, match="last Sigmoid"):
        RadiusControl(sigmoid, SAM(sigmoid.parameters(), lr=0.1), (X, Y % 2), 100)


def test_mistakes_in_a_loop_of_ones_own():
    model = nn.Linear(5, 3)
    optimizer = ForeignSAM(model.parameters(), rho=0.1)
    with pytest.raises(ValueError, match="size is for `toosure train`"):
        RadiusControl(model, optimizer, CONTROL, 100, Radius(size=20))
    with pytest.raises(ValueError, match="here give predict="):
        RadiusControl(model, optimizer, CONTROL, 100, Radius(weights="ema"))
    with pytest.raises(TypeError, match="settings are Radius"):
        RadiusControl(model, optimizer, CONTROL, 100, "radius")
    with pytest.warns(UserWarning, match="never looks: a look every 50 steps, in a run of 20"):
        control = RadiusControl(model, optimizer, CONTROL, 20)
    with pytest.raises(
        ValueError, match="it lacks sensor, actuator, steps, starts, integrator, reading"
    ):
        control.load_state_dict({})
    state = control.state_dict()
    state["integrator"].pop("direction")  # of an earlier version
    with pytest.raises(ValueError, match="it lacks direction"):
        control.load_state_dict(state)
    with pytest.raises(ValueError, match="of a controller of gamma, but this one moves rho"):
        control.load_state_dict({**control.state_dict(), "starts": {"gamma": [1.0]}})


@pytest.mark.parametrize(
    ("settings", "others", "message"),
    [
        ({}, {"sensor": "gap"}, "with the sensor gap, but this one has log_temperature"),
        (
            {"actuator": "focal"},
            {"actuator": "gamma"},
            "the actuator CSAMGamma, but this one has FocalGamma",
        ),
    ],
)
def test_a_state_of_another_kind_of_controller_is_refused(settings, others, message):
    model, loss = nn.Linear(5, 3), FocalLoss(gamma=2.0)
    optimizer = CSAM(model.parameters(), lr=0.1)
    own, other = (
        RadiusControl(model, optimizer, CONTROL, 100, Radius(**each), criterion=loss)
        for each in (settings, others)
    )
    other.look(0.5)
    with pytest.raises(ValueError, match=message):
        own.load_state_dict(other.state_dict())
    assert own.reading is None and loss.gamma == 2.0

    state = own.state_dict()
    del state["sensor"]
    with pytest.raises(ValueError, match="not the state of a RadiusControl: it lacks sensor"):
        own.load_state_dict(state)


def test_other_parameter_groups_are_refused_by_name():
    model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3))
    one = SAM(model.parameters(), rho=0.05, lr=0.1)
    two = SAM([{"params": part.parameters()} for part in model], rho=0.05, lr=0.1)
    state = RadiusControl(model, one, CONTROL, 100).state_dict()
    control = RadiusControl(model, two, CONTROL, 100)
    with pytest.raises(ValueError, match="state has 1 values of rho, but this controller moves 2"):
        control.load_state_dict(state)

    head = SAM(model[1].parameters(), rho=0.05, lr=0.1)
    control = RadiusControl(model, head, CONTROL, 100)
    head.add_param_group({"params": model[0].parameters()})
    with pytest.raises(ValueError, match="1 radii, but the optimizer 2 parameter groups"):
        control.look(0.5)


@pytest.mark.parametrize("logits", [torch.full((160, 3), math.nan), -math.inf * torch.eye(160, 3)])
def test_a_controller_that_sees_nothing_says_so_once(logits):
    model = nn.Linear(5, 3)
    control = RadiusControl(model, SAM(model.parameters(), lr=0.1), CONTROL, 100)
    control.predict = lambda x: logits
    with pytest.warns(UserWarning, match="control is blind"):
        control.look(0.5)
    control.look(0.6)  # a second warning would be an error
    assert control.report()["control/rho"] == 0.05


def test_a_prediction_of_ones_own_may_keep_its_gradients():
    model = nn.Linear(5, 3)
    nn.init.eye_(model.weight)  # as Y was made
    optimizer = SAM(model.parameters(), lr=0.1)
    control = RadiusControl(model, optimizer, CONTROL, 100, predict=lambda x: model(x))
    assert math.isfinite(control.look(0.5).error)  # a warning of torch would be an error


@pytest.mark.parametrize("counts", [{"steps": 12.5}, {"steps": 100.0}, {"steps": 9, "batch": 0}])
def test_counts_are_whole_numbers(counts):
    model = nn.Linear(5, 3)
    with pytest.raises(ValueError, match=r"a whole number \(int\), at least 1; got"):
        RadiusControl(model, SAM(model.parameters(), lr=0.1), CONTROL, **counts)


@pytest.mark.parametrize("steps", [np.int64(100), torch.tensor(100)])
def test_whole_numbers_of_numpy_and_torch_are_counts(steps):
    model = nn.Linear(5, 3)
    control = RadiusControl(model, SAM(model.parameters(), lr=0.1), CONTROL, steps)
    assert type(control.steps) is int and control.steps == 100


def test_a_state_from_beyond_the_steps_is_told():
    model = nn.Linear(5, 3)
    optimizer = SAM(model.parameters(), lr=0.1)
    longer = RadiusControl(model, optimizer, CONTROL, 1000)
    longer.steps_taken = 700
    control = RadiusControl(model, optimizer, CONTROL, 100)
    with pytest.warns(UserWarning, match="made for 100 steps"):
        control.load_state_dict(longer.state_dict())


def test_a_loop_that_goes_on_beyond_its_steps_is_told_once():
    model = nn.Linear(5, 3)
    control = RadiusControl(model, SAM(model.parameters(), lr=0.1), CONTROL, 5, Radius(every=1))
    assert all(control.step() for _ in range(5))
    with pytest.warns(UserWarning, match="made for 5 steps"):
        assert not control.step()
    assert not control.step()  # a second warning would be an error


@pytest.mark.parametrize("actuator", ["rho", "gamma", "both", "focal"])
def test_a_second_controller_of_the_same_optimizer_is_told_once(actuator):
    model, loss = nn.Linear(5, 3), FocalLoss(gamma=2.0)
    optimizer = CSAM(model.parameters(), lr=0.1)
    settings = Radius(actuator=actuator, start=0.0)
    first, second = (
        RadiusControl(model, optimizer, CONTROL, 100, settings, criterion=loss) for _ in range(2)
    )
    for control in (first, second):
        control.predict = lambda x: 20 * x[:, :3]  # far too sure
    first.look(0.5)
    name = "rho" if actuator in ("rho", "both") else "gamma"
    with pytest.warns(UserWarning, match=rf"something else changes what .*\({name} is .*, not "):
        second.look(0.5)
    optimizer.param_groups[0]["rho"] = 0.7
    second.look(0.6)  # a second warning would be an error


def test_a_schedule_of_the_radius_of_a_second_group_is_told():
    model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3))
    groups = [{"params": part.parameters(), "rho": 0.1 * (i + 1)} for i, part in enumerate(model)]
    optimizer = SAM(groups, lr=0.1)
    control = RadiusControl(model, optimizer, CONTROL, 100)
    control.look(0.4)
    optimizer.param_groups[1]["rho"] = 0.7
    with pytest.warns(UserWarning, match=r"\(rho is 0.7, not "):
        control.look(0.5)
    assert optimizer.param_groups[1]["rho"] == pytest.approx(2 * control.report()["control/rho"])
