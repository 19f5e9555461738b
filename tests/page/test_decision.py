"""The first screen: which setting, how honest, what next; all in one order."""

import json
import re

import numpy as np
import pytest
from made_runs import make_run, row

from toosure.page.decision import ON_TEST_ONLY, decide
from toosure.page.page_runs import PageRuns
from toosure.page.replicas import KEYS, example_scores
from toosure.page.report import conclusion_of, report
from toosure.page.sections.comparison import comparison
from toosure.page.sections.phase import phase
from toosure.page.sections.progress import progress
from toosure.page.sections.provenance import warnings
from toosure.page.sections.summary import summary
from toosure.page.sections.trajectories import trajectories
from toosure.page.validation_hint import NO_VALIDATION
from toosure.runs import RunWriter, find_runs
from toosure.runs.run import SAME_EXAMPLES


def write(folder, name, nll, accuracy=0.8, gap=0.1, seed=0, data=None, **more):
    """Write a run with a last NLL."""
    path = make_run(
        folder / f"{name}{seed}",
        {"optimizer": name, "seed": seed} | ({"data": data} if data else {}),
        accuracy=accuracy,
        gap=gap,
        **more,
    )
    told = (path / "metrics.jsonl").read_text().splitlines()
    lines = [json.loads(line) | {"val/nll": nll} for line in told]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_the_lowest_nll_of_the_accurate_is_taken(tmp_path):
    write(tmp_path, "sgd", 0.6)
    write(tmp_path, "sam", 0.5)
    write(tmp_path, "blind", 0.4, accuracy=0.3)  # well below what 400 samples allow
    page = PageRuns(find_runs(tmp_path))
    assert [setting.label for setting in page.ranked_settings] == ["blind", "sam", "sgd"]
    decision = decide(page)
    assert decision.title.startswith("Take sam: over-confident by 10.0 ±")
    assert "among the 2 of 3 settings" in decision.reason
    assert "blind has a lower one and is less accurate" in decision.reason
    write(tmp_path, "blind", 0.5, accuracy=0.3, ece=0.01)  # before sam, by its ECE
    assert "lower one" not in decide(PageRuns(find_runs(tmp_path))).reason


def test_what_cannot_be_ranked_comes_last(tmp_path):
    write(tmp_path, "sgd", 0.6)
    write(tmp_path, "sam", 0.5)
    write(tmp_path, "gone", 0.1, status="diverged")
    write(tmp_path, "fitted", 0.01, splits=("train",))
    ranked_settings = PageRuns(find_runs(tmp_path)).ranked_settings
    assert [each.label for each in ranked_settings[:2]] == ["sam", "sgd"]
    assert not any(each.is_ranked for each in ranked_settings[2:])
    html = summary(PageRuns(find_runs(tmp_path)))
    assert "not ranked" in html and "training data" in html


def test_a_seed_that_ended_early_is_left_out_and_told(tmp_path):
    write(tmp_path, "sgd", 0.5)
    write(tmp_path, "sgd", 0.1, seed=1, status="diverged")
    write(tmp_path, "sam", 0.9)
    page = PageRuns(find_runs(tmp_path))
    assert (
        page.ranked_settings[0].nll == pytest.approx(0.5) and page.ranked_settings[0].left_out == 1
    )
    assert "1 of its 2 runs ended early" in decide(page).reason
    assert "2 seeds, 1 left out" in summary(page)


def test_the_only_setting_that_ended_is_not_said_to_be_the_best_of_one(tmp_path):
    write(tmp_path, "sgd", 0.5)
    write(tmp_path, "sam", 0.1, status="diverged")
    reason = decide(PageRuns(find_runs(tmp_path))).reason
    assert reason.startswith("It is the only one of 2 settings that did not end early")
    assert "lowest" not in reason


def test_a_run_that_was_killed_is_to_be_finished_first(tmp_path):
    config = {"optimizer": "sgd", "steps": 1000}
    make_run(tmp_path / "killed", config, status="interrupted", gap=0.01)
    page = PageRuns(find_runs(tmp_path))
    assert decide(page).steps[0] == (
        "Repeat its command to finish it: it was interrupted at step 90 of 1,000."
    )
    assert "Not finished" in progress(page) and "Going on" not in progress(page)
    (tmp_path / "killed" / "examples.json").write_text('{"train": {"examples": 9}}')
    own_loop = decide(PageRuns(find_runs(tmp_path))).steps[0]
    assert own_loop == "Train it to its end: it was interrupted at step 90 of 1,000."
    with RunWriter(tmp_path / "other", {"optimizer": "sam", "steps": 1000}) as writer:
        writer.append(row(0))
        assert "Going on" in progress(PageRuns(find_runs(tmp_path)))


def test_the_first_screen_leads_to_the_warnings_of_what_is_taken(tmp_path):
    path = write(tmp_path, "sgd", 0.5)
    write(tmp_path, "sam", 0.9)
    assert "#provenance" not in summary(PageRuns(find_runs(tmp_path)))
    with (path / "metrics.jsonl").open("a") as file:
        told = row(100) | {"val/nll": 0.5, "train/gn_sharpness_unconverged": True}
        file.write(json.dumps(told) + "\n")
    html = summary(PageRuns(find_runs(tmp_path)))
    assert '<a href="#provenance">a warning</a>' in html
    assert html.count("<b>taken</b>") == 1


def test_seeds_are_one_line_with_mean_and_spread(tmp_path):
    for seed, nll in ((0, 0.5), (1, 0.7)):
        write(tmp_path, "sgd", nll, seed=seed, gap=0.1 + 0.1 * seed)
    write(tmp_path, "sam", 0.9)
    first = PageRuns(find_runs(tmp_path)).ranked_settings[0]
    assert first.nll == pytest.approx(0.6)
    assert first.spreads["nll"] == pytest.approx(np.std([0.5, 0.7], ddof=1))
    assert first.verdict.gap == pytest.approx(15)
    # Student's interval of two gaps ten points apart, and that of the examples.
    assert 12.706 * 5 < first.verdict.half_width < 12.706 * 5 + 1
    assert first.verdict.seeds_half == pytest.approx(12.706 * 5, rel=1e-4)


def test_more_seeds_are_advised_where_seeds_decide(tmp_path):
    for seed in range(2):
        write(tmp_path, "sgd", 0.5, seed=seed, gap=0.01 + 0.1 * seed)
        write(tmp_path, "sam", 0.9, seed=seed, gap=0.01 + 0.001 * seed)
    page = PageRuns(find_runs(tmp_path))
    by_seeds, by_examples = page.ranked_settings
    assert by_seeds.verdict.sentence == "Cannot tell with 2 seeds: a gap of +6.0 ± 63.7 points"
    # t(0.975, 4) * s / sqrt(5) at the same s = 7.07, with ± 4.4 of 400 examples
    (step,) = decide(page).steps
    assert step == (
        "Repeat it with more seeds: 2 leave ± 63.7 points, 5 as far apart would leave about ± 9.8."
    )
    assert "Cannot tell with 400 samples, over 2 seeds" in by_examples.verdict.sentence


def test_the_interval_of_a_gap_stays_within_what_is_possible(tmp_path):
    for seed in range(2):
        write(tmp_path, "sgd", 0.6, seed=seed, accuracy=0.2, gap=0.4 + 0.2 * seed)
    (setting,) = PageRuns(find_runs(tmp_path)).ranked_settings
    assert setting.verdict.half_width > 100
    assert setting.verdict.ends == pytest.approx((50 - setting.verdict.half_width, 100))
    assert re.search(r"interval −7\d\.\d to \+100\.0", summary(PageRuns(find_runs(tmp_path))))


@pytest.mark.parametrize(("gap", "faint"), [(0.10, False), (0.05, True)])
def test_a_gap_that_almost_touches_zero_looks_weaker(tmp_path, gap, faint):
    write(tmp_path, "sgd", 0.6, gap=gap)
    write(tmp_path, "sam", 0.7, gap=gap)
    html = summary(PageRuns(find_runs(tmp_path)))
    assert ('class="gap over faint"' in html) == faint


def test_bars_lie_where_the_numbers_are(tmp_path):
    write(tmp_path, "sgd", 0.6, gap=0.1)
    write(tmp_path, "sam", 0.7, gap=-0.1)
    html = summary(PageRuns(find_runs(tmp_path)))
    bars = re.findall(
        r'class="gap (\w+)".*?<rect x="([\d.]+)".*?width="([\d.]+)".*?zero" d="M([\d.]+)', html
    )
    (kind, left, width, zero), (other, other_left, other_width, _) = bars
    assert (kind, other) == ("over", "under")
    assert float(left) == pytest.approx(float(zero), abs=0.2)
    assert float(other_left) + float(other_width) == pytest.approx(float(zero), abs=0.2)
    assert float(width) == pytest.approx(float(other_width), abs=0.3)


def test_each_data_set_has_a_decision_of_its_own(tmp_path):
    for data, nlls in (("digits", (0.6, 0.5)), ("mnist:train=400", (0.1, 0.2))):
        for optimizer, nll in zip(("sgd", "sam"), nlls, strict=True):
            write(tmp_path / data[:5], optimizer, nll, data=data)
    page = PageRuns(find_runs(tmp_path))
    titles = [decide(part).title for part in page.by_data_set.values()]
    assert [title.partition(":")[0] for title in titles] == ["Take sam, digits", "Take sgd, mnist"]
    assert all("of 2 settings" in decide(part).reason for part in page.by_data_set.values())

    html = report(tmp_path)
    assert html.count("<h1>") == 1 and "2 data sets, each with its own decision" in html
    ranking, compared = summary(page), comparison(page)
    assert ranking.count("taken") == 2 and ranking.count('<table class="sortable">') == 2
    bold = re.findall(r"<strong>(0\.\d+)</strong>", compared)
    assert {"0.500", "0.100"} <= set(bold)  # the lowest NLL of each


def scaling(path, before, after):
    numbers = {"temperature": 2.0, "ece": before, "ece_after": after}
    (path / "temperature.json").write_text(json.dumps(numbers | {"nll": 1, "nll_after": 1, "n": 9}))


def test_what_next_is_a_temperature_where_it_helps(tmp_path):
    path = write(tmp_path, "sgd", 0.6)
    scaling(path, 0.119, 0.048)
    (step,) = decide(PageRuns(find_runs(tmp_path))).steps
    assert step == (
        "Temperature 2.00 takes ECE 11.9 → 4.8 points on test data: divide the logits by it."
    )
    scaling(path, 0.119, 0.2)
    (step,) = decide(PageRuns(find_runs(tmp_path))).steps
    assert step.startswith("Temperature 2.00 does not help")


def test_what_next_is_more_data_where_it_cannot_be_told(tmp_path):
    write(tmp_path, "sgd", 0.6, gap=0.0)
    (step,) = decide(PageRuns(find_runs(tmp_path))).steps
    assert re.match(r"Judge it on more data: 400 examples leave ± \d\.\d points, about", step)


def test_what_next_without_predictions_depends_on_whether_it_still_runs(tmp_path):
    path = make_run(tmp_path / "a", {"optimizer": "sgd"})
    (step,) = decide(PageRuns(find_runs(tmp_path))).steps
    assert step.startswith("Keep its predictions on validation data: `toosure calibrate FILE`")
    (path / "status.json").write_text('{"status": "running", "step": 90}')
    with RunWriter(path):  # whoever writes holds the lock
        (step,) = decide(PageRuns(find_runs(tmp_path))).steps
    assert step.startswith("Wait for its end")
    (path / "status.json").write_text('{"status": "diverged", "step": 90}')
    assert decide(PageRuns(find_runs(tmp_path))).steps == (
        "Repeat it with a smaller learning rate.",
    )
    (path / "status.json").write_text('{"status": "diverged", "step": 0}')
    (step,) = decide(PageRuns(find_runs(tmp_path))).steps
    assert step.startswith("Check its inputs")


def test_a_seed_that_diverged_does_not_decide_what_next(tmp_path):
    for seed in range(3):
        status = "complete" if seed else "diverged"
        path = make_run(tmp_path / str(seed), {"optimizer": "sgd", "seed": seed}, status=status)
    (step,) = decide(PageRuns(find_runs(tmp_path))).steps
    assert step.startswith("Keep its predictions")
    np.savez(path / "predictions.npz", val_logits=np.eye(2), val_labels=np.arange(2))
    (step,) = decide(PageRuns(find_runs(tmp_path))).steps
    assert step.startswith(f"`toosure calibrate {path}`")


def test_what_next_where_nothing_can_be_ranked(tmp_path):
    for name in ("sgd", "sam"):
        make_run(tmp_path / name, {"optimizer": name}, splits=("train",))
    (step,) = decide(PageRuns(find_runs(tmp_path))).steps
    assert step.startswith("Measure validation data")
    for name in ("sgd", "sam"):
        make_run(tmp_path / f"{name}2", {"optimizer": f"{name}:lr=9"}, status="diverged")
    (step,) = decide(PageRuns(find_runs(tmp_path))).steps
    assert step.startswith("Read the warnings")
    for name in ("sgd", "sam"):
        make_run(tmp_path / "killed" / name, {"optimizer": name}, status="interrupted")
    (step,) = decide(PageRuns(find_runs(tmp_path / "killed"))).steps
    assert step.startswith("Repeat the commands of these runs")
    (tmp_path / "killed" / "sam" / "examples.json").write_text('{"train": {"examples": 9}}')
    (step,) = decide(PageRuns(find_runs(tmp_path / "killed"))).steps
    assert step.startswith("Train these runs to their end")


def test_a_run_without_validation_data_says_so(tmp_path):
    make_run(tmp_path / "a", {"optimizer": "sgd"}, splits=("train",))
    page = PageRuns(find_runs(tmp_path))
    assert decide(page).steps == (NO_VALIDATION,)
    lines, portrait = trajectories(page), phase(page)
    assert "no run has validation data" in lines and 'data-value="val"' not in lines + portrait
    assert "train, rank" in portrait and "val, rank" not in portrait


def untested(folder, seed=0, optimizer="sgd", data="imagefolder:imgs,size=16", noise=1.0):
    """A run that is sure of its training data, and kept test predictions."""
    config = {"optimizer": optimizer, "data": data, "seed": seed}
    path = make_run(folder / f"{optimizer}{seed}", config, splits=("train",), gap=-0.012)
    labels = np.random.default_rng(0).integers(0, 3, 400)
    logits = noise * np.random.default_rng(seed).normal(size=(400, 3)) + 4 * np.eye(3)[labels]
    np.savez(path / "predictions.npz", test_logits=logits, test_labels=labels)
    return path


def test_test_predictions_judge_runs_without_validation_data(tmp_path):
    for seed in (0, 1):
        untested(tmp_path, seed, "sgd", noise=4.0)
        untested(tmp_path, seed, "csam", noise=3.0)
    page = PageRuns(find_runs(tmp_path))
    decision = decide(page)
    assert decision.title.startswith("All 4 runs are over-confident")
    assert decision.title.endswith("(test data)") and decision.reason == ON_TEST_ONLY
    (step,) = decision.steps
    assert "as with `--data imagefolder:imgs,size=16,val=200`: settings are chosen" in step

    # The ranking has the numbers of the same data, and takes no setting by them.
    assert not any(setting.is_ranked for setting in page.ranked_settings)
    (csam, sgd) = page.ranked_settings
    (one, other) = (page.comparison.settings[label].values for label in ("csam", "sgd"))
    assert csam.values["ece"] == pytest.approx(100 * one[KEYS.index("ece")])
    assert sgd.values["nll"] == pytest.approx(other[KEYS.index("nll")])
    html = summary(page)
    assert "training data" not in html and "test data</small>" in html


def test_a_single_run_is_judged_by_its_test_predictions(tmp_path):
    path = untested(tmp_path, noise=4.0)
    arrays = np.load(path / "predictions.npz")
    scores = example_scores(arrays["test_logits"], arrays["test_labels"])
    excess = 100 * (scores.confidence - scores.correct)
    (verdict,) = PageRuns(find_runs(tmp_path)).verdicts.values()
    assert verdict.gap == pytest.approx(excess.mean()) and verdict.n == 400
    assert verdict.half_width == pytest.approx(1.96 * excess.std(ddof=1) / 20, rel=1e-3)
    decision = decide(PageRuns(find_runs(tmp_path)))
    assert decision.title == verdict.sentence and decision.title.endswith("(test data)")
    assert "--data imagefolder:imgs,size=16,val=200" in decision.steps[0]

    (path / "predictions.npz").write_bytes(b"PK damaged")
    assert "(training data)" in decide(PageRuns(find_runs(tmp_path))).title


def test_validation_by_the_training_examples_is_told(tmp_path):
    path = make_run(tmp_path / "a", {"optimizer": "sgd"})
    notes = {split: {"examples": 9, "sha256": "ab"} for split in ("train", "val")}
    (path / "examples.json").write_text(json.dumps(notes))
    page = PageRuns(find_runs(tmp_path))
    decision = decide(page)
    assert "(training data)" in decision.title
    assert decision.steps[0].startswith("Give `Watch` validation data (`val=`)")
    assert SAME_EXAMPLES in warnings(page)
    assert "but they are the training data" in trajectories(page)


def test_a_conclusion_beside_the_runs_comes_first(tmp_path):
    write(tmp_path, "sgd", 0.6)
    (tmp_path / "conclusion.txt").write_text("CSAM <b>won</b>\n here.\n")
    assert conclusion_of(find_runs(tmp_path)) == "CSAM <b>won</b> here."
    html = report(tmp_path)
    assert html.index("CSAM &lt;b&gt;won&lt;/b&gt; here.") < html.index("<h1>")
    (tmp_path / "conclusion.txt").write_text("x" * 5000)
    assert conclusion_of(find_runs(tmp_path)) == ""  # no conclusion is that long
    (tmp_path / "conclusion.txt").unlink()
    assert conclusion_of(find_runs(tmp_path)) == ""


def test_rows_hold_what_the_filter_reads(tmp_path):
    make_run(tmp_path / "a", {"optimizer": "sgd:lr=0.1,momentum=0.9", "batch": 64})
    make_run(tmp_path / "b", {"optimizer": "sgd:lr=0.3,momentum=0.9", "batch": 64})
    html = summary(PageRuns(find_runs(tmp_path)))
    assert "optimizer=sgd lr=0.1 momentum=0.9 batch=64" in html


def test_rows_without_nll_are_ordered_by_ece(tmp_path):
    for name, error in (("sgd", 0.2), ("sam", 0.1)):
        path = make_run(tmp_path / name, {"optimizer": name}, ece=error)
        lines = [
            {k: v for k, v in row(step, ece=error).items() if "nll" not in k} for step in range(3)
        ]
        (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = PageRuns(find_runs(tmp_path))
    assert [each.label for each in page.ranked_settings] == ["sam", "sgd"]
    assert decide(page).reason.startswith("It has the lowest validation ECE, 10.00, of 2 settings")
