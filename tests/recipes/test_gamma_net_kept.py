"""gamma-net's ResNet-20 runs in score files: the same tables with and without their folders."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from made_up_scores import examples_with, record_with
from typer.testing import CliRunner

from toosure import metrics
from toosure.cli import app
from toosure.recipes import Setting, recipe
from toosure.recipes.benchmark import protocol
from toosure.recipes.benchmark.score_files import ScoreFiles
from toosure.recipes.gamma_net import sweeps
from toosure.recipes.gamma_net.rows import OURS
from toosure.recipes.reproduce import judge_parts
from toosure.runs import Run, find_runs

pytestmark = pytest.mark.xdist_group("gamma-net")  # workers of pytest share what was trained
PARTS = {
    "table": sweeps.comparison,
    "settling": sweeps.arms,
    "bandwidth": sweeps.bandwidths,
    "features": sweeps.features,
}
QUICK = Setting(quick=True)
BOTH = Setting(data="cifar10,cifar100")


def reproduce(*words):
    quick = ("gamma-net", "--quick", "--only", ",".join(PARTS), *words)
    return CliRunner().invoke(app, ["reproduce", *map(str, quick)])


def tables_of(result):
    assert result.exit_code == 0, result.output
    parts = json.loads(result.stdout)["parts"]
    return {name: parts[name]["tables"] for name in PARTS}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The quick runs of the four parts, trained once: their folder, their scores, the tables."""
    out = tmp_path_factory.mktemp("gamma_net")
    words = ("--out", out / "runs", "--scores", out / "kept", "--device", "cpu", "--json")
    return out / "runs", out / "kept", tables_of(reproduce(*words))


# -- one run, two ways ----------------------------------------------------------------------------


def shown(tables, part, name):
    """Return the cells of a row by their column."""
    (table,) = tables[part]
    (cells,) = (row for row in table["rows"] if row[0] == name)
    return dict(zip(table["header"], cells, strict=True))


def test_scores_of_a_table_are_those_of_the_predictions(trained):
    """Against the saved predictions of each run, scored in another place."""
    runs, _, tables = trained
    rows = [("table", name, sweeps.method_configs(QUICK, name)) for name in sweeps.METHODS]
    values = sweeps.bandwidth_values(QUICK)
    rows += [("bandwidth", value, sweeps.bandwidth_configs(QUICK, value)) for value in values]
    rows += [("features", kind, sweeps.feature_configs(QUICK, kind)) for kind in sweeps.FEATURES]
    rows += [("settling", name, sweeps.arm_configs(QUICK, name)) for name in list(sweeps.ARMS)[:3]]

    for part, name, (config,) in rows:
        arrays = np.load(runs / config.name / "predictions.npz")
        logits, labels = map(torch.from_numpy, (arrays["test_logits"], arrays["test_labels"]))
        cells = shown(tables, part, name)
        assert cells["accuracy %"] == f"{100 * metrics.accuracy(logits, labels):.1f}"
        assert cells["ECE"] == f"{100 * metrics.ece(logits, labels, 15):.2f}"
        assert cells["MCE"] == f"{100 * metrics.mce(logits, labels, 15):.2f}"
        assert cells["AdaECE"] == f"{100 * metrics.adaptive_ece(logits, labels, 15):.2f}"
        assert cells["classwise ECE"] == f"{100 * metrics.classwise_ece(logits, labels, 15):.2f}"
    assert sum(len(table["rows"]) for (table,) in tables.values()) == len(rows) == 16


@pytest.mark.parametrize("arm", ["gamma-net (H)", "A: as first built"])
def test_numbers_along_training_are_those_of_the_rows(trained, arm):
    runs, _, tables = trained
    (config,) = sweeps.arm_configs(QUICK, arm)
    run = Run(runs / config.name)
    first, last = run.rows  # at steps 0 and 6; the rate is cut at 3
    cells = shown(tables, "settling", arm)
    excess = 100 * (last["val/confidence"] - last["val/accuracy"])
    assert cells["over-confidence"] == f"{excess:.2f}"
    assert cells["gamma at the first cut"] == f"{first['objective/gamma_mean']:.2f}"
    assert cells["gamma at the end"] == f"{last['objective/gamma_mean']:.2f}"
    assert cells["signal / noise"] == f"{last['objective/meta_signal_to_noise']:.2f}"
    assert cells["gamma at the first cut"] != cells["gamma at the end"]


def test_without_score_files_the_folders_give_the_same_tables(trained):
    runs, _, tables = trained
    assert tables_of(reproduce("--from", runs, "--json")) == tables


# -- what is kept ---------------------------------------------------------------------------------


def test_kept_scores_need_no_folder(trained, tmp_path):
    runs, kept, tables = trained
    lines = (kept / "scores.jsonl").read_text().splitlines()
    assert len(lines) == len(find_runs(runs)) == 14

    # --list, --from and a command that would train.
    listed = reproduce("--out", tmp_path, "--scores", kept, "--list").stdout
    assert re.findall(r"\((\d+) runs, (\d+) missing\)", listed) == [
        *(("6", "0"), ("3", "0"), ("3", "0"), ("4", "0")),
    ]
    assert tables_of(reproduce("--from", tmp_path, "--scores", kept, "--json")) == tables
    words = ("--out", tmp_path, "--scores", kept, "--device", "cpu", "--json")
    assert tables_of(reproduce(*words)) == tables

    assert not find_runs(tmp_path)
    assert (kept / "scores.jsonl").read_text().splitlines() == lines  # nothing is kept twice


def test_rows_of_gamma_net_are_kept(trained):
    runs, kept, _ = trained
    (config,) = sweeps.method_configs(QUICK, OURS)
    rows = ScoreFiles(kept).records[config.name].rows
    for key in (
        *("gamma_mean", "gamma_std", "gamma_at_bound", "gamma_collapsed"),
        "meta_signal_to_noise",
    ):
        column = Run(runs / config.name).columns[f"objective/{key}"]
        assert [row[f"objective/{key}"] for row in rows] == list(column)


def test_a_run_that_is_not_kept_is_missing(trained, tmp_path):
    _, kept, _ = trained
    files = ScoreFiles(kept)
    gone = sweeps.method_configs(QUICK, "focal")[0].name
    fewer = ScoreFiles(tmp_path / "fewer")
    fewer.write([record for name, record in files.records.items() if name != gone])

    listed = reproduce("--out", tmp_path, "--scores", fewer.folder, "--list").stdout
    assert re.findall(r"(\w+) .*\(\d+ runs, 1 missing\)", listed) == ["table"]
    result = reproduce("--from", tmp_path, "--scores", fewer.folder)
    assert result.exit_code == 1 and f"missing or ended early: {gone}: missing" in result.stdout


def test_nothing_is_kept_of_single_images(trained):
    _, kept, _ = trained
    assert [file.name for file in kept.iterdir()] == ["scores.jsonl"]
    assert not ScoreFiles(kept).examples


def test_runs_are_in_bf16_and_quick_ones_in_float32():
    for configs in PARTS.values():
        assert {config.precision for config in configs(BOTH)} == {"bf16"}
        assert {config.precision for config in configs(QUICK)} == {"float32"}


# -- other recipes --------------------------------------------------------------------------------


def test_no_run_is_one_of_a_recipe_that_compares_image_by_image():
    ours = {config for configs in PARTS.values() for config in configs(BOTH)}
    for name in ("benchmark", "csam", "radius"):
        parts = recipe(name).parts
        assert ours.isdisjoint(config for part in parts for config in part.configs(BOTH))
    assert not any(protocol.follows_protocol(config, BOTH) for config in ours)


def kept_scores(folder, more=()):
    """Write scores and examples of three methods by the common protocol, and `more` records."""
    files = ScoreFiles(folder)
    configs = [
        protocol.config(BOTH, method, data, seed)
        for method in ("sgd", "sam:rho=0.05", "csam:rho=0.1,gamma=0.5")
        for data in ("cifar10", "cifar100")
        for seed in (0, 1)
    ]
    records = [with_confidence(record_with(config)) for config in configs]
    gaps = np.linspace(0.01, 0.09, len(records))
    for record, gap in zip(records, gaps, strict=True):
        files.examples[record.name] = examples_with(0.9, gap, images=50)
    files.write([*records, *more])
    return replace(BOTH, scores=str(folder))


def with_confidence(record):
    return replace(record, test={**record.test, "confidence": 0.95})


@pytest.mark.parametrize(
    "name", ["benchmark", "radius", pytest.param("csam", marks=pytest.mark.slow)]
)
def test_kept_runs_change_no_table_of_another_recipe(tmp_path, name):
    """They have the words of rows there (SGD, gamma-net), but another network and length."""
    configs = [*sweeps.comparison(BOTH), *sweeps.bandwidths(BOTH)]
    residual = [with_confidence(record_with(config, ece=0.5)) for config in configs]
    settings = [kept_scores(tmp_path / "without"), kept_scores(tmp_path / "with", residual)]
    assert len(ScoreFiles(tmp_path / "with").records) == 12 + len(residual)

    parts = recipe(name).chosen(())
    plain, more = (judge_parts(recipe(name), parts, each, tmp_path / "runs") for each in settings)
    assert any(table.rows for found in plain.findings.values() for table in found.tables)
    assert more.findings == plain.findings and more.problems == plain.problems
