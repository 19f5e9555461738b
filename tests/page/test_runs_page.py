"""The report: its numbers are those of the rows, every name is text, it stays small."""

import json
import math
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from made_runs import HOSTILE, make_run, row, snapshot
from typer.testing import CliRunner

from toosure.cli import app
from toosure.evaluate.estimates import confidence_gap
from toosure.evaluate.grouped import grouped_gap
from toosure.figures import bins_of
from toosure.page.half_intervals import PlusMinus
from toosure.page.kept_calibrators import kept_calibrators
from toosure.page.page_runs import PageRuns
from toosure.page.report import report
from toosure.page.run_verdict import NOTHING, RunVerdict, headline, judge, standard_error
from toosure.page.sections.calibrators import calibrators
from toosure.page.sections.certificates import certificates
from toosure.page.sections.comparison import best, comparison
from toosure.page.sections.improvements import calibrator_improvements
from toosure.page.sections.provenance import provenance
from toosure.posthoc.temperature_effect import temperature_scaling
from toosure.predictions import from_logits, read_predictions
from toosure.quantities import shown_in
from toosure.runs import Run, RunWriter, find_runs
from toosure.watch.snapshot import snapshot_of

COLUMNS = shown_in("table")


@pytest.fixture(scope="module")
def html(runs_folder):
    return report(runs_folder)


def without_scripts(html):
    return re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)


def test_every_section_is_there(html):
    found = re.findall(r'<(?:section|header) id="(\w+)"', html)
    assert found == [
        *("summary", "progress", "tradeoff", "comparison", "trajectories", "multiples"),
        *("phase", "moments", "provenance", "words"),
    ]
    links = re.findall(r'<a href="#(\w+)">', html)
    assert links == [name for name in found if name != "progress"]  # nothing goes on


def test_nothing_is_fetched_and_nothing_runs_that_is_not_ours(html):
    assert HOSTILE not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in without_scripts(html)
    assert not re.search(r"(?:src|href)=[\"'](?!data:|#)", without_scripts(html))
    assert html.count("<script>") == 9  # colours, charts (3), runs (3), tools, page
    for source in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', html):
        json.loads(source)


def test_verdict_of_each_run_has_an_interval_and_a_beginning(runs_folder):
    runs = {run.name: run for run in find_runs(runs_folder)}
    assert re.fullmatch(
        r"Over-confident by 10\.0 ± \d\.\d points, from the start", judge(runs["a0"]).sentence
    )
    assert judge(runs["gone"])[:2] == ("none", "Diverged at step 90")
    kind, sentence = headline([judge(run) for run in runs.values()])
    assert kind == "over" and sentence == "4 of 5 runs are over-confident, by 10.0 points"


def test_verdict_says_since_when(tmp_path):
    make_run(tmp_path / "r", gap=lambda step: -0.2 if step < 40 else 0.2)
    assert judge(find_runs(tmp_path)[0]).sentence.endswith("since step 40")


@pytest.mark.parametrize(
    ("gap", "n", "kind"),
    [(0.2, 400, "over"), (-0.2, 400, "under"), (0.0, 400, "unclear"), (0.0, 40_000, "fine")],
)
def test_kinds_of_verdict(tmp_path, gap, n, kind):
    make_run(tmp_path / "r", gap=gap, steps=range(3), accuracy=0.6)
    np.savez(tmp_path / "r" / "snapshots" / "0.npz", **snapshot(n=n))
    assert judge(find_runs(tmp_path)[0]).kind == kind


def test_a_run_without_snapshots_has_no_interval(tmp_path):
    make_run(tmp_path / "r", steps=[0])
    (tmp_path / "r" / "snapshots" / "0.npz").unlink()
    verdict = judge(find_runs(tmp_path)[0])
    assert "±" not in verdict.sentence and math.isnan(verdict.half_width)


def test_interval_is_that_of_the_bootstrap():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(2000, 5, generator=generator)
    labels = torch.where(
        torch.rand(2000, generator=generator) < 0.6, logits.argmax(1), torch.tensor(0)
    )
    arrays = {f"val_{k}": v for k, v in snapshot_of(logits, labels).items()}
    half = 1.96 * standard_error(bins_of(arrays, "val"))
    bootstrap = confidence_gap(from_logits(logits, labels), level=0.95, seed=0, samples=2000)
    assert half == pytest.approx(bootstrap.half, rel=0.06)


def test_interval_of_rows_in_sequences_is_that_of_evaluate(tmp_path):
    """Rows of one sequence share a shift of their logits, and so their errors."""
    random = np.random.default_rng(0)
    sequence = np.repeat(np.arange(60), random.integers(5, 30, 60))
    logits = random.normal(size=(len(sequence), 3)) + 3 * random.normal(size=(60, 3))[sequence]
    labels = random.integers(0, 3, 60)[sequence]
    arrays = {"val_logits": logits, "val_labels": labels}
    whole = snapshot_of(torch.from_numpy(logits), torch.from_numpy(labels))

    halves = []
    for groups in ({}, {"val_sequence_of_row": sequence}):
        with RunWriter(tmp_path / str(len(groups))) as writer:
            writer.append(row(0))
            writer.write_snapshot(0, {f"val_{key}": value for key, value in whole.items()})
            writer.set_status("complete", 0)
        run = Run(tmp_path / str(len(groups)))
        np.savez(run.last_predictions, **arrays, **groups)
        gap = (grouped_gap if groups else confidence_gap)(
            read_predictions(run.last_predictions, split="val"), level=0.95, seed=0, samples=2000
        )
        halves.append(judge(run).half_width)
        assert halves[-1] == pytest.approx(100 * gap.half, rel=0.06)
    assert halves[1] > 2 * halves[0]


def test_comparison_is_mean_and_spread_over_seeds(runs_folder):
    html = comparison(PageRuns(find_runs(runs_folder)))
    first = re.search(r'<tr data-label="sgd[^>]*>(.*?)</tr>', html).group(1)
    cells = re.findall(r'data-value="([^"]*)">(.*?)</td>', first)
    assert cells[0][1].startswith("sgd:<wbr>lr=0.1,<wbr>momentum=0.9<small>2 seeds")
    assert float(cells[3][0]) == pytest.approx(11)
    assert cells[3][1] == f"11.00<small>±&nbsp;{np.std([10, 12], ddof=1):.2f}</small>"
    marked = re.findall(r'data-value="([^"]*)"><strong', html)
    assert "80.0" in marked and float(marked[marked.index("5.0")]) == 5  # accuracy high, ECE low


def test_best_knows_which_end_is_better():
    means = np.array([[1.0] * len(COLUMNS), [2.0] * len(COLUMNS), [np.nan] * len(COLUMNS)])
    marks = best(means, COLUMNS)
    assert [bool(m) for m in marks[1]] == [column.better == "higher" for column in COLUMNS]
    assert not marks[2].any() and (marks.sum(0) == 1).all()


def test_headline_counts_every_run():
    kinds = ("over", "under", "unclear", "none", "none")
    _, sentence = headline([RunVerdict(kind, "", 1.0, 0.5) for kind in kinds])
    assert sentence == (
        "Of 5 runs, 1 over-confident, 1 under-confident, 1 too close to tell, 2 without a verdict"
    )
    over, diverged = RunVerdict("over", "", 1.0, 0.5), RunVerdict("none", "Diverged at step 3")
    assert headline([over, diverged])[1] == "1 of 2 runs is over-confident, by 1.0 points"
    assert headline([diverged, diverged])[1] == "None of 2 runs can be judged"
    assert headline([RunVerdict("none", NOTHING)] * 2)[1] == NOTHING


@pytest.mark.parametrize("status", ["diverged", "failed", "stopped", "interrupted"])
def test_what_ended_early_is_never_best(tmp_path, status):
    make_run(tmp_path / "early", {"optimizer": "adamw"}, status=status, ece=0.001)
    for name, error in (("sgd", 0.05), ("gd", 0.1)):
        make_run(tmp_path / name, {"optimizer": name}, ece=error)
    html = comparison(PageRuns(find_runs(tmp_path)))
    marked = re.findall(r'data-value="([^"]*)"><strong', html)
    assert "5.0" in marked and "0.1" not in marked  # points of ECE: of sgd, of the early one
    assert "a run that ended early are never in bold" in html


def test_training_data_are_marked_and_never_best(tmp_path):
    """A run without validation data: marked in table, verdict and headline, bold nowhere."""
    for name, error in (("sgd", 0.05), ("gd", 0.1)):
        make_run(tmp_path / name, {"optimizer": name}, ece=error)
    make_run(tmp_path / "fitted", {"optimizer": "fitted"}, ece=0.001, splits=("train",))
    html = comparison(PageRuns(find_runs(tmp_path)))
    assert "fitted<small>training data</small>" in html and "never in bold" in html
    marked = re.findall(r'data-value="([^"]*)"><strong', html)
    assert "5.0" in marked and "0.1" not in marked

    verdicts = {run.name: judge(run) for run in find_runs(tmp_path)}
    assert "points (training data), from the start" in verdicts["fitted"].sentence
    assert "training" not in verdicts["sgd"].sentence
    sentence = headline(list(verdicts.values()))[1]
    assert sentence == (
        "All 2 runs are over-confident, by 10.0 points; 1 more run on training data only"
    )
    assert headline([verdicts["fitted"]] * 2)[1].endswith("points (training data)")


def test_seeds_without_validation_data_are_left_out_of_the_mean(tmp_path):
    make_run(tmp_path / "a", {"optimizer": "sgd", "seed": 0}, ece=0.1)
    make_run(tmp_path / "b", {"optimizer": "sgd", "seed": 1}, ece=0.001, splits=("train",))
    html = comparison(PageRuns(find_runs(tmp_path)))
    assert "2 seeds, 1 without validation data left out" in html and 'data-value="10.0"' in html


def test_a_growing_run_takes_in_increments(tmp_path):
    make_run(tmp_path / "r", steps=range(3))
    run, file = Run(tmp_path / "r"), tmp_path / "r" / "metrics.jsonl"
    assert run.refresh() and run.count == 3 and not run.refresh()
    line = json.dumps(row(3)) + "\n"
    with file.open("a") as out:
        out.write(line[:20])
        out.flush()
        assert not run.refresh()  # torn
        out.write(line[20:])
    assert run.refresh() and run.columns["step"].tolist() == [0, 1, 2, 3]
    file.write_text(json.dumps(row(0)) + "\n")
    assert run.refresh() and run.count == 1 and run.file_version[1] == 1  # cut back
    assert [row["step"] for row in run.rows] == [0]


def test_damage_is_told_and_survived(tmp_path):
    make_run(tmp_path / "r")
    (tmp_path / "r" / "config.json").write_text("{")
    (tmp_path / "r" / "status.json").write_text("[]")
    (tmp_path / "r" / "snapshots" / "90.npz").write_bytes(b"not a zip")
    html = provenance(PageRuns(find_runs(tmp_path)))
    assert "config.json cannot be read" in html and "must hold a JSON object" in html
    assert "Over-confident" in report(tmp_path)


def test_warnings_are_told(tmp_path):
    path = make_run(tmp_path / "r", status="diverged")
    with (path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row(100) | {"train/gn_sharpness_unconverged": True}) + "\n")
    html = provenance(PageRuns(find_runs(tmp_path)))
    assert "diverged at step 90" in html
    assert "train/gn_sharpness did not converge in 1 of 11 rows" in html


def test_certificate_in_words_only_where_there_is_one(tmp_path):
    path = make_run(tmp_path / "r")
    assert certificates(PageRuns(find_runs(tmp_path))) == ""
    told = {"train/certificate_failed": 0, "train/slack 4.1 (i)": 0.25, "train/slack B.2": 0.5}
    with (path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row(100) | told) + "\n")
    html = certificates(PageRuns(find_runs(tmp_path)))
    assert "All 2 statements that apply hold" in html and "tail of small margins" in html


def predictions_of(n=200, seed=0, scale=5.0):
    """Over-confident logits of 3 classes, val and test, by their names in predictions.npz."""
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for split in ("val", "test"):
        logits = scale * torch.randn(n, 3, generator=generator, dtype=torch.float64)
        labels = torch.multinomial((logits / 3).softmax(1), 1, generator=generator).squeeze(1)
        found |= {f"{split}_logits": logits.numpy(), f"{split}_labels": labels.numpy()}
    return found


def scaling_of(arrays):
    pairs = (
        (torch.from_numpy(arrays[f"{s}_logits"]), torch.from_numpy(arrays[f"{s}_labels"]))
        for s in ("val", "test")
    )
    return temperature_scaling(*pairs)


def test_temperature_scaling_is_shown_as_the_run_wrote_it(tmp_path):
    scaling = scaling_of(predictions_of())
    path = make_run(tmp_path / "r")
    (path / "temperature.json").write_text(json.dumps(scaling))
    html = calibrators(PageRuns(find_runs(tmp_path)))
    cells = re.findall(r'data-value="([^"]*)">(.*?)</td>', html)
    assert f"T = {scaling['temperature']:.3f}" in cells[1][1].replace("\N{NO-BREAK SPACE}", " ")
    expected = [100 * scaling["ece"], 100 * scaling["ece_after"]]
    expected += [scaling["nll"], scaling["nll_after"], 200]
    numbers = [float(value) for value, _ in (*cells[2:4], *cells[6:9])]
    assert numbers == pytest.approx(expected) and cells[4][1] == "–"  # no predictions: no chance
    assert scaling["temperature"] > 2 and scaling["ece_after"] < scaling["ece"]
    assert "Calibrators, before and after" in report(tmp_path)


def test_calibrators_of_several_seeds_are_a_mean_and_every_run_below(tmp_path):
    scaling = scaling_of(predictions_of())
    for seed, change in enumerate((-0.01, 0.01)):
        path = make_run(tmp_path / f"r{seed}", {"optimizer": "sgd", "seed": seed})
        text = json.dumps(scaling | {"ece": scaling["ece"] + change})
        (path / "temperature.json").write_text(text)
    html = calibrators(PageRuns(find_runs(tmp_path)))
    mean, every = html.split("<summary>every run</summary>")
    assert mean.count("<tr>") == 2 and every.count("<tr>") == 3
    spread = 100 * np.std([-0.01, 0.01], ddof=1)
    assert f"{100 * scaling['ece']:.2f}<small>±&nbsp;{spread:.2f}" in mean
    assert "2 seeds" in mean and "on average" in mean and "seed 1" in every


@pytest.mark.parametrize(("count", "folded"), [(6, False), (7, True)])
def test_the_origin_of_many_runs_is_folded(tmp_path, count, folded):
    for seed in range(count):
        make_run(tmp_path / f"r{seed}", {"optimizer": "sgd", "seed": seed})
    assert ("7 runs: status" in provenance(PageRuns(find_runs(tmp_path)))) is folded


def test_a_run_without_these_numbers_shows_those_of_calibrate(tmp_path):
    path = make_run(tmp_path / "r")
    np.savez(path / "predictions.npz", **predictions_of())
    assert "ECE before, points" not in report(tmp_path)
    done = CliRunner().invoke(app, ["calibrate", str(path), "--method", "temperature"])
    assert done.exit_code == 0, done.output
    assert not (path / "temperature.json").exists()
    assert "ECE before, points" in report(tmp_path)


def test_a_run_to_read_only_is_calibrated_all_the_same(tmp_path):
    path = make_run(tmp_path / "r")
    np.savez(path / "predictions.npz", **predictions_of())
    (path / "calibrators.json").mkdir()  # cannot be written, by any user
    words = ["calibrate", str(path), "--method", "temperature", "-o", str(tmp_path / "a.pt")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0 and (tmp_path / "a.pt").exists(), done.output
    assert "calibrators.json: cannot be written" in done.stderr


def test_calibrators_that_were_kept_are_shown_with_intervals_and_chance(tmp_path):
    path = make_run(tmp_path / "r")
    np.savez(path / "predictions.npz", **predictions_of())
    for method in ("isotonic", "vector", "temperature"):
        done = CliRunner().invoke(app, ["calibrate", str(path), "--method", method, "--json"])
        assert done.exit_code == 0, done.output
    kept = json.loads((path / "calibrators.json").read_text())
    assert set(kept) == {"isotonic", "vector", "temperature"}
    assert kept["temperature"] == {
        k: v for k, v in json.loads(done.stdout).items() if k != "trials"
    }

    runs = find_runs(tmp_path)
    html = calibrators(PageRuns(runs))
    low, high = (100 * end for end in kept["vector"]["after"]["ece"][1:])
    assert f"{low:.2f} to {high:.2f}" in html and html.count("<tr>") == 4  # T once
    assert f"up to {100 * kept['isotonic']['chance']:.1f}" in html

    found = {each.name: each for each in kept_calibrators(runs[0])}
    arrays = predictions_of()
    right = arrays["test_logits"].argmax(1) == arrays["test_labels"]
    assert found["temperature"].accuracy_change == PlusMinus(0, 0)
    before, after = (kept["vector"][side]["accuracy"][0] for side in ("before", "after"))
    assert before == pytest.approx(right.mean())
    assert found["vector"].accuracy_change.value == pytest.approx(after - before)
    assert found["vector"].ece_change.value == pytest.approx(
        kept["vector"]["after"]["ece"][0] - kept["vector"]["before"]["ece"][0]
    )
    names = [each.name for each in calibrator_improvements(PageRuns(runs).ranked_settings[0])]
    assert len(names) == 3 and sum("temperature" in name for name in names) == 1


@pytest.mark.parametrize(
    "record",
    ["1", "{}", '{"n": 5, "before": {}}', '{"n": "x", "before": {"ece": [1, null, null]}}'],
)
def test_a_damaged_record_of_a_calibrator_is_left_out(tmp_path, record):
    path = make_run(tmp_path / "r")
    (path / "calibrators.json").write_text(f'{{"mine": {record}}}')
    assert "Over-confident" in report(tmp_path) and kept_calibrators(find_runs(tmp_path)[0]) == []


@pytest.mark.parametrize("name", ["temperature.json", "calibrators.json"])
def test_damaged_scaling_is_told(tmp_path, name):
    path = make_run(tmp_path / "r")
    (path / name).write_text("{")
    html = report(tmp_path)
    assert f"{name} cannot be read" in html and "Over-confident" in html


@pytest.mark.parametrize("kept", [0, 100, 0.5, -30])
def test_files_cut_off_are_told_and_survived(tmp_path, kept):
    path = make_run(tmp_path / "r")
    file = path / "snapshots" / "90.npz"
    whole = file.read_bytes()
    file.write_bytes(whole[: int(kept * len(whole)) if isinstance(kept, float) else kept])
    html = report(tmp_path)
    assert "snapshots/90.npz cannot be read" in html
    assert "Over-confident" in html and "No warnings" not in html


def test_a_snapshot_without_its_parts_is_told(tmp_path):
    path = make_run(tmp_path / "r")
    whole = snapshot()
    np.savez(path / "snapshots" / "90.npz", **{k: whole[k] for k in whole if "margin" not in k})
    np.savez(path / "snapshots" / "60.npz", **whole | {"val_accuracy": np.zeros(3)})
    html = report(tmp_path)
    assert "snapshots/90.npz cannot be read" in html
    assert "snapshots/60.npz cannot be read (the arrays of val do not fit each other)" in html


def test_confidence_without_accuracy_is_no_gap(tmp_path):
    path = make_run(tmp_path / "r")
    without(path, "accuracy")
    html = report(tmp_path)
    assert "Expected calibration error" in html
    assert 'data-role="gap"' not in html


def without(path, *words):
    """Take the keys that hold these words out of every row of a run."""
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    kept = [{k: v for k, v in line.items() if not any(w in k for w in words)} for line in lines]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))


def test_nothing_is_said_of_curvature_that_was_not_measured(tmp_path):
    path = make_run(tmp_path / "r", {"optimizer": "sgd:lr=0.1"})
    html = report(tmp_path)
    assert "every eigenvalue converged" in html and "Dashed in the sharpness panel" in html
    without(path, "sharpness")
    html = report(tmp_path)
    assert "No warnings: every run ended as it should." in html
    assert "eigenvalue" not in without_scripts(html) and "Dashed in" not in html


def test_refinement_is_shown_where_it_was_measured(tmp_path, runs_folder):
    path = make_run(tmp_path / "r")
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    for place, line in enumerate(lines):
        line |= {"val/temperature": 1 + place / 10, "val/refinement": 0.4 + abs(place - 6) / 100}
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    html = report(tmp_path)
    assert "NLL after temperature scaling" in html and 'data-role="temperature"' in html
    assert "best at step 60, with an NLL of 0.400 once calibrated; 0.430 at step 90" in html
    assert 'id="refinement"' not in report(runs_folder)


def test_bold_is_not_called_best(runs_folder):
    html = comparison(PageRuns(find_runs(runs_folder)))
    assert "close ones may be chance" in html and "est in bold" not in html


def test_no_runs_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="there are no runs"):
        report(tmp_path)


def test_torch_is_not_needed(runs_folder):
    code = f"from toosure.page.report import report; report({str(runs_folder)!r})"
    code += "; import sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)


def test_a_hundred_runs_make_a_small_page(tmp_path):
    """As many lines, points and snapshots as a page will hold: more rows do not add to it."""
    generator = np.random.default_rng(0)
    lines = [json.dumps(row(s, *generator.random(4) / 3)) + "\n" for s in range(400)]
    first = make_run(tmp_path / "r0", {"optimizer": "sgd:lr=0"}, steps=range(0, 72))
    (first / "metrics.jsonl").write_text("".join(lines))
    for seed in range(1, 100):
        copy = shutil.copytree(first, tmp_path / f"r{seed}")
        (copy / "config.json").write_text(json.dumps({"optimizer": f"sgd:lr={seed}"}))
    assert len(report(tmp_path)) < 6_000_000
