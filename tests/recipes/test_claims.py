"""Claims are judged from run folders: written here, with verdicts that are known."""

import re
import shutil

import numpy as np
import pytest
from fake_runs import write_run
from made_up_scores import record_with

from toosure.config import RunConfig
from toosure.recipes import RunStore, Setting, recipe
from toosure.recipes.benchmark.scored_rows import Row, ScoredRow
from toosure.recipes.reproduce import cost, judge_parts, longest_first
from toosure.recipes.too_sharp import (
    bulk_sgd,
    calmo,
    certificates,
    correlations,
    figures,
    hypotheses,
    mse,
    muon,
    paper,
    rise_and_fall,
    summaries,
    sweeps,
    table1,
)

PAPER = Setting()


def with_r(r, n=60, seed=0):
    """Return two series whose Pearson correlation is exactly r."""
    generator = np.random.default_rng(seed)
    a, e = generator.normal(size=(2, n))
    a = (a - a.mean()) / a.std()
    e -= e.mean()
    e -= a * (a @ e) / (a @ a)
    return a, r * a + np.sqrt(1 - r**2) * e / e.std()


def write_column(out, name, rs, **more):
    for number, (config, r) in enumerate(zip(sweeps.rate_configs(PAPER, name, 0), rs, strict=True)):
        a, b = with_r(r, seed=number)
        series = {"train_ece": a, "train_gn_sharpness": b, "train_mmce": a, **more}
        write_run(out, config, **series)


def test_table_1_is_the_mean_over_rates_and_two_deviations_decide(tmp_path):
    write_column(tmp_path, "GD", [0.6, 0.7, 0.7, 0.72])  # 0.68: 1.9 deviations below 0.83
    write_column(tmp_path, "SGD", [0.6, 0.7, 0.7, 0.72])  # 2.3 deviations below 0.84
    write_column(tmp_path, "Muon", [0.0, 0.0, 0.0, 0.0])
    findings = table1.findings(PAPER, RunStore(tmp_path))
    claims = {c.statement: c for c in findings.claims}
    gd = claims["Table 1: r of train ECE and sharpness, GD"]
    assert gd.found.startswith("0.68 ± 0.05 (n = 4") and gd.passed is True
    assert gd.paper == "0.83 ± 0.08"
    assert claims["Table 1: r of train ECE and sharpness, SGD"].passed is False
    assert claims["Table 1: r of train ECE and sharpness, Muon"].passed is False
    assert claims["Table 1: r of train ECE and sharpness, SAM"].note == "no complete run"
    assert "2.4 of the paper's" in claims["Table 1: r of train ECE and sharpness, Muon"].note
    by_seed = findings.values["couplings"]["train ECE"]["GD"]["0"]
    assert [each["pearson"] for each in by_seed] == pytest.approx([0.6, 0.7, 0.7, 0.72])


def test_test_rows_pair_the_held_out_error_with_the_held_out_sharpness(tmp_path):
    a, b = with_r(0.95)
    write_column(tmp_path, "GD", [-0.5] * 4, val_ece=a, val_mmce=-a, val_gn_sharpness=b)
    by_row = correlations.read_correlations(PAPER, RunStore(tmp_path))
    assert by_row["test ECE"]["GD"][0][0].pearson == pytest.approx(0.95)
    assert by_row["test KCE"]["GD"][0][0].pearson == pytest.approx(-0.95)
    assert by_row["train KCE"]["GD"][0][0].pearson == pytest.approx(-0.5)
    assert by_row["train ECE"]["GD"][0][0].pearson == pytest.approx(-0.5)
    other = by_row["test ECE, train sharpness"]["GD"][0][0].pearson
    assert other != pytest.approx(0.95)


def test_a_run_that_diverged_is_reported_and_not_counted(tmp_path):
    write_column(tmp_path, "GD", [0.9] * 4)
    config = sweeps.rate_configs(PAPER, "GD", 0)[0]
    (tmp_path / config.name / "status.json").write_text(
        '{"status": "diverged", "step": 7, "message": "no"}'
    )
    store = RunStore(tmp_path)
    findings = table1.findings(PAPER, store)
    assert "(n = 3 rates)" in findings.claims[0].found
    assert findings.claims[0].passed is None
    assert findings.claims[0].note == "1 of 4 runs missing or ended early"
    rates = next(t for t in findings.tables if t.title == "Table 1, run by run")
    assert [row[2] for row in rates.rows[:4]] == ["–", "0.90", "0.90", "0.90"]
    assert store.problems[config.name] == "diverged at step 7: no"


def test_quick_and_other_data_are_not_judged_by_the_papers_figures(tmp_path):
    for setting in (Setting(quick=True), Setting(data="cifar100")):
        for config in sweeps.rate_configs(setting, "GD", 0):
            a, b = with_r(0.83)
            write_run(tmp_path, config, train_ece=a, train_gn_sharpness=b)
        findings = table1.findings(setting, RunStore(tmp_path))
        assert {claim.passed for claim in findings.claims} == {None}
        assert findings.claims[0].found.startswith("0.83 ± 0.00")

        # Nothing of the paper's table stands beside them, in claims, tables or pictures.
        assert {claim.paper for claim in findings.claims} == {""}
        assert not [row for row in findings.tables[0].rows if "paper" in row[0]]
        (drawing,) = (
            d for d in figures.table_1_drawings(setting, RunStore(tmp_path)) if d.name == "table1"
        )
        assert "paper" not in drawing.note and len(drawing.draw().data) == 2


def bump(at, n=161, width=6.0):
    """A hump over rows 0 to n - 1, from .05 up to 1 and back."""
    return 0.05 + 0.95 * np.exp(-(((np.arange(n) - at) / width) ** 2))


LOST = np.where(np.arange(161) < 160, np.linspace(0.1, 1, 161), np.nan)  # rises, and then nothing
SHAPES = {  # ECE, sharpness, verdicts: rise and fall, together
    "together": (bump(40), bump(43), [True, True]),
    "apart, though near in a long run": (bump(10), bump(25), [True, False]),
    "only rises": (bump(40), np.linspace(0.1, 1, 161), [False, False]),
    "only falls": (np.linspace(1, 0.1, 161), bump(2), [False, True]),
    "the last row is lost": (LOST, LOST, [False, True]),
}


@pytest.mark.parametrize("name", SHAPES)
def test_figure_1_asks_for_a_rise_a_fall_and_one_time(tmp_path, name):
    ece, sharpness, expected = SHAPES[name]
    for config in rise_and_fall.configs(PAPER):
        write_run(tmp_path, config, train_ece=ece, train_gn_sharpness=sharpness)
    findings = rise_and_fall.findings(PAPER, RunStore(tmp_path))
    assert [claim.passed for claim in findings.claims] == expected


def test_figure_1_fails_by_one_run_of_eight(tmp_path):
    for number, config in enumerate(rise_and_fall.configs(PAPER)):
        late = 0 if number else 15
        write_run(tmp_path, config, train_ece=bump(40), train_gn_sharpness=bump(40 + late))
    findings = rise_and_fall.findings(PAPER, RunStore(tmp_path))
    assert [claim.passed for claim in findings.claims] == [True, False]
    assert (
        findings.claims[1].found
        == "7 of 8 runs; peaks 0 to 750 steps apart, of ECE at 2,000 to 2,000"
    )
    assert findings.tables[0].rows[0][1:3] == ("2,000", "2,750")


def test_one_jump_at_the_edge_of_stability_is_no_peak_and_the_caption_agrees(tmp_path):
    jumping = bump(40, width=30.0)
    jumping[100] = 2.0  # one row, far from the hump
    for config in rise_and_fall.configs(PAPER):
        write_run(tmp_path, config, train_ece=bump(40, width=30.0), train_gn_sharpness=jumping)
    store = RunStore(tmp_path)
    findings = rise_and_fall.findings(PAPER, store)
    assert findings.claims[1].passed is True
    assert findings.claims[1].found.startswith("8 of 8 runs; peaks 0 to 0 steps apart")
    assert "running means over 5% of a run (400 steps)" in findings.tables[0].note

    (drawing,) = figures.figure_1_drawings(PAPER, store)
    assert (
        "rise and fall in 8 of 8 runs. Their peaks are 0 to 0 steps apart; in 8 of 8"
        in drawing.note
    )


# -- hypotheses, Muon, BulkSGD --------------------------------------------------------------


def hump(top, n=41):
    return np.concatenate([[0.05], top * np.exp(-np.arange(n - 1) / 4.0)])


def test_peak_area_and_settling(tmp_path):
    config = sweeps.rate_configs(PAPER, "GD", 0)[0]
    write_run(tmp_path, config, train_ece=np.array([0.9, 0.1, 0.3, 0.009, 0.02, 0.005]))
    run = RunStore(tmp_path).run(config)
    assert summaries.peak_ece(run) == 0.3
    assert summaries.step_below(run) == 8000
    assert summaries.ece_area(run, until=1600) == pytest.approx(1600 * 0.5)
    write_run(tmp_path / "never", config, train_ece=np.full(6, 0.02))
    assert summaries.step_below(RunStore(tmp_path / "never").run(config)) == np.inf


def write_table(out, tops):
    """Write every run of Table 1, with a peak of training ECE for each optimizer."""
    for name, top in tops.items():
        for config in sweeps.rate_configs(PAPER, name, 0):
            write_run(out, config, train_ece=hump(top))


@pytest.mark.parametrize(
    ("sam", "muon", "expected"),
    [
        (0.20, 0.10, [True, True]),
        (0.13, 0.10, [False, True]),  # SAM peaks lower, too
        (0.20, 0.19, [True, False]),  # Muon peaks lower, but not substantially
        (0.20, 0.30, [True, False]),
    ],
)
def test_hypotheses_compare_peaks_with_gd_and_sgd(tmp_path, sam, muon, expected):
    write_table(tmp_path, {"GD": 0.2, "SGD": 0.21, "SAM": sam, "Muon": muon, "AdamW": 0.1})
    claims = hypotheses.findings(PAPER, RunStore(tmp_path)).claims
    assert [claim.passed for claim in claims[:2]] == expected
    assert [c.note for c in claims[2:]] == ["no complete run"] * 6  # BulkSGD's


def test_bulk_peaks_are_compared_group_by_group(tmp_path):
    write_table(tmp_path, {"GD": 0.2, "SGD": 0.21, "SAM": 0.2, "Muon": 0.1})
    for (_, k), config in sweeps.bulk_sgd(PAPER).items():
        write_run(tmp_path, config, train_ece=hump({1: 0.1, 3: 0.15, 5: 0.3}[k]))
    runs = hypotheses.runs_by_optimizer(PAPER, RunStore(tmp_path))
    claims = hypotheses.hypothesis_claims(PAPER, runs)
    assert [claim.passed for claim in claims] == [True, True, True, True, False]


MUON = {"margin": 9.0, "ece": 0.001, "confidence": 0.9}
OTHERS = {"margin": 2.0, "ece": 0.1, "confidence": 0.8}
CASES = {
    "as in the paper": ({}, {}, [True, True, True]),
    "another has larger margins": ({}, {"margin": 10.0}, [False, True, True]),
    "not calibrated in sample": ({"ece": 0.02}, {}, [True, False, True]),
    "under-confident": ({"confidence": 0.1}, {}, [True, True, False]),
    "another is surer still": ({}, {"confidence": 0.95}, [True, True, False]),
    "barely over-confident": ({"confidence": 0.55}, {"confidence": 0.5}, [True, True, False]),
}


@pytest.mark.parametrize("case", CASES)
def test_muon_is_judged_at_its_own_length(tmp_path, case):
    own, other, expected = CASES[case]
    n = 41
    for name in sweeps.optimizers(PAPER):
        numbers = {**MUON, **own} if name == "Muon" else {**OTHERS, **other}
        for config in sweeps.rate_configs(PAPER, name, 0):
            late = np.linspace(0, config.steps, n) > 2000  # after step 2,000 nobody looks
            write_run(
                tmp_path,
                config,
                train_margin_q50=np.where(late, 50.0, numbers["margin"]),
                train_ece=np.full(n, numbers["ece"]),
                val_accuracy=np.full(n, 0.5),
                val_confidence=np.where(late, 0.5, numbers["confidence"]),
            )
    claims = muon.findings(PAPER, RunStore(tmp_path)).claims
    assert [claim.passed for claim in claims] == expected


def test_bulk_claims_hold_for_a_run_that_oscillates_and_fail_for_a_calm_one(tmp_path):
    n = 41
    calm = np.linspace(2, 0.5, n)
    for config in sweeps.rate_configs(PAPER, "SGD", 0):
        write_run(tmp_path, config, train_loss=calm)
    wild = calm * (1 + 0.5 * (-1) ** np.arange(n))
    sharp = np.linspace(10, 4000, n)
    for out, loss, sharpness, expected in (("a", wild, sharp, True), ("b", calm, calm, False)):
        for config in sweeps.rate_configs(PAPER, "SGD", 0):
            write_run(tmp_path / out, config, train_loss=calm)
        for config in sweeps.bulk_sgd(PAPER).values():
            write_run(tmp_path / out, config, train_loss=loss, train_gn_sharpness=sharpness)
        store = RunStore(tmp_path / out)
        claims = bulk_sgd.claims(PAPER, store, sweeps.bulk_sgd(PAPER))
        claims += bulk_sgd.oscillation_claims(PAPER, store)
        assert [claim.passed for claim in claims] == [expected, True, expected]


def test_longer_bulk_runs_say_how_often_they_renew_and_what_they_are_held_against(tmp_path):
    for config in sweeps.long_bulk_sgd(PAPER).values():
        loss = np.linspace(2.3, 0.1, 101)
        write_run(tmp_path, config, train_loss=loss, train_gn_sharpness=loss, train_ece=loss)
    findings = bulk_sgd.long_run_findings(PAPER, RunStore(tmp_path))
    sharp, falling = findings.claims
    assert sharp.statement.endswith("over 20,000 steps, directions renewed every 10 steps")
    assert sharp.paper == "thousands, over 100,000 steps, directions renewed at every step"
    assert (sharp.passed, falling.passed) == (False, True)
    assert findings.tables[0].note.endswith("each step, directions renewed every 10 steps.")


def test_a_diverged_bulk_run_counts_up_to_its_end_and_does_not_fall(tmp_path):
    values = np.array([2.0, 1.0, 0.8, 5.0, np.nan])
    series = {"train_loss": values, "train_gn_sharpness": 1000 * values, "train_ece": values / 10}
    for config in sweeps.bulk_sgd(PAPER).values():
        write_run(tmp_path, config, status="diverged", **series)
    findings = hypotheses.findings(PAPER, RunStore(tmp_path))
    reaches, falls = findings.claims[5:7]
    assert reaches.passed is True and "5,000" in reaches.found
    assert falls.passed is False and falls.found == "0 of 6 runs"
    assert findings.tables[1].rows[0][-2:] == ("0.500", "3,000")


def test_a_loss_that_ends_above_its_start_does_not_fall(tmp_path):
    loss = np.array([2.0, 1.9, 1.8, 1.7, 1.0, 40.0])
    for config in sweeps.bulk_sgd(PAPER).values():
        write_run(tmp_path, config, train_loss=loss)
    claims = bulk_sgd.claims(PAPER, RunStore(tmp_path), sweeps.bulk_sgd(PAPER))
    assert [claim.passed for claim in claims] == [False, False]


# -- squared error and certificates ---------------------------------------------------------


def write_mse(out, setting, confidences, sharpness):
    for config, confidence in zip(sweeps.squared_error(setting)["GD"], confidences, strict=True):
        n = len(sharpness)
        write_run(
            out,
            config,
            train_confidence=np.full(n, confidence),
            train_accuracy=np.full(n, 0.99),
            train_gn_sharpness=sharpness,
            train_ece=np.full(n, abs(0.99 - confidence)),
        )


STAYS, DECAYS = np.linspace(5, 30, 5), np.array([5, 30, 20, 10, 1.0])


@pytest.mark.parametrize(
    ("data", "confidences", "sharpness", "expected"),
    [
        ("cifar10", [0.232] * 4, STAYS, [True] * 4),
        ("cifar10", [0.9] * 4, DECAYS, [False] * 4),
        ("cifar10", [0.232] * 4, DECAYS, [True, True, True, False]),
        ("cifar10", [0.05, 0.05, 0.42, 0.42], STAYS, [True, False, True, True]),  # by the mean only
        ("cifar10", [0.232] * 3 + [0.29], STAYS, [True, False, True, True]),
        ("cifar10", [0.232] * 3 + [0.85], STAYS, [False, False, False, True]),
        ("cifar100", [0.0267] * 4, STAYS, [True] * 4),
        (
            "cifar100",
            [0.0125] * 4,
            STAYS,
            [True, False, True, True],
        ),  # that of an untrained network
    ],
)
def test_mse_asks_every_run(tmp_path, data, confidences, sharpness, expected):
    setting = Setting(data=data)
    write_mse(tmp_path, setting, confidences, sharpness)
    claims = mse.findings(setting, RunStore(tmp_path)).claims
    assert [claim.passed for claim in claims[:4]] == expected
    assert [claim.note for claim in claims[4:]] == ["no complete run"] * 4  # SGD's


def test_the_limit_of_squared_error():
    assert paper.mse_confidence(10) == pytest.approx(0.2320, abs=5e-5)
    assert paper.mse_confidence(100) == pytest.approx(0.0267, abs=5e-5)


@pytest.mark.parametrize(
    ("failures", "margin", "expected"),
    [
        (0, [-1.0, -0.5, 0.5], [True, True]),
        (1, [-1.0, -0.5, 0.5], [False, True]),
        (0, [-1.0, -0.5, -0.1], [True, False]),
    ],
)
def test_certificates_count_failures_and_ask_for_both_regimes(tmp_path, failures, margin, expected):
    slack = np.array([np.nan, np.nan, 0.2])
    series = {"train_margin_min": np.array(margin), "train_slack 4.2 (i) lower": slack}
    series |= {"train_slack 4.1 (i)": np.ones(3), "train_slack B.1": np.ones(3)}
    series |= {"train_certificate_failed": np.array([0, failures, 0])}
    write_run(tmp_path, sweeps.certified_run(PAPER), **series)
    findings = certificates.findings(PAPER, RunStore(tmp_path))
    assert [claim.passed for claim in findings.claims] == expected
    assert "4 checks of 4.1 and 4.2 in 3 rows" in findings.claims[0].found
    assert findings.tables[0].header[4:] == ("4.1 (i)", "4.2 (i) lower")


def test_certificates_that_checked_nothing_do_not_pass(tmp_path):
    nothing = np.full(3, np.nan)
    series = {"train_margin_min": np.array([-1.0, 0.5, 1.0]), "train_slack 4.1 (i)": nothing}
    write_run(tmp_path, sweeps.certified_run(PAPER), train_certificate_failed=nothing, **series)
    claims = certificates.findings(PAPER, RunStore(tmp_path)).claims
    assert [claim.passed for claim in claims] == [False, True]


# -- CalMO ----------------------------------------------------------------------------------


def scored(accuracy, ece, seeds=3, expected=3):
    (config,) = calmo.cell_configs(Setting(seeds=(0,)), ("SGD", "CE"))
    return ScoredRow(Row("a cell", (), expected), [record_with(config, accuracy, ece)] * seeds)


@pytest.mark.parametrize(
    ("calmo_scores", "expected"),
    [
        (scored(0.76, 0.05), True),
        (scored(0.75, 0.05), True),
        (scored(0.74, 0.05), False),  # calibrated at a price
        (scored(0.80, 0.09), False),
        (scored(0.76, 0.05, seeds=2), None),
        (scored(0.76, 0.05, seeds=0), None),
    ],
)
def test_calmo_must_not_cost_accuracy(calmo_scores, expected):
    claim = calmo.improvement_claim(PAPER, "SGD", scored(0.75, 0.08), calmo_scores)
    assert claim.passed is expected


def test_one_seed_of_calmo_is_reported_and_not_judged():
    claim = calmo.improvement_claim(
        PAPER,
        "AdamW",
        scored(0.75, 0.08, seeds=1, expected=1),
        scored(0.76, 0.05, seeds=1, expected=1),
    )
    assert claim.passed is None and claim.note == "n = 1: reported, not judged"


# -- the whole ------------------------------------------------------------------------------


def test_the_sweeps_are_the_papers():
    configs = sweeps.table_1(Setting(seeds=(0, 1, 2)))
    assert len(configs) == len(set(configs)) == 60
    first = configs[0]
    assert first.data == "cifar10:train=5000,test=0,standardise=global"
    assert (first.model, first.loss, first.steps, first.batch) == ("mlp", "ce", 8000, None)
    assert {c.every for c in configs} == {20} and {c.measure for c in configs} == {
        ("gn_sharpness",)
    }
    sam = sweeps.rate_configs(PAPER, "SAM", 0)[0]
    assert (
        sam.full_batch and sam.steps == 4000 and "rho" not in sam.optimizer
    )  # 0.05 is its default
    assert sweeps.rate_configs(PAPER, "SGD", 0)[0].batch == 128
    assert len(sweeps.bulk_sgd(PAPER)) == 6 and {k for _, k in sweeps.bulk_sgd(PAPER)} == {1, 3, 5}


def test_long_runs_start_first_and_each_once():
    configs = [*sweeps.table_1(PAPER), *sweeps.bulk_sgd(PAPER).values()]
    configs.append(sweeps.certified_run(PAPER))
    ordered = longest_first(configs + configs)
    assert len(ordered) == 27 and set(ordered) == set(configs)
    costs = [cost(config) for config in ordered]
    assert costs == sorted(costs, reverse=True)

    both, one, none = (
        cost(calmo.config(PAPER, ("SGD", method), 0))
        for method in ("CalMO", "smoothness only", "CE")
    )
    assert both > one > none

    sam, asam, sgd = (
        cost(RunConfig(data="digits", optimizer=word, steps=10, measure=()))
        for word in ("sam", "asam", "sgd")
    )
    assert sam == asam == 2 * sgd


def test_the_papers_table_is_the_papers(real_data):
    """Every figure that claims are compared with, against the text of the paper."""
    text = real_data.parent / "papers" / "too_sharp_too_sure.txt"
    if not text.is_file():
        pytest.skip(f"no paper at {text}")
    printed = re.findall(r"(-?\d?\.\d+)±(\.\d+)", text.read_text(encoding="utf-8"))
    ours = [pair for row in paper.TABLE_1.values() for pair in row.values()]
    pairs = [(float(mean), float(spread)) for mean, spread in printed]
    starts = [i for i in range(len(pairs)) if pairs[i : i + len(ours)] == ours]
    assert len(starts) == 1


@pytest.mark.parametrize("part", ["table1", "fig1", "muon", "fig2", "mse"])
def test_nothing_is_judged_where_runs_are_missing(tmp_path, part):
    part = recipe("too-sharp").part(part)
    configs = list(dict.fromkeys(part.configs(PAPER)))
    for config in configs:
        a, b = with_r(0.9)
        write_run(tmp_path, config, train_ece=np.abs(a), train_gn_sharpness=np.abs(b))
    assert any(c.passed is not None for c in part.findings(PAPER, RunStore(tmp_path)).claims)
    names = [config.optimizer.split(":")[0] for config in configs]
    for name in set(names):  # of every optimizer, one is missing and one was stopped
        gone, stopped = [c for c, of in zip(configs, names, strict=True) if of == name][:2]
        shutil.rmtree(tmp_path / gone.name)
        (tmp_path / stopped.name / "status.json").write_text('{"status": "stopped", "step": 9}')
    claims = part.findings(PAPER, RunStore(tmp_path)).claims
    assert claims and {claim.passed for claim in claims} == {None}


def test_parts_are_chosen_by_name():
    too_sharp = recipe("too-sharp")
    assert [p.name for p in too_sharp.chosen(["mse", "table1"])] == ["table1", "mse"]
    by_default = [p.name for p in too_sharp.chosen([])]
    assert "calmo" in by_default and "calmo-more" not in by_default
    with pytest.raises(ValueError, match=r"no part 'tabel1'\. Known: table1"):
        too_sharp.chosen(["tabel1"])
    with pytest.raises(ValueError, match=r"no recipe 'x'\. Known: too-sharp, gamma-net"):
        recipe("x")


def test_a_folder_without_runs_says_what_is_missing(tmp_path):
    too_sharp = recipe("too-sharp")
    outcome = judge_parts(too_sharp, too_sharp.chosen(["certificates"]), PAPER, tmp_path)
    assert not outcome.findings and list(outcome.problems.values()) == ["missing"]
