"""Figures of runs: the numbers of the rows, thinned without losing a peak, in order."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr

from toosure import figures
from toosure.figures.groups import group_runs
from toosure.figures.style import DARK, log_axis
from toosure.quantities import shown_in
from toosure.runs import Run, RunWriter


def run(name="r", optimizer="sgd:lr=0.1", seed=0, rows=20, **columns):
    steps = np.arange(rows, dtype=float)
    found = {"step": steps, "lr": np.full(rows, 0.1)}
    for split in ("train", "val"):
        found |= {f"{split}/loss": 1 / (1 + steps), f"{split}/accuracy": np.full(rows, 0.8)}
        found |= {f"{split}/confidence": np.full(rows, 0.9), f"{split}/ece": 0.1 + steps / 100}
        found |= {f"{split}/gn_sharpness": 2 + np.sin(steps), f"{split}/margin_q01": -steps}
    config = {"optimizer": optimizer, "seed": seed} if optimizer else {}
    return SimpleNamespace(name=name, config=config, columns=found | columns)


@given(st.integers(1, 3000), st.integers(4, 300), st.integers(0, 2**31))
def test_thinning_keeps_ends_and_extremes(n, points, seed):
    y = np.random.default_rng(seed).normal(size=n)
    x, kept = figures.thin(np.arange(n), y, points)
    assert len(x) <= max(points, 4) and (np.diff(x) > 0).all()
    assert x[0] == 0 and x[-1] == n - 1
    assert kept.min() == y.min() and kept.max() == y.max()
    np.testing.assert_array_equal(y[x], kept)


def test_thinning_keeps_the_peak_of_every_stretch():
    y = np.zeros(10_000)
    peaks = np.arange(50, 10_000, 100)
    y[peaks] = 1 + np.arange(100)
    x, _ = figures.thin(np.arange(10_000), y, 202)
    assert set(peaks) <= set(x)


def test_thinning_leaves_out_what_is_not_finite():
    x, y = figures.thin(np.arange(4), np.array([np.nan, 1, np.inf, 2]))
    assert x.tolist() == [1, 3] and y.tolist() == [1, 2]


def test_trajectory_has_the_numbers_in_their_units():
    drawing = figures.trajectory([run()])
    found = {(t.meta["key"], t.meta["split"]): t for t in drawing.data}
    assert len(found) == 13  # six panels, two splits, the edge of stability
    np.testing.assert_allclose(found["gap", "val"].y, 10, rtol=1e-6)
    np.testing.assert_allclose(found["ece", "val"].y[:3], [10, 11, 12], rtol=1e-6)
    np.testing.assert_allclose(found["stability", "edge"].y, 20)
    assert found["ece", "val"].line.dash == "solid" and found["ece", "train"].line.dash == "dot"
    titles = [drawing.layout[f"yaxis{i}"].title.text for i in ("", *range(2, 7))]
    assert titles == [q.heading for q in shown_in("panel")][:6]


def test_panels_that_are_asked_for():
    one = figures.trajectory([run()], "ece")
    assert {trace.meta["key"] for trace in one.data} == {"ece"}
    with pytest.raises(ValueError, match=r"no run has 'gni'; there are gap, ece, .*gn_sharp"):
        figures.trajectory([run()], ["ece", "gni"])
    assert len(figures.trajectory([run(gni=np.ones(20)), run()], ["gni"]).data) == 1
    assert not figures.trajectory([SimpleNamespace(name="new", config={}, columns={})], "ece").data


def test_panels_share_their_steps():
    layout = figures.trajectory([run()]).layout
    assert {layout[f"xaxis{i}"].matches for i in range(1, 6) if i > 1} == {"x6"}


@pytest.mark.parametrize(
    ("optimizer", "edge"),
    [
        ("sgd:lr=0.1", 20),
        ("gd:lr=0.1", 20),
        ("sgd:lr=0.1,momentum=0.9", 38),
        ("sgd:lr=0.1,momentum=0.9,nesterov=true", 38 / 2.8),
        ("adamw:lr=0.1", None),
        ("muon:lr=0.1", None),
        ("sam:rho=0.1,lr=0.1", None),
    ],
)
def test_stability(optimizer, edge):
    found = figures.stability(run(optimizer=optimizer))
    assert found is None if edge is None else found == pytest.approx(edge)


def test_stability_follows_the_schedule():
    rate = np.array([0.1] * 10 + [0.01] * 10)
    assert figures.stability(run(lr=rate)) == pytest.approx(2 / rate)


def test_stability_is_where_gradient_descent_breaks():
    """On lambda x^2 / 2 with momentum, iterates grow just above the line and shrink just below."""
    lr, beta = 0.1, 0.7
    edge = figures.stability(run(optimizer=f"sgd:lr={lr},momentum={beta}"))[0]
    for factor, grows in ((0.99, False), (1.01, True)):
        x, velocity = 1.0, 0.0
        for _ in range(3000):
            velocity = beta * velocity + factor * edge * x
            x -= lr * velocity
        assert (abs(x) > 1) == grows


def test_correlations_are_those_of_scipy():
    each = run()
    found = figures.correlation(each, "val")
    pair = (each.columns["val/gn_sharpness"], each.columns["val/ece"])
    assert found.pearson == pytest.approx(pearsonr(*pair).statistic)
    assert found.rank == pytest.approx(spearmanr(*pair).statistic)
    constant = run(**{"val/ece": np.full(20, 0.1)})
    assert figures.correlation(constant, "val") is None


def test_phase_portrait_marks_start_and_end():
    each = run()
    path, ends = figures.phase_portrait([each]).data
    assert path.x.tolist() == pytest.approx(each.columns["train/gn_sharpness"].tolist(), rel=1e-6)
    assert ends.customdata.tolist() == [0, 19] and list(ends.marker.symbol) == ["circle", "x"]
    layout = figures.phase_portrait([each]).layout
    assert layout.xaxis.type == layout.yaxis.type == "log"


def test_groups_are_settings_and_labels_tell_them_apart():
    runs = [run("a", seed=0), run("b", seed=1), run("c", "muon"), run("d", ""), run("e", "")]
    groups = figures.group_runs(runs)
    assert [(g.label, len(g.runs)) for g in groups] == [
        *(("sgd:lr=0.1", 2), ("muon", 1), ("d", 1), ("e", 1))
    ]


def test_what_is_measured_is_in_no_label_where_a_setting_differs():
    runs = [run("a"), run("b", "muon"), run("c", "muon")]
    runs[1].config |= {"measure": [], "curvature_loss": "ce", "curvature_examples": 50}
    assert [group.label for group in group_runs(runs[:2])] == ["sgd:lr=0.1", "muon"]
    assert group_runs(runs)[1].label == "muon, measure none"
    runs[1].config["clip"] = 1.0
    assert [group.label for group in group_runs(runs)] == ["sgd:lr=0.1", "muon, clip 1.0", "muon"]


def test_hostile_names_are_text_in_every_figure():
    each = run("<b>x</b>", "<script>alert(1)</script>")
    for drawing in (figures.trajectory([each]), figures.phase_portrait([each])):
        assert "<script>" not in drawing.to_json() and "&lt;script&gt;" in drawing.data[0].name


def test_every_colour_has_a_dark_twin():
    many = [run(str(i), f"sgd:lr={i}") for i in range(8)]
    for drawing in (figures.trajectory(many), figures.phase_portrait(many)):
        assert set(re.findall(r"#[0-9a-fA-F]{6}", drawing.to_json())) <= DARK.keys()


def test_runs_without_a_quantity_are_drawn_without_it():
    bare = SimpleNamespace(name="b", config={}, columns={"step": np.arange(3.0)})
    assert len(figures.trajectory([bare]).data) == 0
    assert len(figures.phase_portrait([bare]).data) == 0
    assert len(figures.trajectory([]).data) == 0


def test_a_run_shows_itself_in_a_notebook(tmp_path):
    with RunWriter(tmp_path / "<b>mine") as writer:
        writer.append({"step": 7, "train/loss": 0.5, "val/loss": 0.25, "val/ece": 0.125})
        writer.set_status("complete", 7)
    html = Run(tmp_path / "<b>mine")._repr_html_()
    assert "&lt;b&gt;mine" in html and "<b>mine" not in html
    assert "complete, step 7, 1 rows" in html and "<td>–</td><td>0.125</td>" in html


SHORT = [(18, 25), (2.1, 8.4), (0.0011, 0.0013), (1, 6), (99, 101)]


@pytest.mark.parametrize(("low", "high"), SHORT)
def test_a_short_log_axis_has_two_labels_at_least(low, high):
    axis = log_axis([np.array([low, high])])
    assert sum(low <= tick <= high for tick in axis["tickvals"]) >= 2
    assert len(axis["tickvals"]) <= 8


def test_a_panel_that_no_run_has_is_left_out():
    drawn = {trace.meta["key"] for trace in figures.trajectory([run()]).data}
    assert drawn == {q.key for q in shown_in("panel")[:6]} | {"stability"}
    more = {"val/temperature": np.full(20, 1.2)}
    assert "temperature" in {trace.meta["key"] for trace in figures.trajectory([run(**more)]).data}


def test_a_seed_that_also_splits_the_data_makes_no_setting_of_its_own():
    def run(seed, data, optimizer="sgd"):
        config = {"data": data, "optimizer": optimizer, "seed": seed}
        return SimpleNamespace(name=f"{optimizer}-{data}-{seed}", config=config, columns={})

    runs = [run(0, "digits:noise=0.3"), run(1, "digits:noise=0.3,seed=1")]
    runs += [run(2, "digits:noise=0.3,seed=2", "sam"), run(1, "digits:noise=0.3,seed=7", "sam")]
    groups = group_runs(runs)
    assert [len(group.runs) for group in groups] == [2, 1, 1]  # a split of its own stays apart
    assert groups[0].label.startswith("sgd")
