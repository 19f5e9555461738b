"""The view of several runs at once, fed by hand."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console
from test_sweep import CPU, configs

from toosure.cli import side_by_side
from toosure.cli.progress import ProgressBar, RowPrinter, figures, listener_for_runs
from toosure.cli.side_by_side import SweepBars, SweepLog
from toosure.config import sweep_of
from toosure.train import ProgressListener, train


class Clock:
    now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(side_by_side, "time", found)
    return found


def ended(step, status="complete"):
    return {"status": status, "step": step, "message": ""}


def test_time_left_is_that_of_the_whole_sweep(clock, tmp_path, capsys):
    asked = configs(seed=[0, 1, 2, 3], steps=[100])
    show = SweepLog(asked)
    paths = [train(config, tmp_path, CPU).path for config in asked]
    show.end(paths[3], ended(100))  # found complete: costs nothing, is not to do
    lanes = [show.for_concurrent_run() for _ in asked]
    lanes[0].begin(asked[0], paths[0], 0)
    lanes[1].begin(asked[1], paths[1], 50)  # resumed: 50 steps to do
    assert show.summary == "1 of 4 done, 2 running"
    clock.now += 10
    lanes[0].tick(30)
    lanes[1].row({"step": 70, "val/ece": 0.1})
    # 50 steps in 10 s; to do: 70 + 30 + 100
    assert show.remaining() == pytest.approx(40.0)
    clock.now += 10
    lanes[1].end(paths[1], ended(100))
    lanes[0].tick(50)  # 100 steps in 20 s; to do: 50 + 100
    assert show.remaining() == pytest.approx(30.0)
    assert show.summary == "2 of 4 done, 1 running, about 30 s left"
    lanes[0].begin(asked[0], paths[0], 40)  # its worker died; it goes on from a checkpoint
    assert show.summary.startswith("2 of 4 done, 1 running")
    lanes[2].fail(asked[2], "too hot")
    lanes[0].end(paths[0], ended(100))
    assert show.summary == "3 of 4 done, 0 running, 1 failed"
    said = capsys.readouterr().out
    assert "too hot" in said and said.count("digits-") >= 7  # the table at the end


def test_a_log_hears_now_and_then(clock, capsys):
    asked = configs(seed=[0, 1], steps=[1000])
    show = SweepLog(asked)
    lane = show.for_concurrent_run()
    lane.begin(asked[0], Path("a"), 0)
    for step in range(0, 1000, 10):
        clock.now += 1
        lane.tick(step)
    lines = capsys.readouterr().out.splitlines()
    assert 3 <= len(lines) <= 5  # the beginning, and one in thirty seconds
    assert lines[-1].startswith("0 of 2 done, 1 running, about ")


def test_a_stopped_run_is_not_done(tmp_path, capsys):
    asked = configs(seed=[0, 1])
    show = SweepLog(asked)
    lane = show.for_concurrent_run()
    lane.begin(asked[0], tmp_path, 0)
    lane.end(tmp_path, ended(2, "stopped"))
    assert show.summary.startswith("0 of 2 done, 0 running")


def test_stopped_runs_are_in_the_closing_table_unless_they_go_on(tmp_path, capsys):
    asked = configs(seed=[0, 1, 2], steps=[100])
    show = SweepLog(asked)
    for config in asked:
        path = train(config, tmp_path, CPU).path
        lane = show.for_concurrent_run()
        lane.begin(config, path, 0)
        lane.end(path, ended(50, "stopped"))
    lane.begin(config, path, 50)  # its worker had died: it goes on, and ends
    lane.end(path, ended(100))
    capsys.readouterr()
    show.close()
    table = capsys.readouterr().out
    assert [table.count(config.name) for config in asked] == [1, 1, 1]


def test_bars_show_the_sweep_and_each_run(tmp_path):
    asked = configs(seed=[0, 1], steps=[100])
    paths = [train(config, tmp_path, CPU).path for config in asked]
    text = io.StringIO()
    show = SweepBars(asked, Console(file=text, force_terminal=True, width=150, color_system=None))
    lanes = [show.for_concurrent_run(), show.for_concurrent_run()]
    for lane, config, path in zip(lanes, asked, paths, strict=True):
        lane.begin(config, path, 0)
    lanes[0].row({"step": 50, "val/ece": 0.125})
    show.update()
    show.bars.refresh()
    assert [task.percentage for task in show.bars.tasks] == [25, 50, 0]
    assert "ECE 0.125" in text.getvalue() and "0 of 2 done, 2 running" in text.getvalue()
    for lane, path in zip(lanes, paths, strict=True):
        lane.end(path, ended(100))
    assert len(show.bars.tasks) == 1 and not show.bars.live.is_started


def test_the_view_is_chosen_by_the_output():
    assert isinstance(listener_for_runs(configs(), at_once=True), SweepLog)
    assert not isinstance(listener_for_runs(configs()), SweepLog)


ROW = {"train/loss": 0.0123, "val/accuracy": 0.987, "val/ece": 0.0321, "train/gn_sharpness": 123.4}


@pytest.mark.parametrize("width", [60, 80, 100, 150])
def test_a_moving_line_keeps_the_time_left(width):
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=width, color_system=None)
    show = ProgressBar(12, console)
    (config,) = configs(seed=[0], steps=[20000])
    show.begin(config, Path("a"), 0)
    show.row({"step": 12000, **ROW})
    show.bar.refresh()
    show.bar.stop()
    line = text.getvalue().split("\r")[-1]
    assert re.search(r"12000/20000 \d+ steps/s +(\d+:\d\d|--:--) ", line), line
    assert "ECE 0.0321" in line and "…" not in line
    assert ("train loss" in line) == (width == 150)


def test_figures_give_way_in_order():
    everything = "train loss 0.0123  val accuracy 0.987  val ECE 0.0321  train GN sharpness 123.4"
    assert figures(ROW) == everything
    assert figures(ROW, 60) == everything.removeprefix("train loss 0.0123  ")
    assert figures(ROW, 40) == "val accuracy 0.987  val ECE 0.0321"
    assert figures(ROW, 3) == "val ECE 0.0321"


def test_a_log_says_that_the_start_is_being_measured(capsys):
    for settings, expected in (({}, True), ({"at": [(0, 2)]}, True), ({"at": [(2,)]}, False)):
        (config,) = sweep_of(steps=[4], **settings)
        RowPrinter(1).begin(config, Path("a"), 0)
        assert ("measuring step 0 ..." in capsys.readouterr().out) == expected
    RowPrinter(1).begin(config, Path("a"), 3)  # resumed
    assert "measuring" not in capsys.readouterr().out


@pytest.mark.parametrize(("seconds", "said"), [(14.5, True), (0.2, False)])
def test_a_slow_measurement_is_announced(seconds, said, capsys):
    (config,) = sweep_of(steps=[4])
    show = RowPrinter(1)
    show.begin(config, Path("a"), 3)
    show.row({"step": 0, "seconds_measuring": seconds})
    show.measuring(2)
    assert ("measuring step 2, about 14 s ..." in capsys.readouterr().out) is said


def test_a_run_says_when_a_measurement_begins(tmp_path):
    heard = []
    listener = ProgressListener()
    listener.measuring = heard.append
    (config,) = configs(steps=[4], every=[2])
    train(config, tmp_path, CPU, listener)
    assert heard == [2, 4]
