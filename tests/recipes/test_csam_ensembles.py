"""Table 1's ensembles: mixtures of single runs, which of these are missing, and what is kept."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from fake_runs import write_run
from made_up_scores import examples_with, mixture_with, record_with
from typer.testing import CliRunner

from toosure import metrics
from toosure.cli import app
from toosure.posthoc import Temperature
from toosure.recipes import RunStore, Setting, recipe, reproduce
from toosure.recipes.benchmark import mixture_shifts
from toosure.recipes.benchmark.score_files import ScoreFiles, score_files
from toosure.recipes.csam import ensemble_rows, parts
from toosure.recipes.needed_runs import SavedScores, missing_configs
from toosure.recipes.recipe import RunMixture
from toosure.recipes.reproduce import train_parts
from toosure.runs import Run
from toosure.shifts.plan import plan_of
from toosure.shifts.record import ShiftRecord
from toosure.sweep import Sweep
from toosure.train import Runtime

PART = recipe("csam").part("ood")
SHIFTS = {"images": 9, "available": 9, "ood": {}}
CELL = {"accuracy": 0.5, "nll": 1.0, "ece": 0.25, "smece": 0.25}


def row_named(setting, name):
    return next(row for row in ensemble_rows.ood(setting) if row.name == name)


# -- which runs -----------------------------------------------------------------------------------


def test_an_ensemble_is_five_runs_of_the_row_beside_it():
    setting = Setting()
    vanilla = row_named(setting, "SAM/Vanilla").configs
    (mixture,) = row_named(setting, "SAM/Ensemble").mixtures
    assert [member.seed for member in mixture.members] == [0, 1, 2, 3, 4]
    assert mixture.members[:3] == vanilla and mixture.extra == set(mixture.members[3:])
    assert mixture.config == vanilla[0]
    assert [member.data for member in mixture.members][3] == "cifar10:augment=true,seed=3"
    assert len(set(PART.configs(setting))) == 3 * (5 + 1)


def test_mixtures_of_several_seeds_share_no_member():
    setting = Setting(full=True)
    mixtures = row_named(setting, "SGD/Ensemble").mixtures
    assert [mixture.config.seed for mixture in mixtures] == [0, 1, 2]  # as the rows beside it
    seeds = [member.seed for mixture in mixtures for member in mixture.members]
    assert seeds == list(range(15)) and len({mixture.name for mixture in mixtures}) == 3


def test_before_a_deadline_the_members_of_an_ensemble_follow_one_another(tmp_path, monkeypatch):
    """Two of the five are not judged alone. All five folders must be there to make the ensemble."""
    started = []
    monkeypatch.setattr(
        reproduce, "sweep", lambda configs, *_, **__: started.extend(configs) or Sweep()
    )
    runtime = Runtime("cpu", shifts=plan_of("all"))
    train_parts([PART], Setting(shift="all"), tmp_path, runtime, minutes=5)
    assert len(started) == 18
    for mixture in PART.mixtures(Setting()):
        first = started.index(mixture.members[0])
        assert started[first : first + 5] == list(mixture.members)


def missing(setting, out):
    configs = dict.fromkeys(PART.configs(setting))
    return {
        config.name for config in missing_configs(configs, setting, out, PART.mixtures(setting))
    }


def names(configs):
    return {config.name for config in configs}


@pytest.fixture
def kept(tmp_path):
    """The scores of every single run of Table 1, without shifts; no mixture, and no folder."""
    setting = Setting(scores=str(tmp_path / "kept"))
    alone = [c for row in ensemble_rows.ood(setting) for c in row.configs]
    ScoreFiles(tmp_path / "kept").write([record_with(config) for config in alone])
    return setting


def test_members_are_missing_until_their_mixture_is_kept(kept, tmp_path):
    nothing = Setting()
    assert missing(nothing, tmp_path) == names(PART.configs(nothing))

    # Scores of single runs do not give their mixture: all five are needed again.
    mixtures = PART.mixtures(kept)
    members = names(member for mixture in mixtures for member in mixture.members)
    assert missing(kept, tmp_path) == members and len(members) == 15
    scores = SavedScores(kept, mixtures)
    judged_alone = [c for c in PART.configs(kept) if scores.needs_scores(c)]
    assert judged_alone == []  # they are trained for the mixture, not to be judged again

    score_files(kept).write([mixture_with(mixture) for mixture in mixtures[:2]])
    assert missing(kept, tmp_path) == names(mixtures[2].members)


def test_with_shifts_a_mixture_is_kept_once_it_was_judged_on_them(kept, tmp_path):
    mixtures = PART.mixtures(kept)
    score_files(kept).write([mixture_with(mixture) for mixture in mixtures])
    assert missing(kept, tmp_path) == set()
    shifts = replace(kept, shift="all:images=20")
    assert missing(shifts, tmp_path) == names(PART.configs(shifts))

    records = [replace(mixture_with(mixture), shifts=SHIFTS) for mixture in mixtures]
    score_files(kept).write(records)
    alone = [c for row in ensemble_rows.ood(kept) for c in row.configs]
    assert missing(shifts, tmp_path) == names(alone)  # members 3 and 4 are shown nowhere


# -- scores ---------------------------------------------------------------------------------------


def runs_with_predictions(out, configs):
    """Write run folders; return logits (M, N, C) of test and validation images, and labels."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 3
    logits = torch.randn(len(configs), 2, 60, 3, generator=generator, dtype=torch.float64)
    logits += torch.nn.functional.one_hot(labels)  # better than chance
    for config, (test, val) in zip(configs, logits, strict=True):
        write_run(out, config, train_ece=[0.5, 0.4, 0.3])
        arrays = {"test_logits": test, "test_labels": labels, "val_logits": val}
        np.savez(out / config.name / "predictions.npz", **arrays, val_labels=labels)
    return logits[:, 0], logits[:, 1], labels


def test_the_scores_of_a_mixture_are_those_of_the_mean_probability(kept, tmp_path):
    mixture = PART.mixtures(kept)[0]
    test, _, labels = runs_with_predictions(tmp_path / "runs", mixture.members)
    score_files(kept).add_mixtures([mixture], RunStore(tmp_path / "runs"))

    shutil.rmtree(tmp_path / "runs")
    files = score_files(kept)
    record = files.mixtures[mixture.name]
    mixed = test.softmax(-1).mean(0).log()
    for name in ("accuracy", "nll", "ece", "smece", "brier"):
        expected = float(getattr(metrics, name)(mixed, labels))
        assert record.test[name] == pytest.approx(expected), name
    assert record.members == [member.name for member in mixture.members]
    assert record.seconds == 5.0 and record.shifts is None and record.config.seed == 0

    examples = files.examples[mixture.name]
    assert examples["correct"].mean() == pytest.approx(record.test["accuracy"])
    assert -examples["log_probability"].mean() == pytest.approx(record.test["nll"], rel=1e-6)
    # The protocol splits by the seed: each member was trained on the others' validation images.
    assert record.temperature is None and record.test_after_temperature == {} == record.val
    assert "confidence_after" not in examples


def test_members_of_the_same_split_have_a_temperature(tmp_path):
    first = PART.mixtures(Setting())[0].config
    members = tuple(replace(first, seed=seed) for seed in (0, 1))
    mixture = RunMixture(first, members)
    test, val, labels = runs_with_predictions(tmp_path, members)
    files = ScoreFiles()
    files.add_mixtures([mixture], RunStore(tmp_path))
    record = files.mixtures[mixture.name]

    fitted = Temperature().fit(val.softmax(-1).mean(0).log(), labels)
    assert record.temperature == pytest.approx(float(fitted.temperature), rel=1e-4)
    after = test.softmax(-1).mean(0).log() / record.temperature
    expected = float(metrics.nll(after, labels))
    assert record.test_after_temperature["nll"] == pytest.approx(expected)
    assert "confidence_after" in files.examples[mixture.name]


def test_a_mixture_that_is_judged_later_is_kept_again_with_its_shifts(kept, tmp_path):
    mixture = PART.mixtures(kept)[0]
    out = tmp_path / "runs"
    runs_with_predictions(out, mixture.members)
    for _ in range(2):
        score_files(kept).add_mixtures([mixture], RunStore(out))
    record = ShiftRecord(9, 9, dict(CELL), {("fog", 1): dict(CELL)})
    file = mixture_shifts.shifts_file(out, mixture)
    file.parent.mkdir()
    file.write_text(json.dumps(record.as_json()))
    for _ in range(2):
        score_files(kept).add_mixtures([mixture], RunStore(out))

    first, second = (tmp_path / "kept" / "mixtures.jsonl").read_text().splitlines()
    assert json.loads(first)["shifts"] is None
    assert json.loads(second)["shifts"]["mean"]["ece"] == 0.25
    assert score_files(kept).mixtures[mixture.name].shifts["images"] == 9


def test_mixtures_are_scored_before_they_are_judged_which_takes_minutes(
    kept, tmp_path, monkeypatch
):
    mixture = PART.mixtures(kept)[0]
    runs_with_predictions(tmp_path / "runs", mixture.members)

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(ensemble_rows, "judge_mixtures", stop)
    with pytest.raises(KeyboardInterrupt):
        PART.after_training(kept, RunStore(tmp_path / "runs"), Runtime("cpu"))
    assert list(score_files(kept).mixtures) == [mixture.name]


def test_a_mixture_waits_for_all_of_its_members(kept, tmp_path):
    mixture = PART.mixtures(kept)[0]
    runs_with_predictions(tmp_path / "runs", mixture.members[:4])
    store = RunStore(tmp_path / "runs")
    files = score_files(kept)
    files.add_mixtures([mixture], store)
    assert files.mixtures == {} and store.problems == {mixture.members[4].name: "missing"}


def test_the_claims_pair_a_mixture_with_the_single_run_of_its_seed(kept, tmp_path):
    """Every number comes from files: three vanilla runs, and one mixture for each optimizer."""
    files = score_files(kept)
    singles = list(files.records.values())
    mixed = [mixture_with(mixture, ece=0.01) for mixture in PART.mixtures(kept)]
    files.examples |= {record.name: examples_with(0.9, 0.03) for record in singles}
    files.examples |= {record.name: examples_with(0.9, 0.01) for record in mixed}
    files.write([*singles, *mixed])

    found = parts.ood(kept, RunStore(tmp_path / "none"))
    claims = {claim.statement: claim for claim in found.claims}
    for optimizer in ("SGD", "SAM", "CSAM"):
        claim = claims[f"Ensemble lowers the ECE of {optimizer}"]
        assert claim.passed is True and "paired -2.00" in claim.found and "(n = 1)" in claim.found
    table, unknown = found.tables
    row = next(row for row in table.rows if row[0] == "SGD/Ensemble (5 runs of `sgd`)")
    assert dict(zip(table.header, row, strict=True))["TCE"] == "–"
    assert any(row[0] == "SGD/Ensemble (5 runs of `sgd`)" for row in unknown.rows)
    assert found.values["cifar10/SGD/Ensemble/resnet18"][0]["tce"] is None


# -- the command ----------------------------------------------------------------------------------


def test_quick_with_shifts_keeps_mixtures_when_the_run_folders_are_gone(tmp_path):
    out, scores = tmp_path / "runs", tmp_path / "kept"
    words = ["reproduce", "csam", "--quick", "--only", "ood", "--seed", "0", "--device", "cpu"]
    words += ["--out", str(out), "--scores", str(scores), "--shift", "all:images=20"]

    def call(*more):
        return CliRunner().invoke(app, [*words, *more])

    assert "(18 runs, 18 missing)" in call("--list").stdout
    first = call()
    assert first.exit_code == 0, first.output
    assert first.stdout.count("complete at step") == 18

    # Members that no row shows are not judged alone; the mixture is.
    setting = Setting(quick=True, seeds=(0,), scores=str(scores), shift="all:images=20")
    for mixture in PART.mixtures(setting):
        shifts = [bool(Run(out / member.name).shifts) for member in mixture.members]
        assert shifts == [True] + 4 * [False]
        record = score_files(setting).mixtures[mixture.name]
        assert record.shifts["images"] == 20 and set(record.shifts["ood"]) == {"corrupted", "noise"}
        assert "energy" not in record.shifts["ood"]["noise"]["scores"]
        assert record.temperature is not None  # digits have one split for all seeds

    shutil.rmtree(out)
    assert "(18 runs, 0 missing)" in call("--list").stdout
    again = call()
    assert again.exit_code == 0, again.output
    assert "complete at step" not in again.stdout
    assert again.stdout.count("Ensemble (5 runs of") == first.stdout.count("Ensemble (5 runs of")
