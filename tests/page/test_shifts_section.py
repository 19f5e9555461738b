"""The section on shifts: lines by severity, tables by corruption and set, damage, hostile names."""

import json

import pytest
from made_runs import HOSTILE, make_run

from toosure.figures.shifts import ShiftLine, shifts_figure
from toosure.page.page_runs import PageRuns
from toosure.page.report import report
from toosure.page.sections.shifts import MAX_COLUMNS, MAX_LINES, shifts
from toosure.page.sections.words import words
from toosure.runs import Run
from toosure.shifts.record import OOD_SCORES, Ood, ShiftRecord


def record_of(accuracy=0.8, ece=0.05, images=50, corruptions=("fog", "jpeg_compression")):
    """Accuracy falls by .1 and ECE rises by .02 with each severity."""

    def scores(severity):
        error = ece + 0.02 * severity
        falls = accuracy - 0.1 * severity
        return {"accuracy": falls, "nll": 1 + severity, "ece": error, "smece": error / 2}

    cells = {(name, severity): scores(severity) for name in corruptions for severity in (1, 2, 3)}
    auroc = dict.fromkeys(OOD_SCORES, 0.875)
    return ShiftRecord(images, 100, scores(0), cells, {"svhn": Ood(7, auroc, auroc, "a note")})


def judged(path, optimizer, record, seed=0, **config):
    folder = make_run(path, {"optimizer": optimizer, "seed": seed, **config})
    text = json.dumps(record.as_json() if isinstance(record, ShiftRecord) else record)
    (folder / "shifts.json").write_text(text)
    return Run(folder)


@pytest.fixture
def runs(tmp_path):
    made = [("sgd:lr=0.1", 0.8, 0), ("sgd:lr=0.1", 0.7, 1), ("sam:lr=0.1", 0.9, 0)]
    return [
        judged(tmp_path / str(place), optimizer, record_of(accuracy), seed)
        for place, (optimizer, accuracy, seed) in enumerate(made)
    ]


def test_lines_are_means_over_corruptions_and_seeds():
    two_seeds = ShiftLine("sgd", 1, [record_of(0.8), record_of(0.6)])
    drawing = shifts_figure([two_seeds, ShiftLine("sam", 0, [record_of(0.9)])], "accuracy")
    first, second = drawing.data
    assert list(first.x) == [0, 1, 2, 3] and first.name == "sgd"
    assert list(first.y) == pytest.approx([70, 60, 50, 40])
    assert list(second.y) == pytest.approx([90, 80, 70, 60])
    assert drawing.layout.yaxis.title.text == "accuracy, %" and drawing.layout.showlegend

    # A setting alone: a thin line per corruption before the mean.
    alone = shifts_figure([two_seeds], "ece")
    assert [trace.name for trace in alone.data] == ["fog", "jpeg_compression", "sgd"]
    assert list(alone.data[0].y) == pytest.approx([5, 7, 9, 11])


def test_the_section_has_figures_and_tables(runs):
    text = shifts(PageRuns(runs))
    assert text.count('<script type="application/json">') == 4  # accuracy, ECE, smECE, NLL
    assert "jpeg compression" in text and "87.50" in text and "a note" in text
    assert "Test images: 50 of 100" in text
    # By hand: SAM's mean error is .3, that of SGD's two seeds .4 and .5.
    assert "mCE is against sgd:lr=0.1" in text and ">66.7<" in text and ">100.0<" in text
    assert "<dt>Mean corruption error (mCE)</dt>" in words(PageRuns(runs))

    few = judged(runs[2].path.parent / "few", "sam:lr=0.1", record_of(0.9, images=20))
    text = shifts(PageRuns([*runs[:2], few]))
    assert ">66.7<" not in text and "on other images than the reference there is no mCE" in text


def test_errors_are_divided_by_those_on_the_same_data(runs, tmp_path):
    """Networks of two data sets are on one page: an mCE across them would compare the data."""
    others = [("sgd:lr=0.1", 0.6), ("sam:lr=0.1", 0.7)]  # mean errors .6 and .5
    harder = [
        judged(tmp_path / f"harder{place}", optimizer, record_of(accuracy), data="cifar100")
        for place, (optimizer, accuracy) in enumerate(others)
    ]
    text = shifts(PageRuns([*runs, *harder]))
    assert text.count(">100.0<") == 2 and ">66.7<" in text and ">83.3<" in text
    assert "cifar100, each on its own data set.</p>" in text

    # Alone on its data set, a setting has no mCE, whatever else is on the page.
    text = shifts(PageRuns([*runs, harder[1]]))
    assert text.count(">100.0<") == 1 and ">66.7<" in text
    assert "data set.</p>" not in text
    assert "not divided" in shifts(PageRuns([runs[0], harder[1]]))


def test_seeds_judged_on_other_images_are_not_averaged(runs, tmp_path):
    few = judged(tmp_path / "few", "sgd:lr=0.1", record_of(0.1, images=20), seed=2)
    text = shifts(PageRuns([*runs, few]))
    assert "Left out: 1 run judged on other images" in text and "Test images: 50 of 100." in text
    assert ">100.0<" in text and ">66.7<" in text  # as without it


def test_one_run_has_a_mean_error_that_is_said_to_be_plain(runs):
    text = shifts(PageRuns(runs[:1]))
    assert "not divided by that of another run" in text and ">40.00<" in text
    assert "a thin line is a corruption" in text


def test_without_a_judged_run_there_is_nothing(tmp_path):
    plain = Run(make_run(tmp_path / "plain", {"optimizer": "sgd:lr=0.1"}))
    assert shifts(PageRuns([plain])) == ""
    assert "Mean corruption error" not in words(PageRuns([plain]))


def test_damage_and_differences_are_said(runs, tmp_path):
    damaged = judged(tmp_path / "damaged", "asam:lr=0.1", {"corruptions": 3})
    fewer = judged(tmp_path / "fewer", "csam:lr=0.1", record_of(images=20, corruptions=("fog",)))
    text = shifts(PageRuns([*runs, damaged, fewer]))
    assert "shifts.json is damaged: damaged" in text
    assert "not all judged under the same corruptions" in text and "20 of 100, 50 of 100" in text

    (runs[0].path / "shifts.json").write_text("{")
    torn = Run(runs[0].path)
    assert torn.shifts == {} and any("shifts.json cannot be read" in w for w in torn.warnings)


def test_many_settings_and_hostile_names_fit(tmp_path):
    record = record_of(corruptions=(HOSTILE, "fog"))
    many = [judged(tmp_path / str(n), f"sgd:lr={n}", record) for n in range(1, 11)]
    text = shifts(PageRuns(many))
    assert f"the first {MAX_LINES} of 10 settings" in text
    assert f"The first {MAX_COLUMNS} settings; 4 more" in text
    page = report(tmp_path)
    assert HOSTILE not in page and 'id="shifts"' in page
