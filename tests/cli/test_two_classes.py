"""Two classes in files and runs: P(class 1) or the predicted class is judged, and said."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from toosure.cli import app
from toosure.evaluate import Estimate
from toosure.metrics import ece_from_confidence
from toosure.predictions import from_probs
from toosure.recalibration import recalibrate

RUN = CliRunner()
P = np.random.default_rng(0).random(120) ** 3
Y = (np.random.default_rng(1).random(120) < 0.7 * P).astype(int)  # P(class 1) is too high
Q = 0.5 + 0.9 * (P - 0.5)


def toosure(*words, code=0):
    result = RUN.invoke(app, list(map(str, words)))
    assert result.exit_code == code, result.output
    return result


def numbers(*words):
    return json.loads(toosure(*words, "--json").stdout)


def table(path, **columns):
    rows = zip(*(np.asarray(values).tolist() for values in columns.values()), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]))
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The same predictions as one column, as two, and as a run of a binary model keeps them."""
    tmp_path = tmp_path_factory.mktemp("files")
    table(tmp_path / "one.csv", prob=P, label=Y)
    table(tmp_path / "calm.csv", prob=Q, label=Y)
    table(tmp_path / "two.csv", p_0=1 - P, p_1=P, label=Y)
    z = np.log(P) - np.log(1 - P)
    (tmp_path / "run").mkdir()
    logits = np.stack([np.zeros(120), z], 1)
    np.savez(tmp_path / "run" / "predictions.npz", val_logits=logits, val_labels=Y)
    np.savez(tmp_path / "three.npz", logits=2 * np.eye(3), labels=[0, 1, 2])
    return tmp_path


@pytest.fixture(scope="module")
def one(files):
    return numbers("evaluate", files / "one.csv")


@pytest.fixture(scope="module")
def two(files):
    return numbers("evaluate", files / "two.csv")


def test_a_run_of_one_output_is_judged_as_its_one_column(files, one):
    run = numbers("evaluate", files / "run", "--split", "val")
    assert one["of"] == run["of"] == "class 1"
    assert run["ece"] == pytest.approx(one["ece"], abs=1e-9)
    said = toosure("evaluate", files / "run", "--split", "val")
    assert "one logit of class 1" in said.stderr
    assert "are of P(class 1); --top-label judges the predicted class." in said.stdout


def test_either_way_of_judging_two_classes(files, one, two):
    assert two["of"] == "the predicted class" and two["ece"] != pytest.approx(one["ece"], abs=0.02)
    assert numbers("evaluate", files / "two.csv", "--class-1") == one
    assert numbers("evaluate", files / "one.csv", "--top-label") == two
    said = toosure("evaluate", files / "two.csv").stdout
    assert "are of the predicted class; --class-1 judges P(class 1)." in said

    both = toosure("evaluate", files / "one.csv", files / "two.csv").stdout
    assert "of P(class 1): one.csv.\n" in both and "of the predicted class: two.csv.\n" in both

    for option in ("--top-label", "--class-1"):
        refusal = toosure("evaluate", files / "three.npz", option, code=2).stderr
        assert "are of two classes; three.npz has 3 classes" in refusal


def test_compare_says_what_is_compared(files, one):
    mixed = toosure("compare", files / "one.csv", files / "two.csv").stdout
    assert "smECE are of the predicted class, since two.csv holds both classes; --class-1" in mixed
    asked = numbers("compare", files / "one.csv", files / "two.csv", "--class-1")
    assert asked["of"] == "class 1"
    assert asked["differences"]["ece"]["second"] == pytest.approx(one["ece"])
    page = files / "a.html"
    toosure("compare", files / "one.csv", files / "calm.csv", "-o", page)
    assert "frequency of class 1 over P(class 1)" in page.read_text(encoding="utf-8")


def test_an_ensemble_of_one_column_is_judged_as_its_members_are(files):
    members = (files / "one.csv", files / "calm.csv")
    found = numbers("ensemble", *members, "--bins", "10", "-o", files / "mix.npz")
    alone = [float(ece_from_confidence(p, Y, bins=10)) for p in (P, Q)]
    assert [each["ece"] for each in found["members"]] == pytest.approx(alone)
    assert np.load(files / "mix.npz")["logits"].shape == (120,)
    again = numbers("evaluate", files / "mix.npz", "--bins", "10")
    assert again["of"] == found["of"] == "class 1"
    assert again["ece"] == pytest.approx(found["ece"])
    said = toosure("ensemble", *members).stdout
    assert "gap: mean P(class 1) minus the frequency" in said and "--all" not in said


def test_an_ensemble_reads_its_files_as_it_is_told(files):
    rng = np.random.default_rng(0)
    for name in ("first.csv", "second.csv"):
        p = rng.dirichlet([1, 1, 1], 30)
        columns = dict(zip(("p_1", "p_2", "p_3"), p.T, strict=True))
        table(files / name, **columns, label=np.arange(30) % 2 + 1)
    members = ("ensemble", files / "first.csv", files / "second.csv")
    assert "--classes 0,1,2 for numbers" in toosure(*members, code=2).stderr
    for classes, mean in (("1,2,3", 0.5), ("0,1,2", 1.5)):
        toosure(*members, "--classes", classes, "-o", files / "told.npz")
        assert np.load(files / "told.npz")["labels"].mean() == mean
    assert toosure("evaluate", files / "told.npz").stderr == ""
    refusal = toosure(*members, "--shifts", "--classes", "1,2,3", code=2).stderr
    assert "--classes does not go with --shifts" in refusal


def test_binary_brier_is_a_number_to_check(files, one, two):
    for name, found in (("one.csv", one), ("two.csv", two)):
        brier = found["binary_brier"]
        assert brier == pytest.approx(np.mean((P - Y) ** 2))
        toosure("evaluate", files / name, "--fail-if", f"binary_brier > {brier - 0.05}", code=1)
        toosure("evaluate", files / name, "--fail-if", f"binary_brier > {brier}")
    words = ("evaluate", files / "three.npz", "--fail-if", "binary_brier > 0.1")
    assert "it needs two classes; name brier otherwise" in toosure(*words, code=2).stderr


def test_calibrate_names_the_larger_gap_as_evaluate_does():
    after = recalibrate(from_probs(P, Y), method="temperature")
    assert after.class_one and after.as_json()["of"] == "class 1"
    low, high = Estimate(-0.019, -0.03, -0.008), Estimate(0.023, 0.012, 0.034)
    for gap, top_gap, words in (
        (low, high, "They are then over-confident by 2.3 ± 1.1 points on average"),
        (high, low, "P(class 1) is then too high by 2.3 ± 1.1 points"),
        (low, Estimate(0.023, -0.01, 0.05), "P(class 1) is then too low by 1.9 ± 1.1 points"),
        (Estimate(0.001, -0.01, 0.02), Estimate(0.001, -0.01, 0.02), ""),
    ):
        assert replace(after, gap_after=gap, top_gap_after=top_gap).remaining == words


def test_apply_keeps_the_name_of_the_one_column(files):
    words = np.where(Y == 1, "sick", "healthy")
    table(files / "named.csv", p_sick=P, label=words)
    table(files / "logits.csv", logit_sick=10 * P - 3, label=words)
    toosure("calibrate", files / "named.csv", "--method", "platt", "-o", files / "c.pt")
    after = files / "after.csv"
    for name in ("named.csv", "logits.csv"):
        toosure("apply", files / "c.pt", files / name, "-o", after)
        assert after.read_text().partition("\n")[0] == "label,p_sick"
    toosure("compare", files / "named.csv", after)

    table(files / "risk.csv", risk=P, label=Y)  # the same options read both
    toosure("apply", files / "c.pt", files / "risk.csv", "--columns", "risk", "-o", after)
    toosure("compare", files / "risk.csv", after, "--columns", "risk")


@pytest.mark.parametrize("option", [("--device", "cpu"), ("--data-root", "data")])
def test_options_of_shifts_and_laplace_go_with_nothing_else(files, option):
    one, calm = files / "one.csv", files / "calm.csv"
    goes = f"{option[0]} goes with "
    assert f"{goes}--shift or --shifts" in toosure("evaluate", one, *option, code=2).stderr
    assert f"{goes}--shifts" in toosure("ensemble", one, calm, *option, code=2).stderr
    assert f"{goes}--method laplace" in toosure("calibrate", one, *option, code=2).stderr


def test_a_table_of_groups_is_not_cut(files):
    columns = {"prob": P, "label": Y, "site": ["a-rather-long-name", "b"] * 60}
    said = toosure("evaluate", table(files / "a.csv", **columns), "--by", "site").stdout
    assert "…" not in said and "Cannot tell with 60 samples" in said.splitlines()[-3]


def test_a_condition_on_the_gap_says_whose_gap_it_is(files):
    """A classifier may be over-confident while its P(class 1) is too low, by a gap below 0."""
    condition = ("--fail-if", "gap > 0.9")
    assert "(gap of P(class 1) is 0.0" in toosure("evaluate", files / "one.csv", *condition).stderr
    assert "(gap is 0.0" in toosure("evaluate", files / "two.csv", *condition).stderr
