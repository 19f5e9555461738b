"""Differences on the same examples: scores as the metrics give them, intervals that cover."""

import json
import re

import numpy as np
import pytest
import torch
from made_runs import make_run
from scipy.stats import t as student

from toosure.chance import chance_level
from toosure.metrics import ece, smece
from toosure.page.half_intervals import interval_of_mean
from toosure.page.markdown import markdown_report
from toosure.page.page_runs import PageRuns
from toosure.page.paired import SettingScores, seed_half
from toosure.page.replicas import KEYS, example_scores, replicas_of
from toosure.page.scaling_effect import scaling_effect
from toosure.page.sections.differences import differences
from toosure.page.sections.improvements import calibrator_improvements, improvements
from toosure.posthoc.temperature_effect import temperature_scaling
from toosure.runs import Run, find_runs


def logits_and_labels(n=300, classes=4, scale=3.0, seed=0):
    generator = np.random.default_rng(seed)
    logits = scale * generator.normal(size=(n, classes))
    chances = np.exp(logits / 2)
    chances /= chances.sum(1, keepdims=True)
    return logits, (chances.cumsum(1) > generator.random((n, 1))).argmax(1)


@pytest.mark.parametrize("scale", [0.5, 3.0, 8.0])
def test_scores_are_those_of_the_metrics(scale):
    logits, labels = logits_and_labels(scale=scale)
    values, _ = replicas_of(example_scores(logits, labels))
    pair = torch.from_numpy(logits), torch.from_numpy(labels)
    nll = torch.nn.functional.cross_entropy(*pair)
    expected = [(pair[0].argmax(1) == pair[1]).double().mean(), nll, ece(*pair), smece(*pair)]
    assert values == pytest.approx([float(each) for each in expected], abs=2e-4)


def test_one_logit_is_that_of_class_one():
    scores = example_scores(np.array([0.0, np.log(3.0)]), np.array([0, 1]))
    assert scores.confidence == pytest.approx([0.5, 0.75])
    assert scores.nll == pytest.approx([np.log(2), -np.log(0.75)])


def test_the_interval_of_a_paired_difference_is_that_of_the_differences():
    """Accuracy of two models on the same examples: 1.96 standard errors of mean(a - b)."""
    logits, labels = logits_and_labels(2000)
    noisy = logits + np.random.default_rng(1).normal(0, 1, logits.shape)
    one, other = example_scores(logits, labels), example_scores(noisy, labels)
    gaps = one.correct.astype(float) - other.correct
    replicas = [replicas_of(scores)[1][:, 0] for scores in (one, other)]
    found = (replicas[0] - replicas[1]).std(ddof=1)
    assert found == pytest.approx(gaps.std(ddof=1) / np.sqrt(len(gaps)), rel=0.15)
    alone = np.hypot(replicas[0].std(ddof=1), replicas[1].std(ddof=1))
    assert found < 0.8 * alone  # what both get wrong cancels


def test_seeds_are_paired_where_both_have_the_same():
    values = np.arange(12.0).reshape(3, 4)
    empty = np.zeros((5, 4))
    one = SettingScores(("0", "1", "2"), values, empty)
    shifted = SettingScores(("0", "1", "2"), values + 1, empty)
    others = SettingScores(("3", "4", "5"), values + 1, empty)
    assert seed_half(one, shifted) == pytest.approx(np.zeros(4))  # always one apart
    alone = 4.303 * 4 / np.sqrt(3)  # Student with two degrees of freedom, deviation 4
    assert interval_of_mean(values) == pytest.approx([alone] * 4, rel=1e-3)
    assert seed_half(one, others) == pytest.approx([np.sqrt(2) * alone] * 4, rel=1e-3)


@pytest.mark.parametrize("seeds", [2, 11, 13, 40])
def test_the_interval_over_seeds_is_students(seeds):
    values = np.random.default_rng(seeds).normal(size=(seeds, 3))
    wanted = student.ppf(0.975, seeds - 1) * values.std(axis=0, ddof=1) / np.sqrt(seeds)
    assert interval_of_mean(values) == pytest.approx(wanted, rel=1e-6)


def write_predictions(path, scale, seed=0, labels_seed=0):
    logits, labels = logits_and_labels(400, seed=labels_seed)
    logits = scale * (logits + 0.1 * np.random.default_rng(seed).normal(size=logits.shape))
    arrays = {f"{split}_logits": logits for split in ("val", "test")}
    arrays |= {f"{split}_labels": labels for split in ("val", "test")}
    np.savez(path / "predictions.npz", **arrays)
    pair = torch.from_numpy(logits), torch.from_numpy(labels)
    (path / "temperature.json").write_text(json.dumps(temperature_scaling(pair, pair)))


@pytest.fixture
def compared(tmp_path):
    """A plain optimizer that is far too sure, a calmer one, one judged on other examples."""
    for name, scale in (("sgd:lr=0.1", 1.0), ("sam:lr=0.1", 0.5)):
        path = make_run(tmp_path / name[:3], {"optimizer": name, "seed": 0})
        write_predictions(path, scale)
    other = make_run(tmp_path / "else", {"optimizer": "muon", "seed": 0})
    write_predictions(other, 1.0, labels_seed=9)
    return PageRuns(find_runs(tmp_path))


def test_only_the_same_examples_are_compared(compared):
    comparison = compared.comparison
    assert comparison.settings.keys() == {"sgd:lr=0.1", "sam:lr=0.1"}
    assert (comparison.split, comparison.n) == ("test", 400)
    assert compared.reference.label == "sgd:lr=0.1"
    found = comparison.difference("sam:lr=0.1", "sgd:lr=0.1")
    assert list(found) == list(KEYS) and found["ece"].value < 0 and not found["ece"].is_chance
    back = comparison.difference("sgd:lr=0.1", "sam:lr=0.1")
    assert back["ece"].value == pytest.approx(-found["ece"].value)
    html = differences(compared)
    assert "Without predictions of these examples: muon." in html and 'class="gain"' in html


def test_what_helped_is_sorted_by_gain_and_a_temperature_costs_nothing(compared):
    html = improvements(compared)
    assert "sgd:<wbr>lr=0.1,<wbr> with temperature" in html and "unchanged" in html
    assert html.index("sam:<wbr>lr=0.1") > 0 and "1.00 ×" in html


def test_what_helped_names_its_reference_and_its_numbers(compared):
    values = compared.comparison.settings["sgd:lr=0.1"].values
    ece, accuracy = 100 * values[KEYS.index("ece")], 100 * values[KEYS.index("accuracy")]
    assert (
        f"Against sgd:lr=0.1, the plain optimizer sgd: its ECE is {ece:.2f} points, "
        f"its accuracy {accuracy:.1f}&nbsp;%, on 400 test examples."
    ) in improvements(compared)


def test_without_a_plain_optimizer_the_reference_is_the_first_of_the_ranking(tmp_path):
    for name in ("one", "two"):
        write_predictions(make_run(tmp_path / name), 1.0)
    page = PageRuns(find_runs(tmp_path))
    assert page.reference is page.groups[0]
    assert "the first of the ranking, since no setting is a plain optimizer" in improvements(page)


def test_differences_and_what_helped_are_of_each_data_set(tmp_path):
    for place, data in enumerate(("digits", "mnist", "alone")):
        for name, scale in (("sgd:lr=0.1", 1.0), ("sam:lr=0.1", 0.5))[: 2 if place < 2 else 1]:
            config = {"optimizer": name, "data": data}
            path = make_run(tmp_path / f"{data}_{name[:3]}", config)
            write_predictions(path, scale * (1 + place), labels_seed=place)
    page = PageRuns(find_runs(tmp_path))

    html, helped = differences(page), improvements(page)
    assert re.findall(r'class="differences" data-of="(\w+)"', html) == ["digits", "mnist"]
    assert html.count("the reference</small>") == 2
    assert helped.count("Against sgd:lr=0.1, ") == 2
    text = markdown_report(page, tmp_path / "pictures")
    assert text.count("### Differences on the same examples") == 2
    for part in (page.by_data_set[name] for name in ("digits", "mnist")):
        found = part.comparison.difference(*(group.label for group in part.groups))
        assert f"{100 * abs(found['ece'].value):.2f}" in html


def test_an_interval_says_whether_seeds_or_examples_decide(tmp_path):
    for name, scales in (("sgd:lr=0.1", (1.0, 1.0)), ("sam:lr=0.1", (0.3, 3.0))):
        for seed, scale in enumerate(scales):
            path = make_run(tmp_path / f"{name[:3]}{seed}", {"optimizer": name, "seed": seed})
            write_predictions(path, scale)
    page = PageRuns(find_runs(tmp_path))
    found = page.comparison.difference("sam:lr=0.1", "sgd:lr=0.1")["ece"]
    by_seed = page.comparison.settings["sam:lr=0.1"].by_seed[:, KEYS.index("ece")]
    spread = student.ppf(0.975, 1) * by_seed.std(ddof=1) / np.sqrt(2)  # the reference has none
    assert found.is_over_seeds and found.seeds_half == pytest.approx(spread, rel=1e-4)
    assert "2 seeds</td>" in differences(page) and "2 seeds</td>" in improvements(page)
    assert found.value + found.half_width > 1  # an ECE cannot change by more than 100 points
    low = f"{100 * (found.value - found.half_width):.2f}".replace("-", "−")
    assert f"{low} to +100.00" in differences(page)

    five = student.ppf(0.975, 4) * by_seed.std(ddof=1) / np.sqrt(5)
    expected = np.hypot(found.examples_half, five)
    assert found.half_with(5, instead_of=2) == pytest.approx(expected, rel=1e-4)

    calm = PageRuns([run for run in page.runs if run.name != "sam1"])
    assert "400 examples</td>" in differences(calm)


def test_the_gain_by_a_temperature_is_the_mean_over_seeds(tmp_path):
    for seed, scale in enumerate((1.0, 2.0, 4.0)):
        path = make_run(tmp_path / str(seed), {"optimizer": "sgd:lr=0.1", "seed": seed})
        write_predictions(path, scale, seed=seed)
    page = PageRuns(find_runs(tmp_path))
    changes = [scaling_effect(run).change for run in page.runs]
    (gain,) = calibrator_improvements(page.ranked_settings[0])
    assert gain.ece.value == pytest.approx(np.mean([each.value for each in changes]))
    spread = interval_of_mean(np.array([[each.value] for each in changes]))[0]
    assert gain.ece.half_width > spread > 2 * max(each.half_width for each in changes)
    mean = np.mean([run.scaling["temperature"] for run in page.runs])
    assert gain.name.endswith(f"with temperature {mean:.2f}") and gain.note.endswith(", 3 seeds")

    (page.runs[2].path / "temperature.json").unlink()
    (gain,) = calibrator_improvements(PageRuns(find_runs(tmp_path)).ranked_settings[0])
    assert gain.note == "on test data, 2 of 3 seeds"


def test_nothing_is_compared_without_predictions(runs_folder):
    page = PageRuns(find_runs(runs_folder))
    assert page.comparison is None and differences(page) == improvements(page) == ""


def test_a_temperature_has_intervals_and_a_level_of_chance(compared):
    run = next(run for run in compared.runs if run.name == "sgd")
    effect = scaling_effect(run)
    assert effect.before.value == pytest.approx(run.scaling["ece"], abs=1e-4)
    assert effect.after.value == pytest.approx(run.scaling["ece_after"], abs=1e-4)
    assert effect.change.value == pytest.approx(effect.after.value - effect.before.value)
    assert not effect.change.is_chance and effect.after.value < effect.chance < effect.before.value


def test_the_level_of_chance_is_that_of_drawn_labels():
    generator = np.random.default_rng(3)
    confidence = generator.uniform(0.3, 1, 2000)
    drawn = [float(ece_of(confidence, generator.random(2000) < confidence)) for _ in range(200)]
    assert chance_level(confidence) == pytest.approx(np.quantile(drawn, 0.975), rel=0.12)


def ece_of(confidence, correct):
    from toosure.metrics import ece_from_confidence

    return ece_from_confidence(confidence, correct)


def test_a_temperature_of_sequences_has_the_interval_of_sequences(compared, tmp_path):
    run = next(run for run in compared.runs if run.name == "sgd")
    alone = scaling_effect(run).change
    arrays = dict(np.load(run.last_predictions))
    order = np.argsort(example_scores(arrays["test_logits"], arrays["test_labels"]).nll)
    sequence = np.empty(400, int)
    sequence[order] = np.arange(400) // 20  # examples of one sequence are alike
    np.savez(run.last_predictions, **arrays, test_sequence_of_row=sequence)
    together = scaling_effect(run).change
    assert together.value == alone.value and together.half_width > 1.5 * alone.half_width


def test_damaged_predictions_are_left_out(compared, tmp_path):
    file = tmp_path / "sgd" / "predictions.npz"
    arrays = dict(np.load(file))
    labels = arrays["test_labels"]
    for damage in (labels + 4, labels - 4, labels[:, None], np.full(400, np.nan)):
        np.savez(file, **(arrays | {"test_labels": damage, "val_labels": damage}))
        page = PageRuns(find_runs(tmp_path))
        with np.errstate(all="ignore"):  # as the report has it
            assert page.comparison is None and improvements(page) == ""
    file.write_bytes(b"no zip")
    assert PageRuns(find_runs(tmp_path)).comparison is None


def test_a_temperature_that_is_too_small_to_divide_by_has_no_effect(compared, tmp_path):
    file = tmp_path / "sgd" / "temperature.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"temperature": 5e-324}))
    with np.errstate(all="ignore"):
        assert scaling_effect(Run(file.parent)) is None


def test_seeds_that_split_the_data_are_compared_seed_by_seed(tmp_path):
    for name, scale in (("sgd:lr=0.1", 1.0), ("sam:lr=0.1", 0.5)):
        for seed in range(3):
            config = {"optimizer": name, "data": f"digits:seed={seed}", "seed": seed}
            path = make_run(tmp_path / f"{name[:3]}{seed}", config)
            write_predictions(path, scale, seed=seed, labels_seed=seed)

    comparison = PageRuns(find_runs(tmp_path)).comparison
    assert {label: len(each.seeds) for label, each in comparison.settings.items()} == {
        "sgd:lr=0.1": 3,
        "sam:lr=0.1": 3,
    }
    assert not comparison.difference("sam:lr=0.1", "sgd:lr=0.1")["ece"].is_chance
