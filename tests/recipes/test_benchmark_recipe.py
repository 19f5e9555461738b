"""The benchmark: its words and labels, the kept scores, and a row of one's own by the command."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_up_scores import examples_with, record_with
from typer.testing import CliRunner

from toosure.cli import app
from toosure.recipes import Setting, recipe
from toosure.recipes.benchmark import methods, protocol, tables
from toosure.recipes.benchmark.paired import PairedScores, accuracy_nll_ece
from toosure.recipes.benchmark.record import Record
from toosure.recipes.benchmark.score_files import ScoreFiles, damaged_lines, saved_names
from toosure.recipes.benchmark.scored_rows import ScoredRow
from toosure.recipes.csam import ensemble_rows
from toosure.recipes.csam.unknown_data import unknown_data
from toosure.recipes.parameters import network_size
from toosure.words import parse

KEPT = Path(__file__).parents[2] / "recipes" / "benchmark"
BOTH = Setting(data="cifar10,cifar100", scores=str(KEPT))


def reproduce(*words):
    return CliRunner().invoke(app, ["reproduce", *map(str, words)])


# -- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("sgd", {"optimizer": "sgd:lr=0.1,momentum=0.9,weight_decay=0.0005"}),
        ("sgd:lr=0.05", {"optimizer": "sgd:lr=0.05,momentum=0.9,weight_decay=0.0005"}),
        ("adamw:lr=0.001", {"optimizer": "adamw"}),
        ("sam:base=adamw", {"optimizer": "sam:base=adamw"}),
        ("objective=mixup+focal", {"objective": "mixup", "loss": "focal"}),
        ("swag:rank=5", {"average": "swag:rank=5"}),
        ("mixup+radius", {"objective": "mixup", "control": "radius"}),
    ],
)
def test_a_method_becomes_the_words_of_a_run(method, words):
    assert protocol.words_of(method) == words


@pytest.mark.parametrize(
    ("method", "why"),
    [("focal+mmce", "two words of the kind loss"), ("focall", "`toosure methods` lists them")],
)
def test_a_wrong_method_says_why(method, why):
    assert why in protocol.unknown_word_error(method)
    assert protocol.configs(Setting(), method, "cifar10", [0]) == []
    with pytest.raises(ValueError, match=f"--method {method[:5]}"):
        methods.table(Setting(methods=(method,)))


def test_a_method_added_by_the_command_is_all_that_is_trained():
    runs = methods.table(Setting(methods=("sam:rho=0.3",), data="cifar100"))
    assert [protocol.label(run) for run in runs] == ["sam:rho=0.3"] * 3
    assert [run.data for run in runs][1] == "cifar100:augment=true,seed=1"
    with pytest.raises(ValueError, match="cifar10 and cifar100"):
        methods.table(Setting(data="svhn"))


def test_ccat_attacks_pixels_as_far_as_its_authors():
    """.03 and .005 of [0, 1] pixels: CIFAR's are standardised by about .25."""
    settings = parse("objective", methods.OTHERS["CCAT"]).settings
    assert 0.25 * settings["eps"] == pytest.approx(0.03)
    assert 0.25 * settings["step"] == pytest.approx(0.005)


def test_passes_and_parameters():
    def run(method):
        return protocol.config(Setting(), method, "cifar10", 0)

    passes = {m: tables.passes_text(run(m)) for m in ("sgd", "csam", "mit", "mimo", "gamma_net")}
    assert passes == {"sgd": "1", "csam": "2", "mit": "2", "mimo": "4", "gamma_net": "–"}
    assert tables.passes_text(run("sam+deep_ensemble:members=5")) == "10"
    plain = network_size(run("sgd"))
    assert plain == 11_173_962  # ResNet-18 with the stem of CIFAR
    assert network_size(run("deep_ensemble:members=5")) == 5 * plain
    with pytest.raises(ValueError, match="got imagefolder"):
        network_size(replace(run("sgd"), data="imagefolder:path=here"))


# -- kept scores ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kept():
    return ScoreFiles(KEPT)


def test_every_kept_run_is_one_of_the_recipe(kept):
    """The ids follow from configs, so the first 44 runs, trained by hand, are found again."""
    known = {run.name for run in methods.table(BOTH) + methods.choice(BOTH)}
    first = list(kept.records)[:44]
    assert len(first) == 44 and set(first) <= known and not kept.unreadable
    assert saved_names(BOTH) == set(kept.records)


def test_kept_scores_give_the_published_means(kept):
    groups = tables.grouped(kept, BOTH, "cifar10")
    csam = groups["csam:rho=0.1,gamma=0.5"]
    assert [record.config.seed for record in csam] == [0, 1, 2]
    cells = tables.row("csam", csam)
    assert cells[2:5] == ("92.45 ± 0.12", "0.2191 ± 0.0013", "0.60 ± 0.07")


def test_examples_agree_with_the_scores(kept):
    scores = PairedScores(kept.examples, resamples=1)
    for record in list(kept.records.values())[:6]:
        accuracy, nll, ece = scores.resampled_scores(record.name, accuracy_nll_ece)[0]
        assert accuracy == pytest.approx(100 * record.test["accuracy"])
        assert nll == pytest.approx(record.test["nll"], rel=1e-4)
        assert ece == pytest.approx(100 * record.test["ece"], abs=1e-3)


def test_a_record_survives_its_line():
    record = record_with(protocol.config(Setting(), "sam", "cifar10", 1), sharpness=12.5)
    again = Record.of_values(json.loads(record.line()))
    assert again == record and again.training_seconds == 2.0 and again.data == "cifar10"


def test_a_line_with_an_unknown_word_is_left_out_and_kept_in_the_file(tmp_path):
    record = record_with(protocol.config(Setting(), "sam", "cifar10", 1))
    stranger = json.loads(record.line())
    stranger["name"] = "theirs"
    stranger["config"]["loss"] = "no_such_loss"
    text = record.line() + "\n" + json.dumps(stranger) + "\n"
    (tmp_path / "scores.jsonl").write_text(text)

    files = ScoreFiles(tmp_path)
    assert list(files.records) == [record.name] and "no_such_loss" in files.unreadable[0]
    assert damaged_lines(tmp_path) == 0
    assert saved_names(Setting(scores=str(tmp_path))) == {record.name, "theirs"}

    (tmp_path / "scores.jsonl").write_text(text + record.line()[:50] + "\n7\n")
    assert damaged_lines(tmp_path) == 2

    (tmp_path / "scores.jsonl").write_text(text + record.line()[:50])  # torn by a power cut
    other = record_with(protocol.config(Setting(), "sam", "cifar10", 2))
    ScoreFiles(tmp_path).write([other, replace(other, name="another")])
    assert list(ScoreFiles(tmp_path).records) == [record.name, other.name, "another"]
    assert damaged_lines(tmp_path) == 1

    (tmp_path / "scores.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"scores\.jsonl is damaged"):
        damaged_lines(tmp_path)


# -- shifts ---------------------------------------------------------------------------------------


def shifts_with(auroc=0.9, ece=0.2, images=100, corruptions=15):
    scores = {"confidence": {"auroc": auroc, "fpr95": 0.5}}
    return {
        "images": images,
        "available": 100,
        "corruptions": corruptions,
        "severities": [1, 2, 3, 4, 5],
        "mean": {"ece": ece},
        "ood": {name: {"images": 9, "scores": scores} for name in ("cifar100", "corrupted")},
    }


def test_the_columns_of_shifts_are_of_the_runs_that_were_judged():
    config = protocol.config(Setting(), "sgd", "cifar10", 0)
    records = [replace(record_with(config), shifts=each) for each in (None, shifts_with())]
    cells = dict(zip(tables.HEADER, tables.row("sgd", records), strict=True))
    assert cells["OOD AUROC"] == "90.00 (1 of 2)"
    assert cells["ECE under 15 x 5 corruptions"] == "20.00 (1 of 2)"

    # On CIFAR-100 the unknown set is CIFAR-10; a mean over other corruptions is not the column's.
    other = protocol.config(Setting(), "sgd", "cifar100", 0)
    record = replace(record_with(other), shifts=shifts_with(corruptions=2, images=50))
    cells = dict(zip(tables.HEADER, tables.row("sgd", [record]), strict=True))
    assert cells["OOD AUROC"] == cells["ECE under 15 x 5 corruptions"] == "–"
    few = replace(record_with(config), shifts=shifts_with(images=50))
    assert dict(zip(tables.HEADER, tables.row("sgd", [few]), strict=True))["OOD AUROC"] == (
        "90.00, 50 images"
    )


def test_table_1_of_csam_has_its_right_half():
    setting = Setting()
    row = ensemble_rows.ood(setting)[0]
    records = [replace(record_with(c), shifts=shifts_with()) for c in row.configs]
    table = unknown_data([ScoredRow(row, records)])
    cells = dict(zip(table.header, table.rows[0], strict=True))
    assert cells["corrupted"].startswith("90.00") and cells["svhn"] == "–"
    assert cells["paper: SVHN"] == "83.94 ± .96"

    few = [replace(each, shifts=shifts_with(images=50)) for each in records[:1]]
    table = unknown_data([ScoredRow(row, few)])
    assert dict(zip(table.header, table.rows[0], strict=True))["corrupted"] == "90.00, 50 images"


def test_runs_without_shifts_are_missing_once_shifts_are_asked_for(tmp_path):
    words = ("benchmark", "--quick", "--seed", "0", "--method", "sgd", "--device", "cpu")
    words += ("--scores", tmp_path / "kept", "--out", tmp_path / "runs")
    assert reproduce(*words).exit_code == 0
    judged = (*words, "--shift", "all:images=20")
    assert "(1 runs, 1 missing)" in reproduce(*judged, "--list").stdout

    result = reproduce(*judged)
    assert result.exit_code == 0 and "20 of 200 test images" in result.stdout, result.output
    first, second = (tmp_path / "kept" / "scores.jsonl").read_text().splitlines()
    assert json.loads(first)["shifts"] is None
    assert json.loads(second)["shifts"]["ood"].keys() == {"corrupted", "noise"}
    (record,) = ScoreFiles(tmp_path / "kept").records.values()  # the later line counts
    assert record.shifts["images"] == 20

    shutil.rmtree(tmp_path / "runs")  # its scores are enough
    assert "0 missing" in reproduce(*judged, "--list").stdout
    assert "judging" not in reproduce(*judged).stdout


# -- paired differences ---------------------------------------------------------------------------


def test_differences_pair_equal_seeds():
    first = [record_with(protocol.config(Setting(), "sgd", "cifar10", s)) for s in (0, 1, 2)]
    second = [record_with(protocol.config(Setting(), "sam", "cifar10", s)) for s in (2, 1, 7)]
    examples = {r.name: examples_with(0.9, 0.05) for r in first}
    examples |= {r.name: examples_with(0.92, 0.01) for r in second}

    result = PairedScores(examples, resamples=40).differences(first, second)
    assert result.seeds == 2
    assert result.accuracy.value == pytest.approx(2) and result.nll.value == 0
    assert result.ece.value == pytest.approx(-4, abs=1e-4) and result.ece.below_zero
    assert result.accuracy.low < 2 < result.accuracy.high
    assert PairedScores({}).differences(first, second) is None


def test_the_interval_of_a_share_is_that_of_the_binomial():
    """Against the closed form: images that only one of two networks gets right."""
    first = [record_with(protocol.config(Setting(), "sgd", "cifar10", 0))]
    second = [record_with(protocol.config(Setting(), "sam", "cifar10", 0))]
    examples = {
        first[0].name: examples_with(0.90, 0.0),
        second[0].name: examples_with(0.95, 0.0),
    }
    result = PairedScores(examples, resamples=800).differences(first, second).accuracy
    deviation = 100 * np.sqrt(0.05 * 0.95 / 2000)
    assert result.high - result.low == pytest.approx(2 * 1.96 * deviation, rel=0.1)


# -- the command ----------------------------------------------------------------------------------


def test_a_row_of_ones_own_stays_when_its_run_folder_is_gone(tmp_path):
    runs = tmp_path / "runs"
    words = ("benchmark", "--quick", "--seed", "0", "--out", runs, "--device", "cpu")
    words += ("--scores", tmp_path / "kept", "--write", tmp_path / "RESULTS.md")
    first = reproduce(*words, "--method", "sgd", "--method", "focal", "--limit", 1)
    assert first.exit_code == 1 and "1 of 1: complete" in first.stdout  # one is missing

    second = reproduce(*words, "--method", "sgd", "--method", "focal")
    assert second.exit_code == 0, second.output
    assert "1 of 1: complete" in second.stdout
    lines = (tmp_path / "kept" / "scores.jsonl").read_text().splitlines()
    assert len(lines) == 2
    text = (tmp_path / "RESULTS.md").read_text()
    assert "| `focal` | 1 |" in text and "| `sgd` | 1 |" in text

    shutil.rmtree(runs)
    third = reproduce(*words, "--method", "focal")
    assert third.exit_code == 0 and "complete at step" not in third.stdout
    assert "| `sgd` | 1 |" in (tmp_path / "RESULTS.md").read_text()  # of the kept scores

    listed = reproduce(*words, "--method", "focal", "mixup", "--list")
    assert "(2 runs, 1 missing)" in listed.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("too-sharp", "--method", "sam"), "too-sharp has no --method"),
        (("too-sharp", "--data", "cifar10,cifar100"), "takes one data set"),
        (("csam", "--method", "sam"), "csam has no --method: it is for benchmark, radius"),
        (("benchmark", "--full"), "benchmark has no --full: it is for csam"),
        (("gamma-net", "--shift", "all"), "has no --shift: it is for benchmark, csam, radius"),
        (("csam", "--full", "--quick"), "exclude each other"),
        (("too-sharp", "--shift", "all"), "too-sharp has no --shift"),
        (("benchmark", "--ood", "noise"), "--ood goes with --shift all"),
        (("benchmark", "--shift", "fog:3"), "judges every corruption; got 'fog:3'"),
        (("csam", "--data", "svhn", "--list"), "csam runs on cifar10 and cifar100"),
        (
            ("benchmark", "--method", "focall", "--list"),
            "no optimizer, loss, objective, average or control",
        ),
    ],
)
def test_wrong_options_say_what_is_wrong(words, message):
    result = reproduce(*words)
    assert result.exit_code == 2 and message in " ".join(result.output.split())


def test_the_parts_of_csam_are_listed_with_their_runs():
    result = reproduce("csam", "--list", "--data", "cifar10,cifar100", "--scores", KEPT)
    assert result.exit_code == 0
    lines = {line.split()[0]: line for line in result.stdout.splitlines()}
    for part, runs in {"sam-variants": 35, "baselines": 70, "losses": 42, "grid": 20}.items():
        assert f"({runs} runs" in lines[part]
    assert set(lines) == {part.name for part in recipe("csam").parts}
    assert "by name: --only figures" in lines["figures"] and "--only" not in lines["grid"]


@pytest.mark.slow
def test_csam_quick_from_the_command_to_the_page(tmp_path):
    out = tmp_path / "runs"
    where = ("--out", out, "--device", "cpu", "--write", tmp_path / "RESULTS.md")
    result = reproduce("csam", "--quick", "--seed", "0", "--data", "cifar10,cifar100", *where)
    assert result.exit_code == 0, result.output
    text = (tmp_path / "RESULTS.md").read_text()
    for part in ("sam-variants", "baselines", "losses", "grid", "sharpness", "ood"):
        assert f"\n## {part}: " in text
    assert "kappa_max" in text and "no claim is judged" in text
