"""How many seeds a setting has: copies are left out, and repeats of a seed stand apart."""

import json
import os
import shutil

import numpy as np
import pytest
from made_runs import make_run

from toosure.page.copies import without_copies
from toosure.page.decision import decide
from toosure.page.live_answers import PageAnswers
from toosure.page.markdown import markdown_report
from toosure.page.page_runs import PageRuns
from toosure.page.report import report, runs_of_page
from toosure.page.sections.calibrators import calibrators
from toosure.page.sections.differences import differences
from toosure.page.sections.improvements import improvements
from toosure.runs import find_runs


def predict(path, noise, seed):
    """Keep test predictions of 300 examples, and a temperature."""
    labels = np.random.default_rng(0).integers(0, 3, 300)
    logits = noise * np.random.default_rng(seed).normal(size=(300, 3)) + 2 * np.eye(3)[labels]
    np.savez(path / "predictions.npz", test_logits=logits, test_labels=labels)
    numbers = {"ece": 0.1, "ece_after": 0.02, "nll": 0.5, "nll_after": 0.4, "n": 300}
    (path / "temperature.json").write_text(json.dumps({"temperature": 1.5} | numbers))


def setting(folder, name, optimizer, seed, ece, gap=0.1, status="complete"):
    config = {"optimizer": optimizer, "data": "waves", "seed": seed}
    path = make_run(folder / name, config, ece=ece, gap=gap, status=status)
    predict(path, 1 + 10 * ece, seed + int(1000 * ece))
    return path


@pytest.fixture
def folder(tmp_path):
    """Two settings of two seeds."""
    for seed in (0, 1):
        setting(tmp_path, f"sgd-{seed}", "sgd", seed, ece=0.1 + 0.05 * seed, gap=0.1 + 0.05 * seed)
        setting(tmp_path, f"ls-{seed}", "ls", seed, ece=0.05 + 0.02 * seed, gap=0.02 * seed)
    return tmp_path


def claims(page):
    """Everything on a page that is over seeds."""
    numbers = [(s.label, s.values, s.spreads, s.verdict, s.left_out) for s in page.ranked_settings]
    sections = [section(page) for section in (differences, improvements, calibrators)]
    return numbers, sections, decide(page)


def test_copies_change_no_claim_and_are_told(folder):
    before = claims(runs_of_page(folder))[:2]
    for number in (1, 2):
        shutil.copytree(folder / "ls-0", folder / f"ls-0-copy{number}")
    shutil.copytree(folder / "sgd-1", folder / "elsewhere" / "sgd-1")

    page = runs_of_page(folder)
    assert claims(page)[:2] == before
    told = "`ls-0-copy1`, `ls-0-copy2` are left out: copies of `ls-0`"
    assert any(each.startswith(told) for each in page.cautions)
    html = report(folder)
    assert html.count("copies of <code>ls-0</code>") == 2  # beside the decision, and under Origin
    assert told in markdown_report(page, folder / "pictures")


def test_of_a_run_and_its_copy_the_one_written_first_is_kept(folder):
    shutil.copytree(folder / "ls-0", folder / "a-copy", copy_function=shutil.copyfile)
    rows = folder / "ls-0" / "metrics.jsonl"
    os.utime(rows, (rows.stat().st_atime, rows.stat().st_mtime - 60))
    (told,) = without_copies(find_runs(folder))[1]
    assert told.startswith("`a-copy` is left out: a copy of `ls-0`")


def test_a_copy_of_a_run_that_went_on_is_a_copy(folder):
    shutil.copytree(folder / "ls-0", folder / "early")
    rows = folder / "early" / "metrics.jsonl"
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[:4]))
    (folder / "early" / "predictions.npz").unlink()
    kept, told = without_copies(find_runs(folder))
    assert [run.name for run in kept] == ["ls-0", "ls-1", "sgd-0", "sgd-1"]
    assert told == ["`early` is left out: a copy of `ls-0`, of the same settings and numbers."]


def test_seeds_are_paired_in_any_order_of_their_folders(folder):
    before = runs_of_page(folder).comparison.difference("ls", "sgd")
    (folder / "ls-0").rename(folder / "z-0")
    assert runs_of_page(folder).comparison.difference("ls", "sgd") == before


def test_other_numbers_or_other_predictions_are_no_copy(tmp_path):
    setting(tmp_path, "a", "sgd", 0, ece=0.1)
    setting(tmp_path, "b", "sgd", 0, ece=0.2)
    predict(setting(tmp_path, "c", "sgd", 0, ece=0.1), 3, 7)
    for name in ("d", "e"):
        make_run(tmp_path / name, {"optimizer": "muon"}, steps=())
    assert without_copies(find_runs(tmp_path))[1] == []


def test_a_repeat_of_a_seed_is_no_seed(folder):
    before = {s.label: s for s in runs_of_page(folder).ranked_settings}
    setting(folder, "sgd-again", "sgd", 0, ece=0.12, gap=0.125)

    page = runs_of_page(folder)
    after = {s.label: s for s in page.ranked_settings}
    assert {label: after[label].verdict for label in before} == {
        label: each.verdict for label, each in before.items()
    }
    assert after["sgd"].verdict.seeds == 2 and "2 seeds" in after["sgd"].verdict.sentence
    assert list(after)[-1] == "sgd, repeat 1" and not after["sgd, repeat 1"].is_ranked
    assert "of 2 settings" in decide(page).reason and page.reference.label == "sgd"
    for table in (differences(page), improvements(page)):
        assert "repeat 1" not in table and "3 seeds" not in table
    assert "mean over 3" not in " ".join(decide(page).steps)
    (told,) = page.cautions
    assert told.startswith("`sgd-0` and `sgd-again` share their setting and seed 0: they are rep")
    assert "<code>sgd-again</code> share" in report(folder)


def test_a_run_that_ended_early_gives_way_to_its_repeat(tmp_path):
    setting(tmp_path, "a", "sgd", 0, ece=0.3, status="failed")
    setting(tmp_path, "b", "sgd", 0, ece=0.1)
    page = PageRuns(find_runs(tmp_path))
    (first, second) = page.ranked_settings
    assert [run.name for run in first.group.runs] == ["b"]
    assert second.group.repeats == first.label and decide(page).setting is first


def test_runs_without_a_seed_are_seeds_of_their_own(tmp_path):
    for place in range(3):
        make_run(tmp_path / str(place), {"optimizer": "sgd"}, ece=0.1 + place / 100)
    (only,) = PageRuns(find_runs(tmp_path)).ranked_settings
    assert only.verdict.seeds == 3


def test_a_live_page_tells_of_a_copy_that_comes(folder):
    answers = PageAnswers(folder)
    assert "left out" not in answers.body().decode()
    shutil.copytree(folder / "ls-0", folder / "ls-0-copy")
    text = json.loads(answers.body())
    assert text["total"] == 4 and "<code>ls-0-copy</code> is left out" in text["html"]
