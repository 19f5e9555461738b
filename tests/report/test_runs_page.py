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
from made_runs import HOSTILE, make_run, row, snapshot

from toosure.evaluate.estimates import confidence_gap
from toosure.figures import bins_of, group_runs
from toosure.metrics import ece as library_ece
from toosure.metrics import nll
from toosure.posthoc import Temperature
from toosure.predictions import from_logits
from toosure.report.compare import COLUMNS, best, comparison
from toosure.report.follow import FollowedRun, follow
from toosure.report.judge import RunVerdict, headline, judge, standard_error
from toosure.report.posthoc import calibrators, ece, fit_temperature
from toosure.report.provenance import certificates, provenance
from toosure.report.runs import report
from toosure.runs import Run
from toosure.watch.split import snapshot_of


@pytest.fixture(scope="module")
def html(runs_folder):
    return report(runs_folder)


def without_scripts(html):
    return re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)


def test_every_section_is_there(html):
    found = re.findall(r'<(?:section|header) id="(\w+)"', html)
    assert found == ["summary", "comparison", "trajectories", "phase", "moments", "provenance"]


def test_nothing_is_fetched_and_nothing_runs_that_is_not_ours(html):
    assert HOSTILE not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in without_scripts(html)
    assert not re.search(r"(?:src|href)=[\"'](?!data:)", without_scripts(html))
    assert html.count("<script>") == 4  # plotly.js, colours, runs.js, page.js
    for source in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', html):
        json.loads(source)


def test_verdict_of_each_run_has_an_interval_and_a_beginning(runs_folder):
    runs = {run.name: run for run in follow(runs_folder)}
    assert re.fullmatch(
        r"Over-confident by 10\.0 ± \d\.\d points, from the start", judge(runs["a0"]).sentence
    )
    assert judge(runs["gone"])[:2] == ("none", "Diverged at step 90")
    kind, sentence = headline([judge(run) for run in runs.values()])
    assert kind == "over" and sentence == "4 of 5 runs are over-confident, by 10.0 points"


def test_verdict_says_since_when(tmp_path):
    make_run(tmp_path / "r", gap=lambda step: -0.2 if step < 40 else 0.2)
    assert judge(follow(tmp_path)[0]).sentence.endswith("since step 40")


@pytest.mark.parametrize(
    ("gap", "n", "kind"),
    [(0.2, 400, "over"), (-0.2, 400, "under"), (0.0, 400, "unclear"), (0.0, 40_000, "fine")],
)
def test_kinds_of_verdict(tmp_path, gap, n, kind):
    make_run(tmp_path / "r", gap=gap, steps=range(3), accuracy=0.6)
    np.savez(tmp_path / "r" / "snapshots" / "0.npz", **snapshot(n=n))
    assert judge(follow(tmp_path)[0]).kind == kind


def test_a_run_without_snapshots_has_no_interval(tmp_path):
    make_run(tmp_path / "r", steps=[0])
    (tmp_path / "r" / "snapshots" / "0.npz").unlink()
    verdict = judge(follow(tmp_path)[0])
    assert "±" not in verdict.sentence and math.isnan(verdict.half)


def test_interval_is_that_of_the_bootstrap():
    import torch

    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(2000, 5, generator=generator)
    labels = torch.where(
        torch.rand(2000, generator=generator) < 0.6, logits.argmax(1), torch.tensor(0)
    )
    arrays = {f"val_{k}": v for k, v in snapshot_of(logits, labels).items()}
    half = 1.96 * standard_error(bins_of(arrays, "val"))
    bootstrap = confidence_gap(from_logits(logits, labels), level=0.95, seed=0, samples=2000)
    assert half == pytest.approx(bootstrap.half, rel=0.06)


def test_comparison_is_mean_and_spread_over_seeds(runs_folder):
    html = comparison(group_runs(follow(runs_folder)))
    first = re.search(r"<tbody><tr>(.*?)</tr>", html).group(1)
    cells = re.findall(r'data-value="([^"]*)">(.*?)</td>', first)
    assert cells[0][1].startswith("sgd:<wbr>lr=0.1,<wbr>momentum=0.9<small>2 seeds")
    assert float(cells[3][0]) == pytest.approx(11)
    assert cells[3][1] == f"11.00<small>±&nbsp;{np.std([10, 12], ddof=1):.2f}</small>"
    marked = re.findall(r'data-value="([^"]*)"><strong', html)
    assert "80.0" in marked and float(marked[marked.index("5.0")]) == 5  # accuracy high, ECE low


def test_best_knows_which_end_is_better():
    means = np.array([[1.0] * len(COLUMNS), [2.0] * len(COLUMNS), [np.nan] * len(COLUMNS)])
    marks = best(means)
    assert [bool(m) for m in marks[1]] == [column.high_is_good for column in COLUMNS]
    assert not marks[2].any() and (marks.sum(0) == 1).all()


def test_headline_counts_every_run():
    kinds = ("over", "under", "unclear", "none", "none")
    _, sentence = headline([RunVerdict(kind, "", 1.0, 0.5) for kind in kinds])
    assert sentence == (
        "Of 5 runs, 1 over-confident, 1 under-confident, 1 too close to tell, 2 without a verdict"
    )


@pytest.mark.parametrize("status", ["diverged", "failed", "stopped", "interrupted"])
def test_what_ended_early_is_never_best(tmp_path, status):
    make_run(tmp_path / "early", {"optimizer": "adamw"}, status=status, ece=0.001)
    for name, error in (("sgd", 0.05), ("gd", 0.1)):
        make_run(tmp_path / name, {"optimizer": name}, ece=error)
    marked = re.findall(r'data-value="([^"]*)"><strong', comparison(group_runs(follow(tmp_path))))
    assert "5.0" in marked and "0.1" not in marked  # points of ECE: of sgd, of the early one


def test_followed_run_reads_what_run_reads(runs_folder):
    for followed in follow(runs_folder):
        run = Run(followed.path)
        assert followed.count == len(run.rows) and followed.last == run.last
        for key, values in followed.columns.items():
            np.testing.assert_array_equal(values, run.columns[key])


def test_following_takes_in_increments(tmp_path):
    make_run(tmp_path / "r", steps=range(3))
    followed, file = FollowedRun(tmp_path / "r"), tmp_path / "r" / "metrics.jsonl"
    assert followed.read() and followed.count == 3 and not followed.read()
    line = json.dumps(row(3)) + "\n"
    with file.open("a") as out:
        out.write(line[:20])
        out.flush()
        assert not followed.read()  # torn
        out.write(line[20:])
    assert followed.read() and followed.columns["step"].tolist() == [0, 1, 2, 3]
    file.write_text(json.dumps(row(0)) + "\n")
    assert followed.read() and followed.count == 1 and followed.generation == 1  # cut back


def test_damage_is_told_and_survived(tmp_path):
    make_run(tmp_path / "r")
    (tmp_path / "r" / "config.json").write_text("{")
    (tmp_path / "r" / "status.json").write_text("[]")
    (tmp_path / "r" / "snapshots" / "90.npz").write_bytes(b"not a zip")
    html = provenance(group_runs(follow(tmp_path)))
    assert "config.json cannot be read" in html and "must hold a JSON object" in html
    assert "Over-confident" in report(tmp_path)


def test_warnings_are_told(tmp_path):
    path = make_run(tmp_path / "r", status="diverged")
    with (path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row(100) | {"train/gn_sharpness_unconverged": True}) + "\n")
    html = provenance(group_runs(follow(tmp_path)))
    assert "diverged at step 90" in html
    assert "train/gn_sharpness did not converge in 1 of 11 rows" in html


def test_certificate_in_words_only_where_there_is_one(tmp_path):
    path = make_run(tmp_path / "r")
    assert certificates(group_runs(follow(tmp_path))) == ""
    told = {"train/certificate_failed": 0, "train/slack 4.1 (i)": 0.25, "train/slack B.2": 0.5}
    with (path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row(100) | told) + "\n")
    html = certificates(group_runs(follow(tmp_path)))
    assert "All 2 statements that apply hold" in html and "tail of small margins" in html


def test_temperature_is_that_of_the_library():
    import torch

    generator = torch.Generator().manual_seed(1)
    logits = (3 * torch.randn(500, 4, generator=generator)).double()
    labels = torch.distributions.Categorical(logits=logits / 2).sample()
    found, note = fit_temperature(logits.numpy(), labels.numpy())
    assert note == ""
    temperature = Temperature().fit(logits, labels)
    assert found == pytest.approx(float(temperature.temperature), rel=1e-4)
    assert ece(logits.numpy(), labels.numpy()) == pytest.approx(float(library_ece(logits, labels)))


def predictions_of(n=200, seed=0, scale=5.0):
    """Over-confident logits of 3 classes, val and test, by their names in predictions.npz."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    found = {}
    for split in ("val", "test"):
        logits = scale * torch.randn(n, 3, generator=generator, dtype=torch.float64)
        labels = torch.multinomial((logits / 3).softmax(1), 1, generator=generator).squeeze(1)
        found |= {f"{split}_logits": logits.numpy(), f"{split}_labels": labels.numpy()}
    return found


def calibrator_cells(path, arrays):
    np.savez(path / "predictions.npz", **arrays)
    html = calibrators(group_runs(follow(path.parent)))
    return re.findall(r'data-value="([^"]*)">(.*?)</td>', html)


def test_calibrators_are_those_of_the_library(tmp_path):
    import torch

    arrays = predictions_of()
    cells = calibrator_cells(make_run(tmp_path / "r"), arrays)
    fit, judge = (
        (torch.from_numpy(arrays[f"{s}_logits"]), torch.from_numpy(arrays[f"{s}_labels"]))
        for s in ("val", "test")
    )
    calibrator = Temperature().fit(*fit)
    before, after = (judge[0], calibrator(judge[0]))
    wanted = [float(calibrator.temperature)]
    wanted += [100 * float(library_ece(z, judge[1])) for z in (before, after)]
    wanted += [float(nll(z, judge[1])) for z in (before, after)]
    assert [float(value) for value, _ in cells[1:6]] == pytest.approx(wanted, rel=1e-6)
    assert len(set(wanted)) == 5 and cells[6][0] == "200"
    assert "Temperature scaling, before and after" in report(tmp_path)


def test_confidences_at_an_edge_lie_below_it():
    """Three equal logits give a confidence of 5/15, an edge: (a, b], as the library has it."""
    import torch

    logits = np.concatenate([np.zeros((10, 3)), np.tile([0.1, 0, 0], (10, 1))])
    labels = np.array([0] * 10 + [1] * 10)
    wanted = float(library_ece(torch.from_numpy(logits), torch.from_numpy(labels)))
    assert ece(logits, labels) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("scale", [1.0, 1e5])
def test_a_temperature_without_a_best_stays_one(tmp_path, scale):
    arrays = predictions_of()
    arrays["val_logits"] *= scale
    right, wrong = arrays["val_logits"].argmax(1), arrays["val_logits"].argmin(1)
    for labels, words in ((right, "every validation row is right"), (wrong, "has no minimum")):
        found, note = fit_temperature(arrays["val_logits"], labels)
        assert found == 1 and words in note
    found, note = fit_temperature(arrays["val_logits"], arrays["val_labels"])
    assert found == pytest.approx(3 * scale, rel=0.5) and note == ""
    cells = calibrator_cells(make_run(tmp_path / "r"), arrays | {"val_labels": right})
    assert "every validation row is right" in cells[0][1] and cells[1][0] == "1.0"
    assert cells[2][0] == cells[3][0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"test_labels": np.full(200, 7)}, r"test_labels must be integers in \[0, 3\)"),
        ({"val_labels": np.zeros(199, int)}, "val_logits are"),
        ({"test_logits": np.full((200, 3), np.nan)}, "test_logits hold NaN"),
        ({"val_labels": np.zeros(200)}, "val_labels must be integers"),
    ],
)
def test_predictions_that_make_no_sense_are_told(tmp_path, change, words):
    assert calibrator_cells(make_run(tmp_path / "r"), predictions_of() | change) == []
    assert re.search(f"predictions.npz cannot be read .{words}", report(tmp_path))


@pytest.mark.parametrize("kept", [0, 100, 0.5, -30])
def test_files_cut_off_are_told_and_survived(tmp_path, kept):
    path = make_run(tmp_path / "r")
    np.savez(path / "predictions.npz", **predictions_of())
    for name in ("predictions.npz", "snapshots/90.npz"):
        whole = (path / name).read_bytes()
        cut = int(kept * len(whole)) if isinstance(kept, float) else kept
        (path / name).write_bytes(whole[:cut])
    html = report(tmp_path)
    assert "predictions.npz cannot be read" in html and "snapshots/90.npz cannot be read" in html
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
    assert "Too sure: mean confidence minus accuracy" not in html


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
    assert "NLL that no temperature takes away" in html and 'data-role="temperature"' in html
    assert "best before calibration at step 60, with an NLL of 0.400 after its temperature" in html
    assert "0.430 at step 90" in html
    assert 'id="refinement"' not in report(runs_folder)


def test_bold_is_not_called_best(runs_folder):
    html = comparison(group_runs(follow(runs_folder)))
    assert "close ones may be chance" in html and "est in bold" not in html


def test_no_runs_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="there are no runs"):
        report(tmp_path)


def test_torch_is_not_needed(runs_folder):
    code = f"from toosure.report.runs import report; report({str(runs_folder)!r})"
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
    assert len(report(tmp_path)) < 15_000_000
