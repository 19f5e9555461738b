"""Calibrators of a binary classifier: one logit or one probability, in and out."""

import numpy as np
import pytest
import torch
from sklearn.isotonic import IsotonicRegression
from torch import nn

from toosure.binary import one_column, two_column_probs, two_columns
from toosure.posthoc import CALIBRATORS, Identity, Isotonic, Platt, Temperature, calibrate, choose

generator = torch.Generator().manual_seed(0)
Z = 3 * torch.randn(400, generator=generator, dtype=torch.float64) + 0.5
P = Z.sigmoid()
Y = (torch.rand(400, generator=generator) < torch.sigmoid(Z / 2)).long()
EACH = pytest.mark.parametrize("name", CALIBRATORS)


@EACH
def test_one_logit_is_two_columns_and_comes_back_as_one(name):
    expected = CALIBRATORS[name]().fit(two_columns(Z), Y)
    logits = one_column(expected(two_columns(Z)))
    for shape, labels in (((400,), Y.bool()), ((400, 1), Y.double()[:, None])):
        calibrator = CALIBRATORS[name]().fit(Z.reshape(shape), labels)
        for outputs in (calibrator(Z.reshape(shape)), calibrator.transform(Z.reshape(shape))):
            assert outputs.shape == shape
            torch.testing.assert_close(outputs.flatten(), logits, rtol=0, atol=1e-12)

    probs = calibrator.predict_proba(Z)
    torch.testing.assert_close(probs, expected.predict_proba(two_columns(Z)), rtol=0, atol=1e-12)
    assert calibrator(Z.float()).dtype == torch.float32


@EACH
def test_one_probability_comes_back_as_one(name):
    expected = CALIBRATORS[name]().fit(probs=two_column_probs(P), labels=Y)
    columns = expected.transform(probs=two_column_probs(P))
    assert columns.shape == (400, 2)
    for shape in ((400,), (400, 1)):
        calibrator = CALIBRATORS[name]().fit(probs=P.reshape(shape), labels=Y.bool())
        outputs = calibrator.transform(probs=P.reshape(shape))
        assert outputs.shape == shape
        torch.testing.assert_close(outputs.flatten(), columns[:, 1], rtol=0, atol=1e-12)

    # The same fit as that of the logits, but for vector scaling, which sees what is added to a row.
    if name == "vector":
        return
    of_logits = CALIBRATORS[name]().fit(Z, Y).predict_proba(Z)
    torch.testing.assert_close(columns, of_logits, rtol=0, atol=1e-5)


def test_isotonic_is_scikit_learns():
    regression = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(P, Y)
    theirs = np.clip(regression.predict(P), 1 / 800, 1 - 1 / 800)
    ours = Isotonic().fit(probs=P, labels=Y).transform(probs=P)
    assert ours.numpy() == pytest.approx(theirs, abs=2e-3)  # the floor is renormalised
    middle = (theirs > 0.01) & (theirs < 0.99)
    assert ours.numpy()[middle] == pytest.approx(theirs[middle], abs=1e-12)


def test_temperature_divides_the_logit_and_platt_adds_a_shift():
    temperature = Temperature().fit(Z, Y)
    torch.testing.assert_close(temperature(Z), Z / temperature.temperature)
    platt = Platt().fit(Z, Y)
    slope, shift = platt.theta[1]
    torch.testing.assert_close(platt(Z), slope * Z + shift)


def test_zero_and_one_stay_finite():
    probs = torch.tensor([0.0, 1.0, 0.3, 0.6, 0.2, 0.9])
    labels = [0, 1, 1, 0, 0, 1]
    outputs = Temperature().fit(probs=probs, labels=labels).transform(probs=probs)
    assert outputs.isfinite().all() and outputs.dtype == torch.float32
    assert Identity().transform(probs=probs).tolist() == pytest.approx(probs.tolist())


@pytest.mark.parametrize("method", ["temperature", "auto"])
@pytest.mark.parametrize("labels", [Y, Y.float()[:, None]])
def test_a_model_with_one_output_is_calibrated(method, labels):
    model = nn.Linear(1, 1)
    with torch.no_grad():
        model.weight.fill_(1.0)
        model.bias.fill_(0.0)
    inputs = Z.float()[:, None]
    loader = [(inputs[:200], labels[:200]), (inputs[200:], labels[200:])]
    calibrated = calibrate(model, loader, method)
    assert calibrated(inputs).shape == (400, 1)
    probs = calibrated.predict_proba(inputs)
    torch.testing.assert_close(probs[:, 1:], calibrated(inputs).sigmoid())
    assert probs.shape == (400, 2)


def test_the_choice_is_that_of_two_columns():
    makers = {name: CALIBRATORS[name] for name in ("temperature", "platt")}
    ours, expected = choose(Z, Y.bool(), makers), choose(two_columns(Z), Y, makers)
    assert [t.nll for t in ours.trials] == pytest.approx([t.nll for t in expected.trials])


def test_what_is_wrong_is_named():
    for fit in (Temperature().fit, lambda z, y: choose(z, y, {})):
        with pytest.raises(ValueError, match=r"probs=p; .*sigmoid"):
            fit(P, Y)
    with pytest.raises(ValueError, match="give logits, or probabilities"):
        Temperature().fit(labels=Y)
    with pytest.raises(ValueError, match="labels are missing"):
        Temperature().fit(Z)
    with pytest.raises(ValueError, match="0 and 1"):
        Temperature().fit(Z, Y + 1)
    with pytest.raises(ValueError, match="not fitted"):
        Temperature()(Z)
    with pytest.raises(ValueError, match="lie in"):
        Identity().transform(probs=Z)
