"""Which runs are ranked together: those of one data set, by its name or by its labels."""

import json

import pytest
import torch
from made_runs import make_run
from torch import nn

from toosure import Watch
from toosure.page.data_sets import data_sets_of
from toosure.page.page_runs import PageRuns
from toosure.runs import find_runs


def own_loop(path, labels, seed=None, classes=2, model="mlp", draw=None, **note):
    """Write a run as a watched loop leaves it, without a name of its data."""
    config = {} if seed is None else {"model": model, "seed": seed}
    make_run(path, config, steps=(0,))
    note = {"labels": labels, "rows": 400, "classes": classes} | note
    note |= {} if draw is None else {"seed": draw}
    (path / "examples.json").write_text(json.dumps({"train": {"labels": "all"}, "val": note}))


def sets_of(folder):
    """Return the runs that are together, by their names."""
    together = {}
    for run, name in data_sets_of(find_runs(folder)).items():
        together.setdefault(name, set()).add(run)
    return together


def test_tasks_of_own_loops_are_apart_and_their_models_together(tmp_path):
    for model in ("mlp", "cnn"):
        own_loop(tmp_path / f"two_{model}", "a2")
        own_loop(tmp_path / f"five_{model}", "b5", classes=5)
        own_loop(tmp_path / f"other_{model}", "c2")
    assert sets_of(tmp_path) == {
        "unnamed data (5 classes, 400 examples)": {"five_mlp", "five_cnn"},
        "unnamed data (2 classes, 400 examples)": {"other_mlp", "other_cnn"},
        "unnamed data (2 classes, 400 examples, labels a2)": {"two_mlp", "two_cnn"},
    }


@pytest.mark.parametrize("draw", [False, True])
def test_a_seed_that_splits_or_draws_the_data_keeps_runs_together(tmp_path, draw):
    for seed in range(3):
        for model in ("mlp", "cnn"):
            given = {"draw": seed} if draw else {"seed": seed}
            own_loop(tmp_path / f"{model}{seed}", f"split {seed}", model=model, **given)
    assert list(sets_of(tmp_path)) == [""]
    own_loop(tmp_path / "five", "b5", seed=0, classes=5)
    assert sorted(map(len, sets_of(tmp_path).values())) == [1, 6]


def test_two_tasks_of_the_same_seeds_are_apart(tmp_path):
    for seed in range(2):
        for task in ("a", "b"):
            own_loop(tmp_path / f"{task}{seed}", task, seed=seed)
    assert list(sets_of(tmp_path).values()) == [{"a0", "a1"}, {"b0", "b1"}]

    # The configs of both tasks are the same: still they are no seeds of one setting.
    ranked = PageRuns(find_runs(tmp_path)).ranked_settings
    assert [[run.name for run in each.group.runs] for each in ranked] == [
        ["a0", "a1"],
        ["b0", "b1"],
    ]
    assert len({each.label for each in ranked}) == 2


def test_a_run_without_a_seed_is_not_joined_by_seeds(tmp_path):
    own_loop(tmp_path / "a0", "a", seed=0)
    own_loop(tmp_path / "b", "b")
    own_loop(tmp_path / "drawn", "c", draw=0)
    assert len(sets_of(tmp_path)) == 3


def test_a_name_decides_where_there_is_one(tmp_path):
    for place, data in enumerate(("mine", "mine:fold=1", "yours", "")):
        path = tmp_path / f"{place}"
        own_loop(path, "different" if place == 1 else "same")
        (path / "config.json").write_text(json.dumps({"data": data} if data else {}))
    assert sets_of(tmp_path) == {"mine": {"0", "1"}, "yours": {"2"}, "": {"3"}}


def test_runs_of_earlier_versions_are_told_apart_by_their_examples(tmp_path):
    own_loop(tmp_path / "old", None, classes=None, sha256="e1")
    own_loop(tmp_path / "new", "a", sha256="e1")
    own_loop(tmp_path / "other", None, classes=None, sha256="e2")
    assert sorted(map(sorted, sets_of(tmp_path).values())) == [["new", "old"], ["other"]]


def test_damaged_notes_tell_nothing(tmp_path):
    for name, note in (
        ("a", "[]"),
        ("b", '{"val": 3}'),
        ("c", '{"val": {"labels": {}}}'),
        ("d", ""),
    ):
        own_loop(tmp_path / name, "a")
        (tmp_path / name / "examples.json").write_text(note)
    assert list(sets_of(tmp_path)) == [""]


def test_a_watch_notes_labels_whatever_the_model_and_its_inputs(tmp_path):
    labels = torch.arange(12) % 2
    kinds = {
        "wide": (nn.Linear(8, 2), torch.randn(12, 8), labels),
        "one_logit": (nn.Linear(4, 1), torch.randn(12, 4), labels.float()),
        "other": (nn.Linear(4, 2), torch.randn(12, 4), 1 - labels),
    }
    for name, (model, x, y) in kinds.items():
        with Watch(model, None, (x, y), (x, y), run=tmp_path / name, measure=()) as watch:
            watch.step()
    assert sorted(map(sorted, sets_of(tmp_path).values())) == [["one_logit", "wide"], ["other"]]
    note = json.loads((tmp_path / "wide" / "examples.json").read_text())["val"]
    assert (note["classes"], note["rows"]) == (2, 12)
