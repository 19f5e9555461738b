"""gamma-net by the common protocol: runs shared with the benchmark, rules, cost, backbones."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from made_up_scores import examples_with, record_with
from typer.testing import CliRunner

from toosure.cli import app
from toosure.recipes import Setting, recipe
from toosure.recipes.benchmark import methods, protocol
from toosure.recipes.benchmark.score_files import ScoreFiles
from toosure.recipes.benchmark.scored_rows import Row, ScoredRow, by_name, with_records
from toosure.recipes.gamma_net import backbones, common, common_claims, cost, sweeps
from toosure.recipes.gamma_net.rows import ALONE, ONE_RATE, OURS
from toosure.recipes.gamma_net.sece_alone import SECEAlone
from toosure.recipes.needed_runs import missing_configs
from toosure.recipes.parameters import learned_size
from toosure.recipes.run_store import RunStore
from toosure.runs import RunWriter
from toosure.train.graph import can_record

KEPT = Path(__file__).parents[2] / "recipes" / "benchmark"
PAPER = Setting()
BOTH = Setting(data="cifar10,cifar100")


# -- runs -----------------------------------------------------------------------------------------


def test_runs_are_those_of_the_benchmark():
    """What the benchmark trains too has the same name, and CE's kept scores count."""
    ours = {config.name for config in common.configs(BOTH)}
    theirs = {config.name for config in methods.table(BOTH)}
    shared = ("sgd", "focal", "mmce", "label_smoothing", "gamma_net")
    for method in shared:
        assert protocol.config(PAPER, method, "cifar100", 0).name in ours & theirs

    kept = replace(BOTH, scores=str(KEPT))
    missing = set(missing_configs(common.configs(kept), kept, Path("nowhere")))
    assert not any(protocol.label(config) == "sgd" for config in missing)
    assert len(common.configs(kept)) - len(missing) >= 6


def test_seeds_methods_and_graphs():
    configs = common.configs(BOTH)
    assert len(configs) == len(set(configs)) == 2 * (5 * 3 + 12)
    main = [row for row in common.rows(BOTH, "cifar10") if row.name in common.MAIN]
    assert {len(row.configs) for row in main} == {3}
    assert {config.seed for config in common.configs(Setting(seeds=(5,)))} == {5}
    every = [*configs, *backbones.configs(BOTH), *cost.configs(BOTH), *sweeps.features(BOTH)]
    assert all(can_record(config) for config in every)


def test_of_two_data_sets_each_part_takes_its_own():
    assert {c.data for c in sweeps.bandwidths(BOTH)} == {"cifar100:augment=true"}
    assert {c.data for c in sweeps.arms(BOTH)} == {"cifar10:augment=true"}
    assert {c.data.partition(":")[0] for c in common.configs(BOTH)} == {"cifar10", "cifar100"}
    assert {c.data for c in sweeps.bandwidths(PAPER)} == {"cifar10:augment=true"}
    automatic = sweeps.bandwidth_configs(PAPER, "auto")
    assert automatic == sweeps.arm_configs(PAPER, "gamma-net (H)")[:1]  # the same run


def test_sece_alone_has_a_trivial_optimum():
    """The shares of the classes for every image: SECE 0, and no slope left."""
    labels = torch.tensor([0, 0, 0, 1])
    logits = torch.tensor([[0.75, 0.25]]).log().repeat(4, 1).requires_grad_()
    loss = SECEAlone(detach=True)(logits, labels)
    assert loss.item() == pytest.approx(0, abs=1e-7)
    wrong = torch.tensor([[0.9, 0.1]]).log().repeat(4, 1)
    assert SECEAlone()(wrong, labels).item() == pytest.approx(0.15, abs=1e-6)


def test_parameters_of_gamma_net_are_counted():
    plain, ours = (protocol.config(PAPER, word, "cifar10", 0) for word in ("sgd", "gamma_net"))
    assert learned_size(plain) == 11_173_962
    assert learned_size(ours) - learned_size(plain) == 512 * 2 + 512 * 128 + 128 + 128 + 1
    tiny = protocol.config(PAPER, "sgd", "tiny_imagenet", 0)
    assert learned_size(tiny) - learned_size(plain) == 190 * 513


# -- claims ---------------------------------------------------------------------------------------


def row(name, *errors, accuracy=0.9, excess=3.0, mce=None, classes=1.0, n=None):
    """A row whose runs have these ECEs in points, over-confident by `excess` points.

    The validation images have the same ECE, and class gaps that differ by `classes` points.
    """
    config = protocol.config(PAPER, "sgd", "cifar10", 0)
    records = []
    for error in errors:
        record = record_with(config, accuracy=accuracy, ece=error / 100)
        more = {"mce": (mce or error) / 100, "confidence": accuracy + excess / 100}
        val = {**record.val, "ece": error / 100, "class_gap_spread": classes / 100}
        records.append(replace(record, test={**record.test, **more}, val=val))
    return ScoredRow(Row(name, (), len(errors) if n is None else n), records)


def hoped():
    rows = {name: row(name, 4, 4, 4) for name in common.methods(PAPER)}
    rows[OURS] = row(OURS, 1.0, 1.5, 1.9)
    rows[ALONE] = row(ALONE, 0.5, 0.5, accuracy=0.1)
    rows[ONE_RATE] = row(ONE_RATE, 1.0, 1.2, 1.4, classes=1.2)
    return rows


def verdicts(setting=PAPER, **changed):
    rows = hoped()
    for name, of in changed.items():
        rows[{"ours": OURS, "alone": ALONE, "slow": ONE_RATE}.get(name, name)] = of
    return [claim.passed for claim in common_claims.claims(setting, "cifar10", rows)]


# CE, accuracy, spread, CE / focal / FLSD-53 by every error, two that do not learn; the same at one
# rate; trivial, level.
def test_all_rules_hold_on_runs_as_hoped():
    assert verdicts() == [True] * 18


@pytest.mark.parametrize(
    ("changed", "place", "passed"),
    [
        ({"ours": row(OURS, 4.1, 4.2, 4.3)}, 0, False),
        ({"CE": row("CE", 4, 4, 4, excess=1.9)}, 0, None),  # not over-confident
        ({"CE": row("CE", 4, 4, n=3)}, 0, None),  # a run is missing
        ({"CE": row("CE")}, 0, None),
        ({"ours": row(OURS, 1, 1, 1, accuracy=0.889)}, 1, False),
        ({"ours": row(OURS, 1, 1, 1, accuracy=0.891)}, 1, True),
        ({"ours": row(OURS, 1.0, 1.5, 2.1)}, 2, False),
        ({"ours": row(OURS)}, 2, None),
        ({"ours": row(OURS, 1, 1, 1, mce=9)}, 4, False),  # of focal, one error is above
        ({"focal": row("focal")}, 4, None),
        ({"gamma fixed at 1": row("gamma fixed at 1", 0.5, 0.5)}, 7, False),
        ({"gamma fixed at 1": row("gamma fixed at 1", 4)}, 7, None),  # n = 1
        ({"gamma fixed at 1": row("gamma fixed at 1")}, 7, None),
        ({"alone": row(ALONE, 0.5, 0.5, accuracy=0.5)}, 16, False),  # it did learn
        ({"alone": row(ALONE, 5, 5, accuracy=0.1)}, 16, False),
        ({"alone": row(ALONE)}, 16, None),
        ({"slow": row(ONE_RATE, 1.0, 1.2, 1.4, classes=0.9)}, 17, False),
        ({"slow": row(ONE_RATE, 1.0, 1.0, 1.0, classes=1.2)}, 17, False),  # ECE + .47
        ({"slow": row(ONE_RATE, 1.0, 1.2, n=3, classes=1.2)}, 17, None),
        ({"slow": row(ONE_RATE)}, 17, None),
    ],
)
def test_each_rule(changed, place, passed):
    assert verdicts(**changed)[place] is passed


def test_nothing_is_judged_on_other_data():
    assert verdicts(Setting(data="tiny_imagenet")) == [None] * 18


def test_rows_take_kept_seeds_that_are_not_trained_here():
    """One seed of Brier is trained; where the benchmark has three, all three are shown."""
    runs = protocol.configs(PAPER, "brier", "cifar10", (0, 1, 2))
    files = ScoreFiles()
    files.records |= {run.name: record_with(run) for run in runs}
    brier = by_name(with_records(common.rows(PAPER, "cifar10"), files))["Brier"]
    assert (len(brier.records), brier.row.expected, brier.missing) == (3, 1, 0)
    one = by_name(with_records(common.rows(Setting(seeds=(1,)), "cifar10"), files))["Brier"]
    assert [record.config.seed for record in one.records] == [1]


# -- cost -----------------------------------------------------------------------------------------


def timed_run(folder, name, step_seconds, command):
    """Write the short run of a method: 10 s until its first row, then so long for a step."""
    config = cost.timed_config(PAPER, name)
    with RunWriter(folder / config.name, asdict(config)) as writer:
        writer.write_environment({"device": "a test", "graph": True, "command": command})
        for step, seconds in ((200, 10.0), (1200, 10.0 + 1000 * step_seconds + 2.0)):
            writer.append({"step": step, "seconds": seconds, "seconds_measuring": 2.0})
        writer.set_status("complete", 1200, "")


def test_cost_and_gain(tmp_path):
    scores = tmp_path / "scores"
    command = "toosure reproduce gamma-net --only cost --graph"
    for name, step_seconds in (("CE", 0.010), (OURS, 0.014)):
        timed_run(tmp_path, name, step_seconds, command)

    runs = {row.name: row.configs for row in common.rows(PAPER, "cifar10")}
    records = [record_with(run, ece=0.04) for run in runs["CE"]]
    records += [record_with(run, ece=0.01) for run in runs[OURS]]
    files = ScoreFiles(scores)
    files.examples |= {record.name: examples_with(0.9, 0.1) for record in records}
    files.write(records)

    setting = Setting(scores=str(scores))
    found = cost.findings(setting, RunStore(tmp_path))
    cells = {row[0]: dict(zip(cost.HEADER, row, strict=True)) for row in found.tables[0].rows}
    assert found.claims[0].found == "1.40 steps"
    assert cells["CE"]["ms a step"] == "10.00" and cells[OURS]["times CE"] == "1.40"
    assert cells[OURS]["seconds of 5,273 steps"] == "74"
    assert (cells[OURS]["ECE"], cells[OURS]["gain over CE, points"]) == ("1.00", "+3.00")
    assert cells[OURS]["gain per minute"] == "+2.44"  # 3 points in 73.8 s


def test_time_that_was_shared_is_not_shown(tmp_path):
    for name in ("CE", OURS):
        timed_run(tmp_path, name, 0.01, "toosure reproduce gamma-net --workers 4")
    found = cost.findings(PAPER, RunStore(tmp_path))
    assert found.claims[0].passed is None and "shared the device" in found.claims[0].note
    row = dict(zip(cost.HEADER, found.tables[0].rows[0], strict=True))
    assert (row["ms a step"], row["ECE"], row["gain per minute"]) == ("–", "–", "–")
    empty = cost.findings(PAPER, RunStore(tmp_path / "none"))
    assert empty.claims[0].note == "no complete run"


# -- other backbones, and the command ------------------------------------------------------------


def test_backbones_are_reported_without_a_verdict():
    configs = backbones.configs(BOTH)
    assert [config.model for config in configs] == ["densenet40"] * 2 + ["vit"] * 2
    assert [config.objective for config in configs] == [
        None,
        "gamma_net:lr=0.001,level_lr=none",
    ] * 2
    assert configs[2].optimizer.startswith("adamw") and configs[0].optimizer.startswith("sgd")

    made = row("made up", 3)
    pairs = {each.name: ScoredRow(each, made.records) for each in backbones.backbone_rows(PAPER)}
    claim = backbones.backbone_claim("small ViT", pairs)
    assert claim.passed is None and "ECE 3.00 : 3.00" in claim.found
    pairs["small ViT, CE"] = row("CE")
    assert backbones.backbone_claim("small ViT", pairs).note == "no complete run"


def reproduce(*words):
    return CliRunner().invoke(app, ["reproduce", *map(str, words)])


def test_the_quick_tables_by_the_command(tmp_path):
    """Trained once, then read from the kept scores, with no folder left."""
    words = ("gamma-net", "--quick", "--only", "common", "--scores", tmp_path / "kept", "--json")
    result = reproduce(*words, "--out", tmp_path / "runs", "--device", "cpu")
    assert result.exit_code == 0, result.output
    part = json.loads(result.stdout)["parts"]["common"]
    names = [row[0] for row in part["tables"][0]["rows"]]
    assert names == [OURS, "CE", "focal", ALONE]
    assert all(len(of) == 1 for of in part["values"]["digits"].values())

    again = reproduce(*words, "--out", tmp_path / "elsewhere", "--device", "cpu")
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout)["parts"]["common"]["tables"] == part["tables"]
    assert not list((tmp_path / "elsewhere").glob("*/config.json"))


def test_parts_and_options_of_the_command():
    parts = [part.name for part in recipe("gamma-net").chosen(())]
    assert parts == ["table", "common", "settling", "bandwidth", "features", "backbones"]
    assert recipe("gamma-net").part("cost").by_default is False
    result = reproduce("gamma-net", "--full", "--list")
    assert result.exit_code == 2 and "no --full" in result.stderr
