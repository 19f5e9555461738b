"""evaluate, compare, apply and calibrate on files as they come: what is said, and exit codes."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from toosure.cli import app
from toosure.cli.spinner import Spinner
from toosure.posthoc import Temperature, save_calibrator
from toosure.runs.files import check_target

RUN = CliRunner()


def toosure(*words):
    return RUN.invoke(app, list(map(str, words)))


def refused(*words):
    """The one line with which a command ends in exit code 2."""
    result = toosure(*words)
    assert result.exit_code == 2 and result.stdout == "", result.output
    assert result.stderr.count("\n") == 1 and result.stderr.startswith("toosure: ")
    return result.stderr


@pytest.fixture
def files(tmp_path):
    """Over-confident logits, the same ones halved, and a table with sites, of 200 rows."""
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(200, 3))
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    labels = np.array([rng.choice(3, p=row) for row in probs])
    np.savez(tmp_path / "sure.npz", logits=3 * logits, labels=labels)
    np.savez(tmp_path / "calm.npz", y_prob=probs, y_true=labels.astype(float))

    lines = ["id,site,p_x,p_y,p_z,target"]
    for i, (row, label) in enumerate(zip(probs, labels, strict=True)):
        cells = [i, "north" if i % 2 else "south", *row, "xyz"[label]]
        lines.append(",".join(map(str, cells)))
    (tmp_path / "table.csv").write_text("\n".join(lines))
    return tmp_path


def test_six_numbers_first_and_all_on_request(files):
    short = toosure("evaluate", files / "sure.npz")
    assert short.exit_code == 0 and short.stderr == ""
    first = [line.split()[0] for line in short.stdout.splitlines() if line[:1].islower()]
    assert first[:7] == ["metric", "accuracy", "nll", "brier", "ece", "smece", "aurc"]
    assert "--all prints the other metrics." in short.stdout and "mce" not in first
    long = toosure("evaluate", files / "sure.npz", "--all").stdout
    assert all(f"\n{name} " in long for name in ("mce", "kde_ece", "auroc_ovr", "ece", "smece"))


def test_what_was_guessed_is_said_once(files):
    result = toosure("evaluate", files / "table.csv")
    assert result.stderr == (
        "table.csv: read 3 probability columns p_x, p_y, p_z, labels from 'target', "
        "left out id, site\n"
    )


def test_several_files_make_one_table(files):
    result = toosure("evaluate", files / "sure.npz", files / "calm.npz")
    assert result.exit_code == 0, result.output
    assert "sure.npz: Over-confident by " in result.stdout
    assert [line.split()[0] for line in result.stdout.splitlines() if ".npz  " in line] == [
        "sure.npz",
        "calm.npz",
    ]
    objects = toosure("evaluate", files / "sure.npz", files / "calm.npz", "--json").stdout
    assert [json.loads(line)["file"] for line in objects.splitlines()] == ["sure.npz", "calm.npz"]
    words = refused("evaluate", files / "sure.npz", files / "sure.npz", "-o", files / "a.html")
    assert "--html goes with one file; got 2" in words


def test_npy_files(files):
    arrays = np.load(files / "sure.npz")
    np.save(files / "logits.npy", arrays["logits"])
    np.save(files / "y.npy", arrays["labels"])
    both = toosure("evaluate", files / "y.npy", files / "logits.npy")
    named = toosure("evaluate", files / "logits.npy", "--labels", files / "y.npy")
    assert both.stdout == named.stdout == toosure("evaluate", files / "sure.npz").stdout
    assert "read logits from 'logits.npy', labels from 'y.npy'" in named.stderr
    assert "scores and labels" in refused("evaluate", files / "logits.npy")
    assert "no such file" in refused("evaluate", files / "none.npy", files / "y.npy")


def test_a_condition_decides_the_exit_code(files):
    fails = toosure("evaluate", files / "sure.npz", "--fail-if", "ece > 0.05")
    assert fails.exit_code == 1 and "--fail-if fails: ece > 0.05 (ece is 0." in fails.stderr
    passes = toosure(
        "evaluate", files / "calm.npz", "--fail-if", "ece > 0.2", "--fail-if", "mce>.99"
    )
    assert passes.exit_code == 0 and passes.stderr.count("--fail-if passes: not") == 2
    both = toosure("evaluate", files / "sure.npz", files / "calm.npz", "--fail-if", "ece > 0.05")
    named = [
        line.partition(": --fail-if")[0] for line in both.stderr.splitlines() if "--fail" in line
    ]
    assert both.exit_code == 1 and [Path(each).name for each in named] == ["sure.npz", "calm.npz"]
    assert "did you mean 'ece'" in refused("evaluate", files / "sure.npz", "--fail-if", "ecce > 1")
    assert "is not a condition" in refused("evaluate", files / "sure.npz", "--fail-if", "nonsense")


def test_classes_that_are_wrong_are_named(tmp_path):
    """Three classes of 80 %: one is right in 95 %, one in 65 %."""
    rng = np.random.default_rng(0)
    predicted = rng.integers(3, size=3000)
    probs = np.full((3000, 3), 0.1)
    probs[np.arange(3000), predicted] = 0.8
    right = rng.random(3000) < np.array([0.95, 0.8, 0.65])[predicted]
    labels = np.where(right, predicted, (predicted + 1) % 3)
    file = tmp_path / "classes.npz"
    np.savez(file, probs=probs, labels=labels, class_names=np.array(["cat", "dog", "bird"]))

    result = toosure("evaluate", file, "--fail-if", "class_gap > 0.05")
    assert result.exit_code == 1 and "fails: class_gap > 0.05 (class_gap is 0.1" in result.stderr
    headline, _, _, reason, *_ = result.stdout.splitlines()
    assert headline == "Not right for every class; on average, cannot tell with 3,000 samples."
    assert "`cat` is under-confident by 15.9 points" in reason
    assert "`bird` over-confident by 14.7 (n = 1,043, " in reason

    found = json.loads(toosure("evaluate", file, "--json").stdout)["class_gaps"]
    assert sorted(found["miscalibrated"]) == ["bird", "cat"] and found["p_value"] < 0.01
    assert [each["class"] for each in found["classes"]] == ["cat", "dog", "bird"]


def test_subgroups(files):
    result = toosure("evaluate", files / "table.csv", "--by", "site")
    assert result.exit_code == 0, result.output
    assert "north" in result.stdout and "(Bonferroni: each is taken at 97.5 %)" in result.stdout
    found = json.loads(toosure("evaluate", files / "table.csv", "--by", "site", "--json").stdout)
    assert [group["group"] for group in found["by"]["groups"]] == ["north", "south"]
    assert sum(group["n"] for group in found["by"]["groups"]) == 200
    result = toosure("evaluate", files / "table.csv", "--by", "age")
    assert (
        result.exit_code == 2 and "no column 'age' to group by; there is id, site" in result.stderr
    )


def test_independent_labels(tmp_path):
    rng = np.random.default_rng(0)
    probs = rng.uniform(size=(200, 2))
    labels = rng.random((200, 2)) < probs * [1, 0.5]  # the second label is half as frequent
    np.savez(tmp_path / "a.npz", probs=probs, labels=labels.astype(int), class_names=["dog", "cat"])
    result = toosure("evaluate", tmp_path / "a.npz", "--multilabel")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("1 of 2 labels is miscalibrated: cat")
    found = json.loads(toosure("evaluate", tmp_path / "a.npz", "--multilabel", "--json").stdout)
    assert found["worst"] == ["cat"]

    words = ("evaluate", tmp_path / "a.npz", "--multilabel", "--fail-if")
    fails = toosure(*words, f"ece > {found['pooled']['ece'][1] - 0.01}")
    assert fails.exit_code == 1 and "(ece of all 2 labels is 0." in fails.stderr
    assert fails.stdout == result.stdout
    assert toosure(*words, "brier > 0.9").exit_code == 0
    assert "of independent labels there are gap, ece, smece" in refused(*words, "mce > 0.1")

    for command in ("evaluate", "calibrate"):
        assert "`toosure evaluate --multilabel`" in refused(command, tmp_path / "a.npz")
    (tmp_path / "a.csv").write_text("a,label\n1,1\n")
    assert "takes arrays" in refused("evaluate", tmp_path / "a.csv", "--multilabel")


def test_the_page_of_independent_labels_and_what_does_not_go_with_them(tmp_path):
    labels = np.arange(400).reshape(200, 2) % 2
    file, page = tmp_path / "a.npz", tmp_path / "a.html"
    np.savez(file, probs=np.full((200, 2), 0.5), labels=labels)
    words = ("evaluate", file, "--multilabel")
    result = toosure(*words, "--html", page)
    assert result.exit_code == 0 and f"page: {page}" in result.stderr
    assert "How often a label is true" in page.read_text(encoding="utf-8")

    for option in (("--by", "site"), ("--all",), ("--class-1",)):
        assert f"{option[0]} does not go with --multilabel" in refused(*words, *option)

    labels[:100] = -1
    np.savez(file, probs=np.full((200, 2), 0.5), labels=labels)
    ignored = toosure(*words, "--ignore-index", -1, "--json")
    assert [label["samples"] for label in json.loads(ignored.stdout)["per_label"]] == [100, 100]
    assert "is a folder: name a file" in refused(*words, "--html", tmp_path)


def test_a_reader_that_leaves_does_not_change_the_exit_code(files):
    command = f"{sys.executable} -m toosure evaluate {files / 'sure.npz'}"
    for condition, code in (("ece > 0.9", 0), ("ece > 0.001", 1)):
        script = f"set -o pipefail; {command} --fail-if '{condition}' | true"
        assert subprocess.run(["bash", "-c", script], stderr=subprocess.DEVNULL).returncode == code


def test_calibrate_says_what_is_left_wrong(files):
    """One temperature cannot serve rows that are too sure and rows that are not sure enough."""
    rng = np.random.default_rng(1)
    sure = np.arange(600) % 2 == 0
    predicted = rng.integers(3, size=600)
    right = rng.random(600) < np.where(sure, 0.75, 0.95)
    logits = np.zeros((600, 3))
    logits[np.arange(600), predicted] = np.where(sure, 9, 1)
    labels = np.where(right, predicted, (predicted + 1) % 3)
    np.savez(files / "odd.npz", logits=logits, labels=labels)

    words = ("calibrate", files / "odd.npz", "--method", "temperature")
    found = json.loads(toosure(*words, "--json").stdout)["gap_after"]
    assert found[1] < found[0] < found[2] < -0.2
    text = toosure(*words).stdout
    assert (
        " lowers the NLL and raises the ECE: NLL " in text
        and f"under-confident by {-100 * found[0]:.1f} ±" in text
    )
    assert "`--method auto` tries other calibrators" in text


def test_laplace_refuses_what_it_would_not_write(files):
    words = ("calibrate", files / "sure.npz", "--method", "laplace", "-o", files / "c.pt")
    assert "-o does not go with --method laplace" in refused(*words)
    words = ("calibrate", files / "sure.npz", "--method", "laplace", "--kind", "logits")
    assert "--kind does not go with --method laplace" in refused(*words)


def test_compare(files):
    page = files / "page.html"
    result = toosure("compare", files / "sure.npz", files / "calm.npz", "-o", page)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("calm.npz is better in NLL, ECE and smECE than sure.npz")
    assert "same rows by their labels" in result.stdout and "page: " in result.stderr
    text = page.read_text(encoding="utf-8")
    assert ">calm.npz is better in NLL, ECE and smECE" in text and "Differences" in text

    found = json.loads(toosure("compare", files / "sure.npz", files / "calm.npz", "--json").stdout)
    assert found["kind"] == "better" and found["differences"]["ece"]["high"] < 0
    assert "is given twice" in refused("compare", files / "sure.npz", files / "sure.npz")


@pytest.mark.parametrize(
    "words",
    [
        "evaluate sure.npz --html new/er/page.html",
        "compare sure.npz calm.npz -o new/er/page.html",
        "calibrate sure.npz --method temperature -o new/er/fitted.pt",
        "calibrate sure.npz --method temperature --html new/er/page.html",
        "apply fitted.pt sure.npz -o new/er/calm.npz",
        "apply fitted.pt sure.npz -o new/er/calm.csv",
        "ensemble sure.npz calm.npz -o new/er/both.npz",
        "ensemble sure.npz calm.npz --html new/er/page.html",
    ],
)
def test_folders_of_a_new_file_are_made(files, monkeypatch, words):
    monkeypatch.chdir(files)
    arrays = np.load("sure.npz")
    save_calibrator(Temperature().fit(arrays["logits"], arrays["labels"]), "fitted.pt")

    *others, path = words.split()
    result = toosure(*others, path)
    assert result.exit_code == 0 and Path(path).is_file(), result.output
    assert "sure.npz is a file, not a folder" in refused(*others, f"sure.npz/{Path(path).name}")


@pytest.mark.parametrize(
    "words",
    [
        "evaluate sure.npz --html sure.npz",
        "compare sure.npz calm.npz -o calm.npz",
        "calibrate sure.npz -o sure.npz",
        "apply sure.npz sure.npz -o sure.npz",
        "ensemble sure.npz calm.npz -o calm.npz",
        "evaluate scores.npy --labels y.npy --html y.npy",
        "ensemble run calm.npz -o run/predictions.npz",
        "evaluate run --html run/predictions.npz",
    ],
)
def test_what_is_read_is_not_overwritten(files, monkeypatch, words):
    monkeypatch.chdir(files)
    arrays = np.load("sure.npz")
    np.save("scores.npy", arrays["logits"])
    np.save("y.npy", arrays["labels"])
    (files / "run").mkdir(exist_ok=True)
    shutil.copy("sure.npz", "run/predictions.npz")
    before = (files / words.split()[-1]).read_bytes()
    assert "is an input file: choose another output" in refused(*words.split())
    assert (files / words.split()[-1]).read_bytes() == before


def test_only_what_a_run_wrote_is_kept_from_being_overwritten(tmp_path):
    for name in ("predictions.npz", "best.pt", "calibrator.pt", "mixture.npz", "page.html"):
        (tmp_path / name).touch()
    for name in ("calibrator.pt", "mixture.npz", "page.html", "new.npz"):  # of commands
        check_target(tmp_path / name, tmp_path)
    for name in ("predictions.npz", "best.pt"):
        with pytest.raises(ValueError, match="is an input file"):
            check_target(tmp_path / name, tmp_path)


def test_a_calibrator_and_its_page_are_two_files(files, monkeypatch):
    monkeypatch.chdir(files)
    assert "give each its own file" in refused("calibrate", "sure.npz", "-o", "a", "--html", "a")


def test_a_path_that_leads_nowhere_is_one_line(files):
    """Two files may share their name: the whole path is said."""
    (files / "other").mkdir()
    (files / "other" / "sure.npz").write_bytes(b"PK")
    words = refused("compare", files / "sure.npz", files / "other" / "sure.npz")
    assert f"toosure: {files}/other/sure.npz: cannot be read as .npz" in words
    assert "File name too long" in refused("evaluate", "a" * 300 + ".npz")
    words = refused("ensemble", files / "sure.npz", files / "calm.npz", "--of", "swa")
    assert "--of goes with folders of runs" in words


def test_apply(files):
    arrays = np.load(files / "sure.npz")
    fitted = Temperature().fit(arrays["logits"], arrays["labels"])
    save_calibrator(fitted, files / "c.pt")
    result = toosure("apply", files / "c.pt", files / "sure.npz", "-o", files / "out.npz")
    assert result.exit_code == 0, result.output
    out = np.load(files / "out.npz")
    np.testing.assert_allclose(out["probs"], fitted.predict_proba(arrays["logits"]), rtol=1e-9)
    assert (out["labels"] == arrays["labels"]).all()

    np.savez(files / "new.npz", logits=arrays["logits"])  # not yet labelled
    assert toosure("apply", files / "c.pt", files / "new.npz", "-o", files / "n.npz").exit_code == 0
    assert set(np.load(files / "n.npz")) == {"probs"}
    assert (
        toosure("apply", files / "c.pt", files / "table.csv", "-o", files / "t.csv").exit_code == 0
    )
    header = (files / "t.csv").read_text().splitlines()[0]
    assert header == "id,site,target,p_x,p_y,p_z"
    assert "write a .npz" in refused("apply", files / "c.pt", files / "new.npz", "-o", files / "n")
    words = refused("apply", files / "new.npz", files / "new.npz", "-o", files / "n.npz")
    assert "new.npz" in words


@pytest.mark.parametrize("axis", [1, 3])
@pytest.mark.parametrize("suffix", [".npz", ".pt"])
def test_apply_keeps_the_shape_and_the_labels_of_pixels(tmp_path, axis, suffix):
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(8, 5, 6, 3))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(-1).astype(np.uint8)
    fitted = Temperature().fit(logits.reshape(-1, 3), labels.reshape(-1))
    save_calibrator(fitted, tmp_path / "c.pt")
    labels[:, 0] = 255  # nobody labelled these
    scores = np.moveaxis(logits, -1, axis)
    np.savez(tmp_path / "a.npz", logits=scores, labels=labels, site=np.arange(8))

    out = tmp_path / f"out{suffix}"
    assert toosure("apply", tmp_path / "c.pt", tmp_path / "a.npz", "-o", out).exit_code == 0
    written = dict(np.load(out)) if suffix == ".npz" else torch.load(out)
    expected = fitted.predict_proba(logits.reshape(-1, 3)).reshape(logits.shape).numpy()
    np.testing.assert_allclose(written["probs"], np.moveaxis(expected, -1, axis), rtol=1e-9)
    np.testing.assert_array_equal(written["labels"], labels)
    np.testing.assert_array_equal(written["site"], np.arange(8))
    result = toosure("compare", tmp_path / "a.npz", out, "--ignore-index", 255)
    assert result.exit_code == 0 and "the same 8 groups" in result.stdout, result.output

    table = toosure("apply", tmp_path / "c.pt", tmp_path / "a.npz", "-o", tmp_path / "out.csv")
    assert table.exit_code == 2 and "write a .npz or .pt" in table.stderr


@pytest.mark.parametrize(
    "shape",
    [(20, 7, 3), (20, 3, 4, 5), (20, 1, 4, 5), (20, 4, 5)],
    ids=["tokens", "pixels", "one channel", "one probability per pixel"],
)
def test_apply_takes_tokens_and_pixels_without_labels(tmp_path, shape):
    classes = 3 if 3 in shape else 2
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, classes))
    fitted = Temperature().fit(3 * rows, (rows + rng.gumbel(size=rows.shape)).argmax(1))
    save_calibrator(fitted, tmp_path / "c.pt")
    scores = rng.normal(size=shape)
    name = "logits" if classes == 3 else "probs"
    np.savez(tmp_path / "a.npz", **{name: scores if classes == 3 else 1 / (1 + np.exp(-scores))})

    out = tmp_path / "out.npz"
    assert toosure("apply", tmp_path / "c.pt", tmp_path / "a.npz", "-o", out).exit_code == 0
    assert set(np.load(out)) == {"probs"} and np.load(out)["probs"].shape == shape
    if classes == 2:
        expected = 1 / (1 + np.exp(-scores / float(fitted.temperature)))
        np.testing.assert_allclose(np.load(out)["probs"], expected, rtol=1e-6)


def test_apply_of_tokens_keeps_texts_and_leaves_lists_of_several_lengths_out(tmp_path):
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(6, 4, 3))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(-1)
    fitted = Temperature().fit(logits.reshape(-1, 3), labels.reshape(-1))
    save_calibrator(fitted, tmp_path / "c.pt")
    arrays = {"logits": torch.tensor(logits), "labels": torch.tensor(labels)}
    torch.save(arrays | {"words": [["a"] * (1 + i) for i in range(6)]}, tmp_path / "a.pt")
    words = np.full((6, 4), "word")
    np.savez(tmp_path / "a.npz", logits=logits, labels=labels, words=words)

    for file, texts in ((tmp_path / "a.pt", None), (tmp_path / "a.npz", words.tolist())):
        out = tmp_path / "out.pt"
        result = toosure("apply", tmp_path / "c.pt", file, "-o", out)
        assert result.exit_code == 0, result.output
        assert torch.load(out)["probs"].shape == (6, 4, 3)
        assert torch.load(out).get("words") == texts


@pytest.mark.parametrize("name", ["logits", "probs"])
@pytest.mark.parametrize("padding", [np.nan, 0.0])
def test_apply_leaves_padded_tokens_without_scores_empty(tmp_path, name, padding):
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(30, 4, 3))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(-1)
    fitted = Temperature().fit(logits.reshape(-1, 3), labels.reshape(-1))
    save_calibrator(fitted, tmp_path / "c.pt")
    scores = logits if name == "logits" else np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    labels[:5, 2:], scores[:5, 2:] = -100, padding
    np.savez(tmp_path / "a.npz", **{name: scores, "labels": labels})

    out = tmp_path / "out.npz"
    result = toosure("apply", tmp_path / "c.pt", tmp_path / "a.npz", "-o", out)
    assert result.exit_code == 0, result.output
    probs = np.load(out)["probs"]
    np.testing.assert_array_equal(np.isnan(probs).all(-1), labels == -100)
    there = fitted.predict_proba(logits.reshape(-1, 3)).reshape(logits.shape).numpy()
    np.testing.assert_allclose(probs[labels >= 0], there[labels >= 0], rtol=1e-9)
    assert toosure("evaluate", out).exit_code == 0  # which skips them, too

    scores[9, 0] = np.nan  # one that has a label
    np.savez(tmp_path / "a.npz", **{name: scores, "labels": labels})
    assert f"{name} must be" in refused("apply", tmp_path / "c.pt", tmp_path / "a.npz", "-o", out)


def test_apply_needs_no_label_in_any_row(files):
    arrays = np.load(files / "sure.npz")
    save_calibrator(Temperature().fit(arrays["logits"], arrays["labels"]), files / "c.pt")
    some = np.where(np.arange(200) < 9, -100, arrays["labels"])
    np.savez(files / "some.npz", logits=arrays["logits"], labels=some)
    words = ("apply", files / "c.pt")
    assert toosure(*words, files / "some.npz", "-o", files / "out.npz").exit_code == 0
    out = np.load(files / "out.npz")
    assert (out["labels"] == some).all() and out["probs"].shape == (200, 3)

    lines = (files / "table.csv").read_text().splitlines()
    lines[3] = lines[3].rpartition(",")[0] + ","
    (files / "some.csv").write_text("\n".join(lines))
    assert toosure(*words, files / "some.csv", "-o", files / "out.csv").exit_code == 0
    rows = (files / "out.csv").read_text().splitlines()
    assert len(rows) == 201 and rows[3].split(",")[2] == "" and rows[4].split(",")[2] in "xyz"


def test_calibrate_takes_the_same_files(files):
    out = files / "c.pt"
    words = ("--method", "temperature", "-o", out, "--json")
    result = toosure("calibrate", files / "table.csv", *words)
    assert result.exit_code == 0 and "labels from 'target'" in result.stderr
    assert json.loads(result.stdout)["rows"] == 200 and out.is_file()
    arrays = np.load(files / "sure.npz")
    np.save(files / "logits.npy", arrays["logits"])
    np.save(files / "y.npy", arrays["labels"])
    result = toosure("calibrate", files / "logits.npy", "--labels", files / "y.npy", *words)
    assert result.exit_code == 0, result.output


def test_progress_is_shown_after_a_while_and_only_then(capsys):
    with Spinner("reading", delay=60) as waiting:
        waiting.update("measuring")
    assert capsys.readouterr().err == ""
    with Spinner("reading", delay=0) as waiting:
        waiting.update("measuring")
        waiting.timer.join(10)
    assert capsys.readouterr().err in ("toosure: reading ...\n", "toosure: measuring ...\n")
