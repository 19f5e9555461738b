"""The figures of the CSAM recipe: what is kept for them, their claims, and their drawings."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from made_up_scores import examples_with, record_with
from typer.testing import CliRunner

from toosure import metrics
from toosure.cli import app
from toosure.posthoc import HistogramBinning, Isotonic
from toosure.quantities.of_sam import SAM_PATH
from toosure.recipes import RunStore, Setting
from toosure.recipes.benchmark.record import Record
from toosure.recipes.benchmark.saved_rows import CALIBRATED_BY, calibrated_errors
from toosure.recipes.benchmark.score_files import ScoreFiles
from toosure.recipes.benchmark.scored_rows import ScoredRow
from toosure.recipes.csam import (
    figure_claims,
    figure_data,
    figure_rows,
    figures,
    parts,
    sweep_claims,
)
from toosure.recipes.csam import rows as csam_rows
from toosure.recipes.csam.charts import Curve, Panel, draw
from toosure.recipes.csam.figure_data import FigureRuns, Theory

PAPER = Setting(data="cifar10,cifar100")
MOMENTS = figure_rows.PATHS_SHOWN_AT


def verdicts(claims):
    return [claim.passed for claim in claims]


# -- Figures 2 and S4 -----------------------------------------------------------------------------


def theory(fall=1.0, bend=0.0, bound=-10.0, late=2.0, failed=0.0, unconverged=0):
    """Return a theory whose kappa_min falls by `fall` on the way, bent by `bend`."""
    t = np.array(list(SAM_PATH))
    path = np.tile(-1 - fall * t - bend * t**6, (8, 1))
    return Theory(
        epochs=np.linspace(0, 30, 8),
        path=path,
        bound=np.full(8, bound),
        lam=np.linspace(1.5, late, 8),
        lam0=np.full(8, 1.1),
        failed=failed,
        unconverged=unconverged,
    )


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, [True, True, True, True]),
        ({"bound": -1.5}, [False, True, True, None]),  # above kappa_min at theta~: nothing applies
        ({"bend": 30.0}, [False, False, True, None]),
        ({"fall": -0.5}, [True, False, True, True]),
        ({"late": 1.0}, [True, True, False, True]),  # below lambda_0, where Eq. 2 does not apply
        ({"failed": 1.0}, [True, True, True, False]),
        ({"unconverged": 2}, [None, None, True, True]),
    ],
)
def test_what_the_paper_reads_from_figure_2(changed, expected):
    result = figure_claims.theory_claims("2", "here", theory(**changed), MOMENTS, "")
    assert verdicts(result) == expected


def test_the_theory_is_read_from_the_rows_that_were_kept():
    numbers = {f"train/{key}": -share for share, key in SAM_PATH.items()}
    late = {"train/sam_lambda": 1.5, "train/sam_kappa_bound": -3.0, "train/sam_failed": 1.0}
    rows = [
        {"epoch": 0.0, "val/ece": 0.1},  # no step of SAM was measured here
        {"epoch": 1.0, **numbers, **late, "train/sam_lambda_0": 1.2},
        {"epoch": 2.0, **numbers, **late, "train/sam_kappa_min_unconverged": 1.0},
    ]
    row = figure_rows.along_training(PAPER)[0]
    record = replace(record_with(row.configs[0]), rows=rows)
    found = figure_data.theory_of(record)
    assert found.epochs.tolist() == [1.0, 2.0] and found.failed == 2 and found.unconverged == 1
    assert found.path[0].tolist() == [0.0, -0.25, -0.5, -0.75, -1.0]
    assert np.isnan(found.lam0[1]) and found.rows_at((0.5, 1.0)) == [0, 1]
    assert figure_data.theory_of(replace(record, rows=None)) is None
    assert figure_data.theory_of(replace(record, rows=rows[:1])) is None


def test_without_its_run_figure_2_is_not_judged():
    result = figure_claims.theory_claims("2", "here", None, MOMENTS, "")
    assert {claim.note for claim in result} == {"no complete run"}
    quick = figure_claims.theory_claims("S4", "here", theory(), MOMENTS, "not its data")
    assert verdicts(quick) == [None] * 4 and {claim.note for claim in quick} == {"not its data"}
    assert quick[0].paper == "yes (Figure S4 a)"


# -- Figure 3 -------------------------------------------------------------------------------------


def test_the_ratio_of_sgd_to_sam():
    errors = {"SGD": {"raw": 6.0, "temperature": 1.5}, "SAM": {"raw": 1.0}}
    claim = figure_claims.ratio_claim(PAPER, "cifar10", "ResNet-56", errors)
    assert claim.passed is True and "6.0 times" in claim.found
    errors["SAM"]["raw"] = 2.5
    assert figure_claims.ratio_claim(PAPER, "cifar10", "ResNet-56", errors).passed is False
    reported = figure_claims.calibrated_claim("cifar10", "ResNet-56", errors)
    assert reported.passed is None and reported.found.endswith("below 0 of 1")


@pytest.mark.parametrize(("last", "passed"), [(0.01, True), (0.06, False)])
def test_sam_is_below_sgd_all_along(last, passed):
    rows = {
        "SGD": [{"val/ece": 0.01}, {"val/ece": 0.05}, {"val/ece": 0.05}],
        "SAM": [{"val/ece": 0.09}, {"val/ece": 0.02}, {"val/ece": last}],  # the start is no row
    }
    claim = figure_claims.persistent_claim(PAPER, "cifar10", rows)
    assert claim.passed is passed and claim.found.startswith(f"in {1 + passed} of 2 rows")
    short = {"SGD": rows["SGD"], "SAM": rows["SAM"][:2]}
    assert "different steps" in figure_claims.persistent_claim(PAPER, "cifar10", short).note


def test_calibrated_errors_are_those_of_the_calibrators():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(400) % 4
    logits = torch.randn(400, 4, generator=generator).double()
    logits[torch.arange(400), labels] += 1.0
    val, test = (3 * logits[:200], labels[:200]), (3 * logits[200:], labels[200:])
    errors = calibrated_errors(val, test)
    expected = metrics.ece(Isotonic().fit(*val)(test[0]), test[1])
    assert set(errors) == set(CALIBRATED_BY)
    assert errors["isotonic"] == pytest.approx(float(expected), abs=1e-12)
    assert errors["isotonic"] < float(metrics.ece(*test))
    assert calibrated_errors((logits[:0], labels[:0]), test) is None

    # All of them learn each class on its own: without labels of one they are left out.
    some = labels < logits.shape[1] - 1
    assert calibrated_errors((logits[some], labels[some]), test) == {}


def test_a_calibrator_with_a_worse_nll_has_its_own_error():
    """Fitting one bin of many sure rows has a worse NLL here, and a better ECE."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (4000,), generator=generator)
    shown = torch.where(torch.rand(4000, generator=generator) < 0.93, labels, 1 - labels)
    logits = torch.zeros(4000, 2, dtype=torch.float64)
    logits[torch.arange(4000), shown] = torch.where(shown == labels, 7.0, 3.0).double()
    val, test = (logits[:2000], labels[:2000]), (logits[2000:], labels[2000:])
    assert HistogramBinning().fit_quietly(*val).note  # left as it is

    raw = float(metrics.ece(*test))
    found = calibrated_errors(val, test)["histogram"]
    assert found < raw / 2

    config = figure_rows.gammas(PAPER)[0].configs[0]
    kept = record_with(config)
    older = {"histogram": kept.test["ece"] + 1e-9, "isotonic": 0.01}  # before: raw in its place
    errors = figure_data.errors_of(replace(kept, calibrated_ece=older))
    assert "histogram" not in errors and errors["isotonic"] == 1.0


def test_a_record_keeps_rows_and_errors_and_reads_lines_without_them():
    record = record_with(figure_rows.gammas(PAPER)[0].configs[0])
    kept = replace(record, rows=[{"step": 1.0}], calibrated_ece={"isotonic": 0.01})
    again = Record.of_values(json.loads(kept.line()))
    assert again.rows == [{"step": 1.0}] and again.calibrated_ece == {"isotonic": 0.01}
    assert figure_data.errors_of(record) == {"raw": 2.0, "temperature": 1.0}
    assert figure_data.errors_of(again)["isotonic"] == 1.0


# -- Figures S5 and S6 ----------------------------------------------------------------------------


def swept(entropy, accuracy, ece):
    radii = (0.02, 0.05, 0.1, 0.15, 0.2)
    rows = zip(radii, entropy, accuracy, ece, strict=True)
    return {rho: {"entropy": h, "accuracy": a, "ece": e} for rho, h, a, e in rows}


def test_a_growing_radius():
    numbers = swept((1, 2, 3, 4, 5), (90, 92, 93, 92, 91), (3, 2, 1, 2, 3))
    judged = sweep_claims.radius_claims(PAPER, "cifar10", numbers, 5, has_inner_optimum=True)
    assert verdicts(judged) == [True, True, True]
    judged = sweep_claims.radius_claims(PAPER, "cifar100", numbers, 5, has_inner_optimum=False)
    assert verdicts(judged) == [True, False] and len(judged) == 2

    falling = swept((1, 2, 2, 4, 5), (90, 91, 92, 93, 94), (5, 4, 3, 2, 1))
    judged = sweep_claims.radius_claims(PAPER, "cifar10", falling, 5, has_inner_optimum=True)
    assert verdicts(judged) == [False, False, False]
    del falling[0.2]
    judged = sweep_claims.radius_claims(PAPER, "cifar10", falling, 5, has_inner_optimum=True)
    assert {claim.note for claim in judged} == {"1 of 5 runs missing or ended early"}


def test_a_larger_network_under_a_growing_radius():
    flat = (1, 2, 3, 4, 5)
    small = swept(flat, flat, (2, 1, 1, 3, 4))
    large = swept(flat, flat, (3, 2, 1, 1, 2))
    judged = sweep_claims.capacity_claims(PAPER, "cifar10", small, large, 5, has_inner_optimum=True)
    assert verdicts(judged) == [True, True] and judged[1].found == "rho 0.2: 2.00 : 4.00"
    judged = sweep_claims.capacity_claims(PAPER, "cifar10", large, small, 5, has_inner_optimum=True)
    assert verdicts(judged) == [False, False]
    judged = sweep_claims.capacity_claims(
        PAPER, "cifar100", small, large, 5, has_inner_optimum=False
    )
    assert verdicts(judged) == [True]  # of what follows the paper speaks for CIFAR-10

    del small[0.2]
    judged = sweep_claims.capacity_claims(PAPER, "cifar10", small, large, 5, has_inner_optimum=True)
    assert {claim.note for claim in judged} == {"1 of 10 runs missing or ended early"}
    absent = sweep_claims.capacity_claims(PAPER, "cifar10", {}, large, 5, has_inner_optimum=True)
    assert {claim.note for claim in absent} == {"no complete run"}


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ((2.0, 1.5, 1.0, 1.2, 2.0, 3.0, 4.0), [True, True, True]),
        ((2.0, 2.5, 1.0, 0.8, 1.2, 3.0, 4.0), [False, False, False]),
    ],
)
def test_gamma(errors, expected):
    numbers = {0.5 * i: {"ece": error, "accuracy": 94 + (i == 1)} for i, error in enumerate(errors)}
    assert verdicts(sweep_claims.gamma_claims(PAPER, numbers)) == expected
    assert {c.note for c in sweep_claims.gamma_claims(PAPER, {})} == {"no complete run"}


def test_the_entropy_of_the_label_is_that_of_two_classes():
    """H(.25) by hand; p of 1 and of 0 have none."""
    expected = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    logs = {"log_probability": np.array([np.log(0.25), 0.0, -800.0])}
    assert figure_data.label_entropy(logs) == pytest.approx(expected / 3)


# -- runs and drawings ----------------------------------------------------------------------------


def test_the_runs_are_the_papers_and_shared_with_other_parts():
    from toosure.recipes.csam import rows

    names = {c.name for row in figure_rows.all_rows(PAPER) for c in row.configs}
    grid = {c.name for row in rows.grid(PAPER) for c in row.configs}
    assert (
        len(names & grid) == 8
    )  # CIFAR-10: five gammas at rho .05, SAM at .1; CIFAR-100: SAM twice
    (theory_run,) = [r for r in figure_rows.all_rows(PAPER) if "sam_theory" in r.configs[0].measure]
    assert theory_run.method == "sam:rho=0.05" and theory_run.size.model == "resnet56"

    full = Setting(data="cifar10", full=True)
    config = figure_rows.along_training(full)[0].configs[0]
    assert {50, 150, 200} <= {round(step * 128 / 45_000) for step in config.at}
    assert config.steps == 70_312


def test_kept_scores_draw_figure_1(tmp_path):
    kept = tmp_path / "scores"
    files = ScoreFiles(kept)
    setting = Setting(data="cifar10,cifar100", scores=str(kept))
    for row in figure_rows.networks(setting):
        if row.name.startswith("ResNet-18"):
            record = record_with(row.configs[0])
            files.records[record.name] = record
            files.examples[record.name] = examples_with(0.7, 0.1)
    files.write(list(files.records.values()))

    made = {each.name: each for each in figures.drawings(setting, RunStore(tmp_path))}
    assert set(made) == {"fig1-resnet-18", "fig3-networks"}
    bars = [trace for trace in made["fig1-resnet-18"].draw().data if trace.type == "bar"]
    assert sum(bars[0].y) == pytest.approx(100)  # all images, in per cent
    assert max(bars[2].y) == pytest.approx(70)  # accuracy in the one bin that is filled


def test_a_missing_bar_is_explained_where_one_is_missing():
    whole = dict.fromkeys(figures.DRAWN_ERRORS, 5.0)
    networks = {"cifar10": {"ResNet-20": {"SGD": whole, "SAM": whole}}}
    assert figures.missing_bars(networks) == ""
    networks["cifar10"]["ResNet-56"] = {"SGD": {"raw": 5.0}, "SAM": whole}
    assert "A bar is missing where" in figures.missing_bars(networks)


def test_a_name_has_one_colour_and_stands_in_the_legend_once():
    panel = Panel("one", "x", "y", [Curve("a", [0, 1], [1, 2]), Curve("b", [0, 1], [2, 1])])
    drawing = draw([[panel, replace(panel, title="two")]])
    assert [trace.showlegend for trace in drawing.data] == [True, True, False, False]
    assert drawing.data[0].line.color == drawing.data[2].line.color != drawing.data[1].line.color


def test_nothing_kept_nothing_drawn():
    empty = FigureRuns({}, {})
    assert figures.confidence_drawings(PAPER, empty) == []
    assert figures.sweep_drawings(PAPER, empty) == [] == figures.error_drawings(PAPER, empty)


@pytest.mark.parametrize(("count", "names"), [(1, []), (2, ["fig-s6"])])
def test_a_single_gamma_is_no_curve(count, names):
    rows = figure_rows.gammas(PAPER)[:count]
    runs = FigureRuns({row: record_with(row.configs[0]) for row in rows}, {})
    assert [drawing.name for drawing in figures.sweep_drawings(PAPER, runs)] == names


@pytest.mark.slow
def test_all_figures_by_the_command(tmp_path):
    words = ["--quick", "--only", "figures", "--data", "cifar10,cifar100", "--out", tmp_path]
    result = CliRunner().invoke(app, ["reproduce", "csam", *map(str, words)])
    assert result.exit_code == 0, result.output
    page = (tmp_path / "csam-figures.html").read_text()
    for name in ("fig1-", "fig2", "fig3-networks", "fig3-training", "fig-s5", "fig-s6"):
        assert f'data-name="{name}' in page
    assert "0 failures" in result.output


@pytest.mark.parametrize(("full", "name"), [(False, "WRN-16-4 for WRN-28-10"), (True, "WRN-28-10")])
def test_a_network_that_stands_in_for_the_papers_is_named(full, name):
    setting = Setting(data="cifar10", full=full)
    rows = [r for r in figure_rows.networks(setting) if r.name.startswith("WRN-28-10: ")]
    runs = FigureRuns({row: record_with(row.configs[0]) for row in rows}, {})
    assert list(figure_data.network_errors(setting, runs, "cifar10")) == [name]

    setting = Setting(data="cifar100", full=full)
    chain = {row.name: ScoredRow(row, []) for row in csam_rows.combined(setting)}
    claim = parts.chain_claim(setting, chain, "WRN-28-10: FL")
    assert claim.statement == f"{name}: FL: SAM lowers its ECE, and CSAM more"
