"""Parts of "Too Sharp, Too Sure" on written runs: settings, batch sharpness, BulkSGD every step."""

import numpy as np
import pytest
from fake_runs import write_run
from typer.testing import CliRunner

from toosure.cli import app
from toosure.recipes import RunStore, Setting, recipe
from toosure.recipes.too_sharp import batch_sharpness, bulk_every, figures, settings, sweeps

PAPER = Setting()


def with_r(r, n=60, seed=0):
    """Return two series whose Pearson correlation is exactly r."""
    generator = np.random.default_rng(seed)
    a, e = generator.normal(size=(2, n))
    a = (a - a.mean()) / a.std()
    e -= e.mean()
    e -= a * (a @ e) / (a @ a)
    return a, r * a + np.sqrt(1 - r**2) * e / e.std()


# -- settings -------------------------------------------------------------------------------


def write_candidate(out, optimizer, candidate, r, peak=0.2, rates=4):
    """Write a candidate's runs: r of test ECE, and the peak of training ECE."""
    column = sweeps.CANDIDATES[optimizer][candidate]
    ece, sharpness = with_r(r)
    train_ece = np.concatenate([[0.01], np.full(59, peak)])
    for config in sweeps.column_configs(PAPER, column, 0)[:rates]:
        write_run(out, config, val_ece=ece, val_gn_sharpness=sharpness, train_ece=train_ece)


def write_references(out, peak=0.2):
    for name in ("GD", "SGD"):
        for config in sweeps.rate_configs(PAPER, name, 0):
            write_run(out, config, train_ece=np.concatenate([[0.01], np.full(9, peak)]))


def chosen_by_rule(out):
    fits = settings.read_fits(PAPER, RunStore(out))
    return {name: settings.best_fit(fits, name) for name in sweeps.CANDIDATES}


def test_the_nearest_r_of_test_ece_is_chosen(tmp_path):
    write_references(tmp_path)
    write_candidate(tmp_path, "AdamW", "batch 128", 0.3)
    write_candidate(tmp_path, "AdamW", "full batch, high rates", 0.9)
    assert chosen_by_rule(tmp_path)["AdamW"] == "batch 128"
    assert chosen_by_rule(tmp_path)["Muon"] == ""

    # A candidate without all of its runs is shown, and cannot be chosen.
    write_candidate(tmp_path / "b", "AdamW", "batch 128", 0.15, rates=3)
    write_candidate(tmp_path / "b", "AdamW", "full batch, high rates", 0.9)
    assert chosen_by_rule(tmp_path / "b")["AdamW"] == "full batch, high rates"
    table = settings.findings(PAPER, RunStore(tmp_path / "b")).tables[0]
    assert any("(runs missing)" in row[1] for row in table.rows)


def test_for_muon_a_lower_peak_comes_before_the_distance(tmp_path):
    write_references(tmp_path, peak=0.2)
    write_candidate(tmp_path, "Muon", "full batch", -0.10, peak=0.3)
    write_candidate(tmp_path, "Muon", "batch 128", 0.5, peak=0.1)
    assert chosen_by_rule(tmp_path)["Muon"] == "batch 128"

    table = settings.findings(PAPER, RunStore(tmp_path)).tables[0]
    by_name = {row[1]: row for row in table.rows if row[0] == "Muon"}
    assert by_name["the paper"][5] == "-0.10 ± 0.28"
    assert by_name["batch 128, 2,000 steps"][-1] == "by the rule"
    assert by_name["full batch, 2,000 steps"][7:9] == ("0.0", "0.300 ± 0.000")
    assert "the rule chooses batch 128" in table.note


def test_other_data_choose_nothing_and_table_1_uses_a_candidate(tmp_path):
    quick = Setting(quick=True)
    column = sweeps.candidates(quick)["Muon"]["full batch"]
    for config in sweeps.column_configs(quick, column, 0):
        write_run(tmp_path, config, train_ece=np.linspace(0, 1, 9))
    table = settings.findings(quick, RunStore(tmp_path)).tables[0]
    assert {row[-1] for row in table.rows} == {""} and "choose nothing" in table.note
    assert not [row for row in table.rows if row[1] == "the paper"]
    for name, used in sweeps.CHOSEN.items():
        assert sweeps.TABLE_1[name] is sweeps.CANDIDATES[name][used]
        assert set(sweeps.rate_configs(PAPER, name, 0)) <= set(settings.configs(PAPER))


# -- batch sharpness ------------------------------------------------------------------------


@pytest.mark.parametrize(("r", "expected"), [(0.75, True), (0.6, False)])
def test_ece_must_correlate_with_batch_sharpness(tmp_path, r, expected):
    ece, sharpness = with_r(r)
    configs = sweeps.batch_sharpness(PAPER)
    assert {(config.every, config.steps, config.at) for config in configs} == {(20, 8000, ())}
    for config in configs:
        series = {"train_ece": ece, "train_batch_sharpness": sharpness, "train_mmce": ece}
        errors = np.full(60, 0.02)
        write_run(tmp_path, config, **series, **{"train_batch_sharpness_error": errors})
    findings = batch_sharpness.findings(PAPER, RunStore(tmp_path))
    (claim,) = findings.claims
    assert claim.passed is expected and claim.found.startswith(f"{r:.2f} ± 0.00 (n = 4")
    correlations, rows = findings.tables
    assert [row[2] for row in correlations.rows[:4]] == [f"{r:.2f}"] * 4
    assert rows.rows[0][1] == "0" and rows.rows[len(rows.rows) // 4 - 1][1] == "8,000"
    assert findings.values["ECE, batch sharpness"] == pytest.approx([r] * 4)


def test_batch_sharpness_that_peaks_last_is_said_to(tmp_path):
    steps = np.linspace(0, 8000, 60)
    for number, config in enumerate(sweeps.batch_sharpness(PAPER)):
        late = 6000 if number else 1000  # of the first run it peaks first
        tops = {"train_ece": 2000, "train_gn_sharpness": 3000, "train_batch_sharpness": late}
        series = {key: np.exp(-(((steps - top) / 1500) ** 2)) for key, top in tops.items()}
        error = {"train_batch_sharpness_error": np.full(60, 0.02), "train_mmce": steps}
        write_run(tmp_path, config, **series, **error)

    store = RunStore(tmp_path)
    (drawing,) = figures.batch_sharpness_drawings(PAPER, store)
    assert drawing.note.endswith("batch sharpness peaks last in 3 of 4 runs.")
    rows = batch_sharpness.findings(PAPER, store).tables[0].rows
    peaks = [[int(cell.replace(",", "")) for cell in row[-3:]] for row in rows[:4]]
    assert np.abs(np.array(peaks) - [2000, 3000, 6000])[1:].max() < 150
    assert abs(peaks[0][2] - 1000) < 150
    assert figures.batch_sharpness_drawings(PAPER, RunStore(tmp_path / "nothing")) == []


# -- BulkSGD, directions renewed at every step -----------------------------------------------


def write_bulk(out, peak, settles, setting=PAPER, others_rise=0):
    n = 41
    falling = np.linspace(2, 0.1, n)
    for config in bulk_every.configs(setting):
        bulk = config.optimizer.startswith("bulksgd")
        steps = np.linspace(0, config.steps, n)
        top, until = (peak, settles) if bulk else (0.2, 4000)
        risen = steps >= (0 if bulk else others_rise)
        ece = np.where(risen & (steps < until), top, 0.001)
        sharpness = np.linspace(10, 4000 if bulk else 50, n)
        write_run(out, config, train_ece=ece, train_loss=falling, train_gn_sharpness=sharpness)


@pytest.mark.parametrize(
    ("peak", "settles", "expected"),
    [
        (0.1, 2000, [True] * 6),
        (0.19, 2000, [True, True, False, False, False, True]),
        (0.1, 9000, [True, True, True, True, True, False]),
    ],
)
def test_bulk_every_judges_sharpness_loss_peak_and_decay(tmp_path, peak, settles, expected):
    write_bulk(tmp_path, peak, settles)
    findings = bulk_every.findings(PAPER, RunStore(tmp_path))
    assert [claim.passed for claim in findings.claims] == expected
    assert "over 15,000 steps, directions renewed at every step" in findings.claims[0].statement
    drawings = bulk_every.bulk_every_drawings(PAPER, RunStore(tmp_path))
    assert [drawing.name for drawing in drawings] == ["bulk-every", "trajectory-bulk-every"]
    assert drawings[1].title.endswith("(Figure A7)")
    assert drawings[0].draw().data


def test_a_bulk_run_that_ends_before_the_others_peak_is_not_lower(tmp_path):
    setting = Setting(steps=400)
    write_bulk(tmp_path, 0.1, 9000, setting, others_rise=1000)
    findings = bulk_every.findings(setting, RunStore(tmp_path))
    peaks = findings.claims[2:5]
    assert [claim.passed for claim in peaks] == [None] * 3
    assert all("ends at step 400, GD and SGD peak up to 1,000" in claim.note for claim in peaks)


def test_the_length_of_bulk_every_is_an_option():
    configs = sweeps.bulk_every_step(Setting(steps=40_000, data="cifar100"))
    assert {(c.steps, c.every, c.data.split(":")[0]) for c in configs.values()} == {
        (40_000, 200, "cifar100")
    }
    assert all("rounds=2" in c.optimizer and "refresh" not in c.optimizer for c in configs.values())
    words = ["reproduce", "gamma-net", "--steps", "9", "--list"]
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code != 0 and "has no --steps" in refused.stderr


def test_figure_a14_is_that_of_cifar_100(tmp_path):
    setting = Setting(data="cifar100")
    write_bulk(tmp_path, 0.1, 2000, setting)
    store = RunStore(tmp_path)
    assert bulk_every.bulk_every_drawings(setting, store)[1].title.endswith("(Figure A14)")
    claims = bulk_every.findings(setting, store).claims
    assert {claim.passed for claim in claims} == {None}


def test_figure_a15_has_sam_beside_muon(tmp_path):
    for name in ("SAM", "Muon"):
        for config in sweeps.rate_configs(PAPER, name, 0):
            write_run(tmp_path, config, train_ece=np.linspace(0, 1, 5))
    drawings = figures.table_1_drawings(PAPER, RunStore(tmp_path))
    beside = next(drawing for drawing in drawings if drawing.name == "sam-muon")
    assert beside.title == "SAM beside Muon (Figure A15)" and beside.draw().data
    assert figures.sam_and_muon(PAPER, RunStore(tmp_path / "none")) == []


def test_every_part_has_a_quick_form():
    for part in recipe("too-sharp").parts:
        configs = part.configs(Setting(quick=True))
        assert configs and all(config.data.startswith("digits") for config in configs)
        assert max(config.steps for config in configs) <= 300
