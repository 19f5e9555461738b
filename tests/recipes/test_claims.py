"""Claims are judged by what the runs hold: made folders whose verdicts are known."""

import numpy as np
import pytest
from fake_runs import write_run

from toosure.recipes import Setting, Shelf, recipe
from toosure.recipes.reproduce import cost, judge_parts, ordered
from toosure.recipes.too_sharp import (
    bulk,
    certificates,
    hypotheses,
    mse,
    muon,
    paper,
    rise_and_fall,
    sweeps,
    table1,
    trace,
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
    for number, (config, r) in enumerate(zip(sweeps.column(PAPER, name, 0), rs, strict=True)):
        a, b = with_r(r, seed=number)
        series = {"train_ece": a, "train_gn_sharpness": b, "train_mmce": a, **more}
        write_run(out, config, **series)


def test_table_1_is_the_mean_over_rates_and_two_deviations_decide(tmp_path):
    write_column(tmp_path, "GD", [0.6, 0.7, 0.7, 0.72])  # 0.68: 1.9 deviations below 0.83
    write_column(tmp_path, "SGD", [0.6, 0.7, 0.7, 0.72])  # 2.3 deviations below 0.84
    write_column(tmp_path, "Muon", [0.0, 0.0, 0.0, 0.0])
    found = table1.findings(PAPER, Shelf(tmp_path))
    claims = {c.says: c for c in found.claims}
    gd = claims["Table 1: r of train ECE and sharpness, GD"]
    assert gd.found.startswith("0.68 ± 0.05 (n = 4") and gd.passed is True
    assert gd.paper == "0.83 ± 0.08"
    assert claims["Table 1: r of train ECE and sharpness, SGD"].passed is False
    assert claims["Table 1: r of train ECE and sharpness, Muon"].passed is None
    assert claims["Table 1: r of train ECE and sharpness, SAM"].note == "no complete run"
    by_seed = found.values["couplings"]["train ECE"]["GD"]["0"]
    assert [each["pearson"] for each in by_seed] == pytest.approx([0.6, 0.7, 0.7, 0.72])


def test_test_rows_pair_the_held_out_error_with_the_held_out_sharpness(tmp_path):
    a, b = with_r(0.95)
    write_column(tmp_path, "GD", [-0.5] * 4, val_ece=a, val_gn_sharpness=b)
    found = table1.couplings(PAPER, Shelf(tmp_path))
    assert found["test ECE"]["GD"][0][0].pearson == pytest.approx(0.95)
    assert found["train ECE"]["GD"][0][0].pearson == pytest.approx(-0.5)
    other = found["test ECE, train sharpness"]["GD"][0][0].pearson
    assert other != pytest.approx(0.95)


def test_a_run_that_diverged_is_told_and_not_counted(tmp_path):
    write_column(tmp_path, "GD", [0.9] * 4)
    config = sweeps.column(PAPER, "GD", 0)[0]
    (tmp_path / config.name / "status.json").write_text(
        '{"status": "diverged", "step": 7, "message": "no"}'
    )
    shelf = Shelf(tmp_path)
    found = table1.findings(PAPER, shelf)
    assert "(n = 3 rates)" in found.claims[0].found
    assert shelf.ill[config.name] == "diverged at step 7: no"


def test_quick_and_other_data_are_not_judged_by_the_papers_figures(tmp_path):
    for setting in (Setting(quick=True), Setting(data="cifar100")):
        for config in sweeps.column(setting, "GD", 0):
            a, b = with_r(0.83)
            write_run(tmp_path, config, train_ece=a, train_gn_sharpness=b)
        claims = table1.findings(setting, Shelf(tmp_path)).claims
        assert {claim.passed for claim in claims} == {None}


def test_figure_1_asks_for_a_rise_a_fall_and_peaks_close_by(tmp_path):
    rise = np.concatenate([np.linspace(1, 10, 21), np.linspace(9, 1, 20)])
    for out, sharpness, expected in (
        ("a", np.roll(rise, 1), [True, True]),  # one row of 40 later
        ("b", np.linspace(1, 10, 41), [False, False]),  # never falls
    ):
        for config in rise_and_fall.configs(PAPER):
            write_run(tmp_path / out, config, train_ece=rise, train_gn_sharpness=sharpness)
        found = rise_and_fall.findings(PAPER, Shelf(tmp_path / out))
        assert [claim.passed for claim in found.claims] == expected
    assert found.tables[0].rows[0][1:3] == ("4,000", "8,000")


# -- hypotheses, Muon, BulkSGD --------------------------------------------------------------


def hump(top, n=41):
    return np.concatenate([[0.05], top * np.exp(-np.arange(n - 1) / 4.0)])


def test_peak_area_and_settling(tmp_path):
    config = sweeps.column(PAPER, "GD", 0)[0]
    write_run(tmp_path, config, train_ece=np.array([0.9, 0.1, 0.3, 0.009, 0.02, 0.005]))
    run = Shelf(tmp_path).run(config)
    assert trace.peak(run) == 0.3
    assert trace.settled(run) == 8000
    assert trace.area(run, until=1600) == pytest.approx(1600 * 0.5)
    write_run(tmp_path / "never", config, train_ece=np.full(6, 0.02))
    assert trace.settled(Shelf(tmp_path / "never").run(config)) == np.inf


def test_muon_is_judged_at_its_own_length(tmp_path):
    n = 41
    for name, margin in (("GD", 2.0), ("SGD", 2.2), ("SAM", 1.9), ("Muon", 9.0)):
        for config in sweeps.column(PAPER, name, 0):
            late = 50.0 if name != "Muon" else margin  # after step 2,000 nobody looks
            step = np.linspace(0, config.steps, n)
            write_run(
                tmp_path, config, train_margin_q50=np.where(step <= 2000, margin, late),
                train_ece=np.full(n, 0.001), val_ece=np.full(n, 0.4),
            )  # fmt: skip
    claims = muon.findings(PAPER, Shelf(tmp_path)).claims
    assert [claim.passed for claim in claims] == [True, True, True]


def test_bulk_claims_hold_for_a_run_that_oscillates_and_fail_for_a_calm_one(tmp_path):
    n = 41
    calm = np.linspace(2, 0.5, n)
    for config in sweeps.column(PAPER, "SGD", 0):
        write_run(tmp_path, config, train_loss=calm)
    wild = calm * (1 + 0.5 * (-1) ** np.arange(n))
    sharp = np.linspace(10, 4000, n)
    for out, loss, sharpness, expected in (("a", wild, sharp, True), ("b", calm, calm, False)):
        for config in sweeps.column(PAPER, "SGD", 0):
            write_run(tmp_path / out, config, train_loss=calm)
        for config in sweeps.bulk(PAPER).values():
            write_run(tmp_path / out, config, train_loss=loss, train_gn_sharpness=sharpness)
        shelf = Shelf(tmp_path / out)
        claims = bulk.claims(PAPER, shelf, sweeps.bulk(PAPER)) + bulk.oscillation(PAPER, shelf)
        assert [claim.passed for claim in claims] == [expected, True, expected]


def test_a_diverged_bulk_run_still_counts_up_to_its_end(tmp_path):
    config = next(iter(sweeps.bulk(PAPER).values()))
    values = np.array([2.0, 1.0, 0.8, 5.0, np.nan])
    series = {"train_loss": values, "train_gn_sharpness": 1000 * values, "train_ece": values / 10}
    write_run(tmp_path, config, status="diverged", **series)
    found = hypotheses.findings(PAPER, Shelf(tmp_path))
    assert found.claims[0].passed is True and "5,000" in found.claims[0].found
    assert found.tables[1].rows[0][-2:] == ("0.500", "3,000")


# -- squared error and certificates ---------------------------------------------------------


def test_mse_claims_follow_confidence_and_sharpness(tmp_path):
    limit = paper.mse_confidence(10)
    assert limit == pytest.approx(0.2320, abs=5e-5)
    n = 5
    for out, confidence, sharp, expected in (
        ("a", limit, np.linspace(5, 30, n), [True] * 4),
        ("b", 0.9, np.array([5, 30, 20, 10, 1.0]), [False, False, False, False]),
    ):
        for config in sweeps.mse(PAPER)["GD"]:
            write_run(
                tmp_path / out, config, train_confidence=np.full(n, confidence),
                train_accuracy=np.full(n, 0.99), train_gn_sharpness=sharp,
                train_ece=np.linspace(0.2, abs(0.99 - confidence), n),
            )  # fmt: skip
        claims = mse.findings(PAPER, Shelf(tmp_path / out)).claims
        assert [claim.passed for claim in claims] == expected


@pytest.mark.parametrize(("failures", "margin", "expected"), [
    (0, [-1.0, -0.5, 0.5], [True, True]),
    (1, [-1.0, -0.5, 0.5], [False, True]),
    (0, [-1.0, -0.5, -0.1], [True, False]),
])  # fmt: skip
def test_certificates_count_failures_and_ask_for_both_regimes(tmp_path, failures, margin, expected):
    slack = np.array([np.nan, np.nan, 0.2])
    series = {"train_margin_min": np.array(margin), "train_slack 4.2 (i) lower": slack}
    series |= {"train_slack 4.1 (i)": np.ones(3), "train_slack B.1": np.ones(3)}
    series |= {"train_certificate_failed": np.array([0, failures, 0])}
    write_run(tmp_path, sweeps.certified(PAPER), **series)
    found = certificates.findings(PAPER, Shelf(tmp_path))
    assert [claim.passed for claim in found.claims] == expected
    assert "4 checks of 4.1 and 4.2 in 3 rows" in found.claims[0].found
    assert found.tables[0].header[4:] == ("4.1 (i)", "4.2 (i) lower")


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
    sam = sweeps.column(PAPER, "SAM", 0)[0]
    assert (
        sam.full_batch and sam.steps == 4000 and "rho" not in sam.optimizer
    )  # 0.05 is its default
    assert sweeps.column(PAPER, "SGD", 0)[0].batch == 128
    assert len(sweeps.bulk(PAPER)) == 6 and {k for _, k in sweeps.bulk(PAPER)} == {1, 3, 5}


def test_long_runs_start_first_and_each_once():
    configs = [*sweeps.table_1(PAPER), *sweeps.bulk(PAPER).values(), sweeps.certified(PAPER)]
    found = ordered(configs + configs)
    assert len(found) == 27 and set(found) == set(configs)
    costs = [cost(config) for config in found]
    assert costs == sorted(costs, reverse=True)


def test_parts_are_chosen_by_name():
    too_sharp = recipe("too-sharp")
    assert [p.name for p in too_sharp.chosen(["mse", "table1"])] == ["table1", "mse"]
    usual = [p.name for p in too_sharp.chosen([])]
    assert "calmo" in usual and "calmo-more" not in usual
    with pytest.raises(ValueError, match=r"no part 'tabel1'\. Known: table1"):
        too_sharp.chosen(["tabel1"])
    with pytest.raises(ValueError, match=r"no recipe 'x'\. Known: too-sharp, gamma-net"):
        recipe("x")


def test_a_folder_without_runs_says_what_is_missing(tmp_path):
    too_sharp = recipe("too-sharp")
    outcome = judge_parts(too_sharp, too_sharp.chosen(["certificates"]), PAPER, tmp_path)
    assert not outcome.findings and list(outcome.ill.values()) == ["missing"]
