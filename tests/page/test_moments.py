"""The slider: of two classes P(class 1) against its frequency, else the predicted class."""

import json
import re

import numpy as np
import pytest
import torch
from made_runs import make_run
from sklearn.calibration import calibration_curve
from torch import nn

from toosure import Watch
from toosure.page.page_runs import PageRuns
from toosure.page.report import report
from toosure.page.sections.moments import frames
from toosure.runs import find_runs


@pytest.fixture(scope="module")
def binary_run(tmp_path_factory):
    """Watch a model with one output per example; return its folder, logits and labels."""
    folder = tmp_path_factory.mktemp("binary")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 4, generator=generator)
    y = (x[:, 0] + torch.randn(400, generator=generator) > 0.5).long()
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    with torch.no_grad():
        model.weight *= 6
    watch = Watch(model, nn.BCEWithLogitsLoss(), (x, y), (x, y), folder / "run", measure=())
    watch.close()
    with torch.no_grad():
        return folder, model(x)[:, 0].double(), y


def test_a_binary_run_shows_the_probability_of_class_one(binary_run):
    folder, logits, labels = binary_run
    [run] = frames(PageRuns(find_runs(folder)))
    assert run["words"] == "one"
    _, counts, claimed, true, low, high = run["splits"]["val"][-1]["bins"]
    expected, mean = calibration_curve(labels, logits.sigmoid(), n_bins=15)
    assert claimed == pytest.approx(100 * mean, abs=0.01)
    assert true == pytest.approx(100 * expected, abs=0.01)
    assert sum(counts) == 400 and min(claimed) < 20 < 80 < max(claimed)  # no folding at 1/2
    assert all(a <= b <= c for a, b, c in zip(low, true, high, strict=True))

    html = report(folder)
    assert "P(class 1) is shown against how often class 1 is true" in html
    words = json.loads(
        re.search(r'data-words="([^"]*)"', html)[1].replace("&quot;", '"').replace("&#x27;", "'")
    )
    assert words["one"]["true"] == "frequency of class 1" and words["top"]["true"] == "accuracy"


def test_other_runs_show_the_predicted_class(tmp_path):
    make_run(tmp_path / "r")
    [run] = frames(PageRuns(find_runs(tmp_path)))
    assert run["words"] == "top" and "how often class 1 is true" not in report(tmp_path)


def test_snapshots_of_an_older_version_among_others_show_the_predicted_class(tmp_path, binary_run):
    path = make_run(tmp_path / "r")
    newer = find_runs(binary_run[0])[0]
    arrays = newer.snapshot(newer.snapshots[-1])
    np.savez(path / "snapshots" / "90.npz", **arrays)
    [run] = frames(PageRuns(find_runs(tmp_path)))
    assert run["words"] == "top"
    assert (
        run["splits"]["val"][-1]["bins"][1]
        == arrays["val_counts"][arrays["val_counts"] > 0].tolist()
    )


def test_a_damaged_table_of_class_one_is_told(tmp_path, binary_run):
    path = make_run(tmp_path / "r")
    newer = find_runs(binary_run[0])[0]
    arrays = newer.snapshot(newer.snapshots[-1])
    arrays["val_class_one_accuracy"] = np.full(15, 7.0)
    np.savez(path / "snapshots" / "90.npz", **arrays)
    assert "val_class_one_accuracy must lie in [0, 1]" in report(tmp_path)


def test_the_slider_names_its_axes_after_the_run(binary_run, tmp_path, browser, visit, ask):
    page = tmp_path / "report.html"
    page.write_text(report(binary_run[0]))
    visit(page.as_uri())
    plot = "toosure.plots().find(p => p.dataset.role === 'reliability')"
    browser.execute_script(f"toosure.draw({plot})")
    drawing = f"toosure.momentFigure({plot}).layout"
    assert ask(f"{drawing}.xaxis.title.text") == "P(class 1), %"
    assert ask(f"{drawing}.yaxis.title.text") == "frequency of class 1, %"
    key = "document.querySelector('[data-key=reliability]').textContent"
    assert "too high" in ask(key) and "too sure" not in ask(key)
