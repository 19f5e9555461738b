"""CalMO's whole table: its cells, what can be recorded, and the claims on its columns."""

import numpy as np
import pytest
from fake_runs import write_run

from toosure.recipes import RunStore, Setting, recipe
from toosure.recipes.needed_runs import missing_configs
from toosure.recipes.too_sharp import calmo, calmo_table, paper
from toosure.train.graph import can_record

PAPER = Setting()
THE_PAPERS = {cell: (accuracy / 100, ece) for cell, (accuracy, ece) in paper.CALMO.items()}


def test_the_table_has_24_cells_and_three_seeds_of_the_four_main_ones():
    configs = calmo_table.configs(PAPER)
    assert len(configs) == len(set(configs)) == 20 + 4 * 3
    assert set(calmo_table.CELLS) == set(calmo.CELLS) == set(paper.CALMO)
    assert {(c.steps, c.batch, c.data, c.model) for c in configs} == {
        (10_000, 128, "cifar10", "resnet20")
    }
    both = [part for name in ("calmo", "calmo-muon") for part in recipe("too-sharp").chosen([name])]
    assert {config for part in both for config in part.configs(PAPER)} == set(configs[20:])
    assert [len(part.configs(PAPER)) for part in both] == [6, 6]
    assert calmo_table.configs(Setting(data="cifar100")) == []


def test_every_cell_can_be_recorded_and_a_limit_takes_the_cheap_cells_first():
    configs = calmo_table.configs(PAPER)
    assert all(can_record(config) for config in configs)
    assert {config.objective for config in configs[:10]} == {None}
    assert all(config.objective for config in configs[10:20])


def test_the_papers_own_figures_hold_every_pattern():
    claims = [
        calmo_table.pattern_claim(PAPER, pattern, THE_PAPERS) for pattern in calmo_table.PATTERNS
    ]
    assert [claim.passed for claim in claims] == [True] * len(claims)


def test_one_optimizer_with_the_other_sign_fails_a_pattern():
    lowers = calmo_table.PATTERNS[0]
    means = {**THE_PAPERS, ("AdamW", "CalMO"): (0.832, 0.062)}
    claim = calmo_table.pattern_claim(PAPER, lowers, means)
    assert claim.passed is False and claim.found == "3 of 4: SGD, Muon, SAM"

    # Where the paper's own figures do not show it, ours need not.
    robustness = calmo_table.PATTERNS[3]
    means = {**THE_PAPERS, ("SAM", "robustness only"): (0.1, 0.9)}
    assert calmo_table.pattern_claim(PAPER, robustness, means).passed is True

    del means["SGD", "robustness only"]
    claim = calmo_table.pattern_claim(PAPER, robustness, means)
    assert claim.passed is None and claim.note == "1 of 3 comparisons missing or ended early"
    assert calmo_table.pattern_claim(PAPER, robustness, {}).note.startswith("of no optimizer")


def test_agreement_is_the_distance_from_the_papers_cells():
    shifted = {cell: (accuracy - 0.02, ece + 0.01) for cell, (accuracy, ece) in THE_PAPERS.items()}
    accuracy, ece = calmo_table.agreement_table(shifted).rows
    assert accuracy[1:5] == ("24", "-2.0", "2.0", "2.0") and accuracy[5:] == ("1.00", "1.00")
    assert ece[2:5] == ("+0.010", "0.010", "0.010")
    assert calmo_table.agreement_table({}).rows == ()


def write_cell(out, config, accuracy, ece):
    """Write a run whose 1,000 test images are right with `accuracy` and sure by it plus `ece`."""
    write_run(out, config, val_nll=np.array([1.0, 0.5]))
    confidence = accuracy + ece
    logits = np.zeros((1000, 2), dtype=np.float32)
    logits[:, 0] = np.log(confidence / (1 - confidence))
    labels = (np.arange(1000) >= round(1000 * accuracy)).astype(np.int64)
    arrays = {"test_logits": logits, "test_labels": labels, "step": np.array(5)}
    arrays |= {"val_logits": logits, "val_labels": labels}
    np.savez(out / config.name / "best.npz", **arrays)


def test_the_table_is_read_from_run_folders_and_then_from_their_kept_scores(tmp_path):
    part = recipe("too-sharp").part("calmo-more")
    configs = part.configs(PAPER)
    for cell in calmo.CELLS:
        for config in calmo.cell_configs(PAPER, cell):
            write_cell(tmp_path, config, *THE_PAPERS[cell])
    assert list(missing_configs(configs, PAPER, tmp_path)) == []

    kept = Setting(scores=str(tmp_path / "scores"))
    findings = part.findings(kept, RunStore(tmp_path))
    grid, agreement, cells = findings.tables
    assert grid.rows[0][1] == "75.2 / 0.081" and grid.rows[0] == ("SGD", *grid.rows[1][1:])
    assert agreement.rows[0][1] == "24" and agreement.rows[0][3] == "0.0"
    assert [row[2] for row in cells.rows[:4]] == ["3", "1", "1", "3"]
    assert [claim.passed for claim in findings.claims] == [True] * 7 + [None] * 2
    assert cells.rows[0][3] == "5 ± 0"  # the step of the best predictions
    assert findings.values["SAM focal"][0]["ece"] == pytest.approx(0.089, abs=1e-3)

    # Without the run folders the tables are the same.
    assert list(missing_configs(configs, kept, tmp_path / "nowhere")) == []
    assert part.findings(kept, RunStore(tmp_path / "nowhere")) == findings


def test_quick_shows_no_figure_of_the_paper(tmp_path):
    quick = Setting(quick=True)
    write_cell(tmp_path, calmo.cell_configs(quick, ("SGD", "CE"))[0], 0.5, 0.1)
    findings = calmo_table.findings(quick, RunStore(tmp_path))
    assert [row[0] for row in findings.tables[0].rows] == list(calmo.OPTIMIZERS)
    assert findings.tables[0].rows[0][1:3] == ("50.0 / 0.100", "–")
    assert {claim.passed for claim in findings.claims} == {None}
