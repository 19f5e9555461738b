"""Classes without a row, and labels that may count from 1."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from toosure.cli import app
from toosure.evaluate import evaluate
from toosure.evaluate.verdict import verdict
from toosure.predictions import from_frame, from_probs, read_predictions

NAMES = ("cat", "dog", "eel")
ABSENT = "No row is labelled `eel`, though its probabilities add up to"
ONE_LOWER = "one lower, labels would be right in"


def drawn(n=600, classes=3, seed=0):
    """Probabilities, and labels that are drawn by them."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet([0.4] * classes, n)
    labels = (probs.cumsum(1) < rng.random((n, 1))).sum(1).clip(0, classes - 1)
    return probs, labels


def frame_of(probs, labels):
    return {f"prob_{name}": probs[:, k] for k, name in enumerate(NAMES)} | {"label": labels}


def test_a_class_without_a_row_is_named():
    probs, labels = drawn()
    kept = labels != 2
    whole = evaluate(from_frame(frame_of(probs, labels)), metrics=["ece", "accuracy"])
    assert not whole.notes and "notes" not in whole.as_json()
    for spelled in (labels[kept], np.array(NAMES)[labels[kept]]):
        read = from_frame(frame_of(probs[kept], spelled))
        assert ONE_LOWER not in read.note
        result = evaluate(read, metrics=["ece", "accuracy"])
        (note,) = result.notes
        assert note.startswith(f"{ABSENT} {probs[kept, 2].sum():.0f} of {kept.sum()}: each")
        assert note in verdict(result).reasons and result.as_json()["notes"] == [note]


@pytest.mark.parametrize(("n", "classes"), [(40, 100), (200, 100), (30, 10), (12, 3)])
def test_classes_that_chance_leaves_out_are_not_named(n, classes):
    for seed in range(20):
        result = evaluate(from_probs(*drawn(n, classes, seed)), metrics=["ece"])
        assert not result.notes


def test_labels_that_count_from_one_are_told(tmp_path):
    probs, labels = drawn()
    kept = labels != 2
    from_one = frame_of(probs[kept], labels[kept] + 1)
    read = from_frame(from_one)
    assert f"no label is 0: {ONE_LOWER}" in read.note
    assert "perhaps they count from 1 (--classes 1,2,3)" in read.note
    lowered = from_frame(from_one, classes=["1", "2", "3"])
    assert lowered.labels.tolist() == labels[kept].tolist() and ONE_LOWER not in lowered.note

    path = tmp_path / "a.npz"
    np.savez(path, probs=probs[kept], labels=labels[kept] + 1)
    assert f"no label is 0: {ONE_LOWER}" in read_predictions(path).note
    result = CliRunner().invoke(app, ["evaluate", str(path), "--json"])
    absent, doubt = json.loads(result.stdout)["notes"]
    assert absent.startswith("No row is labelled class 0") and doubt.startswith("One lower")
    assert result.stderr.count("--classes 1,2,3") == 1


def test_labels_of_which_none_is_0_are_not_doubted_without_reason():
    probs, labels = drawn()
    kept = labels != 0
    for spelled in (labels[kept], np.array(NAMES)[labels[kept]]):
        assert ONE_LOWER not in from_frame(frame_of(probs[kept], spelled)).note
    only = labels == 1  # one class alone tells nothing
    assert ONE_LOWER not in from_frame(frame_of(probs[only], labels[only])).note


def test_names_are_no_numbers_that_count_from_one():
    """Labels that name columns 1, 2, 3 count from 1 as they are."""
    probs, labels = drawn()
    kept = labels != 2
    columns = {f"p_{k + 1}": probs[kept, k] for k in range(3)}
    read = from_frame(columns | {"label": labels[kept] + 2})
    assert ONE_LOWER not in read.note


def test_several_files_have_their_notes(tmp_path):
    probs, labels = drawn()
    for name, kept in (("whole", labels < 3), ("part", labels != 2)):
        np.savez(tmp_path / f"{name}.npz", probs=probs[kept], labels=labels[kept])
    files = [str(tmp_path / f"{name}.npz") for name in ("whole", "part")]
    result = CliRunner().invoke(app, ["evaluate", *files])
    assert "part.npz: No row is labelled class 2" in result.stdout
    assert "whole.npz: No row" not in result.stdout
