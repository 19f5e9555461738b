"""`--groups` of evaluate, compare and calibrate: rows of one patient are alike."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from toosure.cli import app
from toosure.evaluate import evaluate


def toosure(*words):
    return CliRunner().invoke(app, list(map(str, words)))


@pytest.fixture
def patients(tmp_path):
    """Predictions of 40 patients with ten rows each, which are all right or all wrong."""
    rng = np.random.default_rng(0)
    number = np.repeat(np.arange(40), 10)
    patient = number.astype(str)
    labels = rng.integers(0, 3, 400)
    right = rng.random(40)[number] < 0.7
    logits = 2.0 * np.eye(3)[np.where(right, labels, (labels + 1) % 3)] + rng.random((400, 3))
    np.savez(tmp_path / "a.npz", logits=logits, labels=labels, patient=patient)
    np.savez(tmp_path / "b.npz", logits=logits / 2, labels=labels, patient=patient)
    np.savez(tmp_path / "other.npz", logits=logits / 2, labels=labels, patient=number // 2)
    return tmp_path


def test_groups_widen_the_intervals(patients):
    words = ("evaluate", patients / "a.npz", "--groups", "patient")
    found = json.loads(toosure(*words, "--json").stdout)
    arrays = np.load(patients / "a.npz")
    expected = evaluate(arrays["logits"], arrays["labels"], groups=arrays["patient"])
    assert found == expected.as_json() and found["groups"] == 40

    rows = json.loads(toosure("evaluate", patients / "a.npz", "--json").stdout)
    wider = [np.ptp(each["intervals"]["accuracy"]) for each in (found, rows)]
    assert wider[0] > 2 * wider[1] and "groups" not in rows

    result = toosure(*words)
    assert result.stderr == "a.npz: 40 groups from 'patient'\n"
    assert "95 % intervals over 40 groups, resampled whole" in result.stdout


def test_groups_of_compare_and_calibrate(patients):
    first, second = (patients / "a.npz", patients / "b.npz")
    ends = []
    for groups in ((), ("--groups", "patient")):
        found = json.loads(toosure("compare", first, second, *groups, "--json").stdout)
        change = found["differences"]["nll"]
        words = ("calibrate", first, "--method", "temperature", *groups, "--json")
        _, *of_temperature = json.loads(toosure(*words).stdout)["nll_change"]
        ends.append([(change["low"], change["high"]), of_temperature])
    of_rows, of_groups = np.ptp(ends, axis=-1)
    assert (of_groups > 2 * of_rows).all()

    result = toosure("compare", first, second, "--groups", "patient")
    assert "by resampling the same 40 groups of rows of both" in result.stdout

    words = ("compare", first, patients / "other.npz", "--groups", "patient")
    assert "their rows come in other groups" in toosure(*words).stderr


def test_groups_of_compare_are_the_same_in_any_kind_of_file(patients):
    """As text 10 comes before 9, as a number after it."""
    arrays = dict(np.load(patients / "b.npz"))
    arrays["patient"] = arrays["patient"].astype(int)
    np.savez(patients / "b.npz", **arrays)
    words = ("compare", patients / "a.npz", patients / "b.npz", "--groups", "patient")
    result = toosure(*words)
    assert result.exit_code == 0 and "the same 40 groups of rows" in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--groups", "labels"), "--groups labels names scores or labels"),
        (("--groups", "site"), "no column or array 'site' of one value per row, as groups"),
        (("--groups", "patient", "--by", "patient"), "of one group, and an interval over groups"),
        (("--groups", "patient", "--multilabel"), "--groups does not go with --multilabel"),
        (("--groups", "patient", "--shift", "fog"), "--groups does not go with --shift"),
        (("--groups", "patient", "--shifts"), "--groups does not go with --shifts"),
    ],
)
def test_groups_that_are_none(patients, words, message):
    result = toosure("evaluate", patients / "b.npz", *words)
    assert result.exit_code == 2 and message in result.stderr
