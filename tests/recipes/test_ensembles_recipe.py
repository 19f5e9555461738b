"""The ensembles recipe: its runs, its table from saved predictions, its claims on known scores."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from toosure import metrics
from toosure.recipes import Setting, recipe
from toosure.recipes.benchmark.score_files import saved_names
from toosure.recipes.ensembles import sweeps, tables
from toosure.recipes.ensembles.saved_scores import read_scores, save_scores
from toosure.recipes.needed_runs import missing_configs
from toosure.recipes.parameters import network_size
from toosure.recipes.run_store import RunStore
from toosure.runs import Run

PAPER = Setting()
KEPT = Path(__file__).resolve().parents[2] / "recipes" / "ensembles"


def row(ece, accuracy=0.9, n=2):
    return tables.MethodScores({str(seed): {"ece": ece, "accuracy": accuracy} for seed in range(n)})


def rows_with(**others):
    """An ensemble better than its optimizer alone, SAM better than SGD, dropout better too."""
    rows = {
        "SGD": row(0.04),
        "SAM": row(0.03),
        "SGD, deep ensemble (5)": row(0.02, 0.92),
        "SAM, deep ensemble (5)": row(0.01, 0.92),
        "MC-Dropout (5)": row(0.03),
    }
    return rows | others


def verdicts(rows, setting=PAPER):
    return [claim.passed for claim in tables.claims(setting, rows)]


def test_claims_hold_fail_and_wait():
    assert verdicts(rows_with()) == [True] * 7
    assert verdicts(rows_with(SAM=row(0.05)))[5] is False
    assert verdicts(rows_with(**{"SGD, deep ensemble (5)": row(0.05, 0.8)}))[:2] == [False, False]
    missing = rows_with()
    del missing["MC-Dropout (5)"]
    assert verdicts(missing)[4] is None
    assert verdicts(rows_with(), Setting(data="svhn")) == [None] * 7


def test_the_runs_are_those_of_the_protocol():
    configs = sweeps.all_configs(PAPER)
    assert len(configs) == len(set(configs)) == 10 + 10 + 2 * 5
    first = configs[0]
    assert (first.model, first.steps, first.batch) == ("resnet18", 5273, 256)
    assert first.averages[1].name == "swag" and first.data == "cifar10:augment=true"
    assert {c.seed for c in sweeps.plain(PAPER)} == set(range(10))
    assert "seed=1" in configs[1].data  # the split is drawn by the seed
    assert recipe("ensembles").part("table").configs(PAPER) == configs


@pytest.mark.parametrize(("name", "size"), [("MC-Dropout (5)", 77_562), ("VI (5)", 110_010)])
def test_parameters_are_counted_after_conversion(name, size):
    quick = Setting(quick=True)
    assert network_size(sweeps.method(quick, name)[0]) == size


def test_a_deep_ensemble_is_made_of_disjoint_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "training_seconds", lambda run: 10.0)
    monkeypatch.setattr(tables, "ran_alone", lambda run: run.path.name < "3")
    logits = torch.randn(5, 40, 3, dtype=torch.float64)
    labels = torch.arange(40) % 3
    runs = []
    for number, each in enumerate(logits):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        np.savez(folder / "predictions.npz", test_logits=each, test_labels=labels)
        runs.append(Run(folder))

    found = tables.ensemble_row(runs, 2, 100)  # the fifth is left over
    assert list(found.scores) == ["0 + 1", "2 + 3"]
    assert (found.values("seconds"), found.parameters) == ([20.0], 200)  # the fourth was not alone
    mixed = logits[2:4].softmax(-1).mean(0).log()
    assert found.scores["2 + 3"]["nll"] == pytest.approx(float(metrics.nll(mixed, labels)))
    assert tables.row_of(runs, "predictions_ema.npz", 1).scores == {}
    assert len(tables.row_of(runs, "predictions.npz", 1).scores) == 5


def test_scores_are_kept_once_and_read_where_folders_are_gone(tmp_path):
    """A run that is kept is not missing; other data sets and older lines stay."""
    setting = Setting(scores=str(tmp_path))
    name = sweeps.plain(setting)[0].name
    rows = {"SGD": {name: {"ece": 0.04, "nll": 0.2, "accuracy": 0.9, "smece": 0.04, "gap": 0.03}}}
    for _ in range(2):
        save_scores(setting, rows)
    assert len((tmp_path / "scores.jsonl").read_text().splitlines()) == 1
    with (tmp_path / "scores.jsonl").open("a") as file:
        file.write('{"data": "cifar10", "ro')  # cut short: the next line is one of its own
    save_scores(Setting(data="cifar100", scores=str(tmp_path)), {"SGD": {"other": {"ece": 0.1}}})
    assert read_scores(setting) == rows
    assert saved_names(setting) == {name, "other"}

    found = tables.findings(setting, RunStore(tmp_path / "no runs", saved_names(setting)))
    assert [row[:2] for row in found.tables[0].rows] == [("SGD", "1")]
    assert name not in {
        config.name for config in missing_configs(sweeps.all_configs(setting), setting, tmp_path)
    }


@pytest.mark.parametrize("data", ["cifar10", "cifar100"])
def test_the_page_shows_the_kept_scores(data):
    page = (KEPT / "RESULTS.md").read_text(encoding="utf-8")
    rows = read_scores(Setting(data=data, scores=str(KEPT)))
    assert len(rows) == 14
    for name, scores in rows.items():
        shown = " | ".join(tables.cells(name, tables.MethodScores(scores))[:-1])
        assert shown in page, "paste what `toosure reproduce ensembles --scores` prints"


def test_the_page_shows_what_more_members_do():
    page = (KEPT / "RESULTS.md").read_text(encoding="utf-8")
    for line in map(json.loads, (KEPT / "members.jsonl").read_text().splitlines()):
        assert f"| {line['optimizer']} | {line['members']} | {line['sets']} | " in page
        assert (
            f" | {line['nll']:.4f} | {100 * line['ece']:.2f} | {100 * line['gap']:+.2f} |" in page
        )
