"""The panel of a controller: sensor, dead band, actuator; nothing for runs without one."""

import json

import numpy as np
import pytest
from made_runs import make_run

from toosure.figures.control import control_figure
from toosure.figures.style import PALETTE
from toosure.page.page_runs import PageRuns
from toosure.page.sections.control import control
from toosure.page.sections.provenance import warnings
from toosure.runs import Run, RunWriter
from toosure.runs.looks import with_looks

ROWS = [
    {"step": 0},
    {"step": 10, "control/rho": 0.05, "control/log_temperature": 0.01, "control/acted": 0},
    {"step": 20, "control/rho": 0.06, "control/log_temperature": 0.20, "control/acted": 1},
]


@pytest.fixture
def steered(tmp_path):
    config = {"control": "radius:dead_band=3,every=10", "optimizer": "sam:lr=0.1"}
    with RunWriter(tmp_path / "steered", config) as writer:
        for row in ROWS:
            writer.append(row | {"control/standard_error": 0.02, "control/band": 3.0})
        writer.set_status("complete", 20)
    return Run(tmp_path / "steered")


def test_the_figure_has_the_sensor_its_dead_band_and_the_actuator(steered):
    sensor, upper, lower, rho = control_figure([steered]).data
    assert list(sensor.y) == pytest.approx([0.01, 0.2])
    assert list(sensor.text) == ["left alone", "raised"]
    assert list(upper.y) == pytest.approx([0.06] * 3)
    assert list(lower.y) == pytest.approx([-0.06] * 3)
    assert list(rho.y) == pytest.approx([0.05, 0.06])
    assert list(rho.x) == [10, 20]


def test_where_it_gave_up_and_where_it_held_is_marked(tmp_path):
    with RunWriter(tmp_path / "events", {"control": "radius"}) as writer:
        for step in range(10, 60, 10):
            row = {"step": step, "control/rho": step / 100, "control/log_temperature": 0.1}
            gave_up = {"control/gave_up": 1} if step >= 30 else {}
            writer.append(row | gave_up | {"control/held": int(step >= 50)})
    run = Run(tmp_path / "events")
    *_, gave_up, held = control_figure([run]).data
    assert (list(gave_up.x), list(gave_up.y), gave_up.marker.symbol) == ([30], [0.3], "x")
    assert (list(held.x), list(held.y), held.marker.symbol) == ([40], [0.4], "square")
    text = control(PageRuns([run]))
    assert "At a cross it gave up" in text and "From a square on" in text
    assert 'class="plot" style="height: 520px"' in text  # of two panels


def test_every_look_is_drawn_and_rows_after_the_last_one(tmp_path):
    with RunWriter(tmp_path / "looks", {"control": "radius"}) as writer:
        looks = [(10, 0.1, 0.05), (20, 0.3, 0.06), (30, 0.2, 0.07)]
        lines = [
            {"step": step, "control/log_temperature": error, "control/rho": rho}
            for step, error, rho in looks
        ]
        text = "".join(f"{json.dumps(line)}\n" for line in lines) + '{"step": 40, "torn'
        writer.write_file("looks.jsonl", lambda file: file.write(text.encode()))
        for step, rho in ((20, 0.06), (40, 0.07)):
            row = {"step": step, "control/rho": rho, "control/held": int(step == 40)}
            writer.append(row | {"control/log_temperature": 0.2, "val/ece": 0.1})
    run = with_looks(Run(tmp_path / "looks"))
    assert set(run.columns) == {
        "step",
        "control/rho",
        "control/log_temperature",
        "control/held",
    }
    sensor, rho, held = control_figure([run]).data
    assert list(sensor.x) == [10, 20, 30, 40]
    assert list(sensor.y) == pytest.approx([0.1, 0.3, 0.2, 0.2])
    assert list(rho.y) == pytest.approx([0.05, 0.06, 0.07, 0.07])
    assert list(held.x) == [30]  # the last look
    assert "From a square on" in control(PageRuns([Run(tmp_path / "looks")]))


def test_long_runs_are_thinned():
    step = np.arange(5000)
    columns = {"step": step, "control/rho": 0.1 + step, "control/gap": np.sin(step)}
    run = type("Row", (), {"name": "a", "config": {}, "columns": columns})()
    drawing = control_figure([run], points=100)
    assert max(len(trace.y) for trace in drawing.data) <= 202


def test_the_section_is_there_for_steered_runs_alone(steered, tmp_path):
    text = control(PageRuns([steered]))
    assert 'id="control"' in text and "Between the dashed lines" in text
    plain = Run(make_run(tmp_path / "plain", {"optimizer": "sgd:lr=0.1"}))
    assert control(PageRuns([plain])) == ""
    assert control(PageRuns([plain, steered]))


def test_the_section_names_and_colours_a_run_as_the_page_does(steered, tmp_path):
    setting = {"optimizer": "sam:lr=0.1"}
    plain = Run(make_run(tmp_path / "plain", setting, ece=0.05))
    page = PageRuns([plain, steered])
    label = "sam:lr=0.1, control radius:dead_band=3,every=10"
    assert page.places[label] == 1  # behind the plain one, which must not be taken for it
    text = control(page)
    assert label in text and PALETTE[1] in text and PALETTE[0] not in text


def test_two_steered_settings_do_not_share_a_colour(tmp_path):
    for rate in (0.1, 0.2):
        config = {"control": "radius", "optimizer": f"sam:lr={rate}"}
        with RunWriter(tmp_path / str(rate), config) as writer:
            for row in ROWS:
                writer.append(row)
    runs = [Run(tmp_path / "0.1"), Run(tmp_path / "0.2")]
    far_apart = {"sam:lr=0.1": 0, "sam:lr=0.2": len(PALETTE)}  # on a page of many settings
    text = control(PageRuns(runs, colours=far_apart))
    assert PALETTE[0] in text and PALETTE[1] in text


def test_a_dead_band_that_narrows_is_drawn_so(tmp_path):
    config = {"control": "radius:final_band=0,every=10", "optimizer": "sam:lr=0.1", "steps": 20}
    with RunWriter(tmp_path / "narrows", config) as writer:
        for step, band in ((5, 2.0), (10, 2.0), (15, 1.0), (20, 0.0)):
            row = {"step": step, "control/rho": 0.05, "control/log_temperature": 0.1}
            row["control/band"] = band
            writer.append(row | {"control/standard_error": 0.02})
        writer.set_status("complete", 20)
    _, upper, lower, _ = control_figure([Run(tmp_path / "narrows")]).data
    assert list(upper.y) == pytest.approx([0.04, 0.04, 0.02, 0.0])
    assert list(lower.y) == pytest.approx([-0.04, -0.04, -0.02, 0.0])


@pytest.mark.parametrize("key", ["gave_up", "at_bound"])
def test_the_page_warns_of_a_controller_that_failed(key, tmp_path):
    with RunWriter(tmp_path / "failed", {"control": "radius"}) as writer:
        writer.append({"step": 10, "control/rho": 0.05})
        writer.append({"step": 20, "control/rho": 0.05, f"control/{key}": 1})
        writer.set_status("complete", 20)
    assert "the controller" in warnings(PageRuns([Run(tmp_path / "failed")]))


@pytest.mark.parametrize(("examples", "said"), [(99, True), (200, False)])
def test_the_page_warns_of_a_small_control_split(examples, said, tmp_path):
    with RunWriter(tmp_path / "small", {"control": "radius"}) as writer:
        writer.append({"step": 20, "control/rho": 0.05, "control/examples": examples})
        writer.set_status("complete", 20)
    page = PageRuns([Run(tmp_path / "small")])
    assert (f"the control split has {examples} examples" in warnings(page)) is said


def test_the_page_says_nothing_of_a_controller_that_is_right_at_its_bound(tmp_path):
    row = {"control/at_bound": 1, "control/band": 2.0, "control/standard_error": 0.02}
    for error, said in ((0.03, False), (0.05, True)):
        with RunWriter(tmp_path / str(error), {"control": "radius"}) as writer:
            writer.append({"step": 20, "control/rho": 2.5, "control/gap": error, **row})
            writer.set_status("complete", 20)
        page = PageRuns([Run(tmp_path / str(error))])
        assert ("the controller is at its bound" in warnings(page)) is said
