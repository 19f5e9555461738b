"""Rows that come in groups, by a column or an array of a file."""

import json

import numpy as np
import pytest

from toosure.predictions import read_predictions


def test_groups_are_names_as_they_are_spelled(tmp_path):
    lines = ["p_a,p_b,label,patient"]
    lines += [f"0.{k},0.{10 - k},a,{who}" for k, who in ((6, "1"), (7, "01"), (8, "1"), (4, "2"))]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    read = read_predictions(tmp_path / "a.csv", groups="patient")
    assert read.groups.tolist() == [1, 0, 1, 2]
    assert read.note.endswith("labels from 'label', 3 groups from 'patient'")

    (tmp_path / "a.csv").write_text("\n".join(lines).replace("a,2", "a,"))
    with pytest.raises(ValueError, match="'patient' names no group in row 3: drop such rows"):
        read_predictions(tmp_path / "a.csv", groups="patient")


def test_groups_are_no_scores_where_columns_are_named_as_classes(tmp_path):
    """Numbers of patients look like one more logit, or like a damaged column."""
    columns = {"a": [1.5, -2.5, 0.3], "b": [0.5, 1.5, -0.2], "label": ["a", "b", "b"]}
    columns["patient"] = [1, 2, 2]
    rows = list(zip(*columns.values(), strict=True))
    (tmp_path / "a.csv").write_text("\n".join(",".join(map(str, r)) for r in (columns, *rows)))
    lines = [json.dumps(dict(zip(columns, row, strict=True))) for row in rows]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    for name in ("a.csv", "a.jsonl"):
        read = read_predictions(tmp_path / name, groups="patient")
        assert read.classes == 2 and read.groups.tolist() == [0, 1, 1]


def test_groups_of_rows_that_are_kept_and_of_sequences(tmp_path):
    rng = np.random.default_rng(0)
    who = np.array(["x", "y", "x", "z"])
    np.savez(tmp_path / "a.npz", logits=rng.normal(size=(4, 3)), labels=[0, -1, 2, 1], who=who)
    read = read_predictions(tmp_path / "a.npz", ignore_index=-1, groups="who")
    assert read.groups.tolist() == [0, 0, 1]

    tokens = {"logits": rng.normal(size=(4, 2, 3)), "labels": rng.integers(0, 3, (4, 2))}
    np.savez(tmp_path / "a.npz", **tokens, who=who)
    read = read_predictions(tmp_path / "a.npz", groups="who")
    assert read.groups.tolist() == [0, 0, 1, 1, 0, 0, 2, 2] and read.group_name == "group"
    assert read.note == "3 groups from 'who'"

    np.savez(tmp_path / "a.npz", **tokens, who=who.astype(object))
    with pytest.raises(ValueError, match="who holds Python objects, which are not read"):
        read_predictions(tmp_path / "a.npz", groups="who")
    np.savez(tmp_path / "a.npz", **tokens, who=np.ones(4))
    with pytest.raises(ValueError, match="all rows are of one group"):
        read_predictions(tmp_path / "a.npz", groups="who")


def test_groups_of_confidences(tmp_path):
    columns = {"confidence": [0.9, 0.8, 0.7], "correct": [1, 0, 1], "day": [3.0, 3.0, 5.0]}
    np.savez(tmp_path / "a.npz", **columns)
    rows = zip(*columns.values(), strict=True)
    lines = [json.dumps(dict(zip(columns, row, strict=True))) for row in rows]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    for name in ("a.npz", "a.jsonl"):
        read = read_predictions(tmp_path / name, groups="day")
        assert read.groups.tolist() == [0, 0, 1] and "2 groups from 'day'" in read.note
