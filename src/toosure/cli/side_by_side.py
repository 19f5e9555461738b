"""The progress of several runs at once: bars on a terminal, a line now and then in a log."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from toosure.cli.progress import RowPrinter, figures
from toosure.config import RunConfig
from toosure.runs import Run
from toosure.runs.row_reader import Row
from toosure.runs.storage import as_given
from toosure.train import ProgressListener

REFRESH_INTERVAL = 0.2  # seconds between two updates of the bar of the sweep
LOG_INTERVAL = 30.0  # seconds without a line, after which a log gets a line on the progress


class SweepLog(RowPrinter):
    """Print when a run begins and how it ended, and how long the whole sweep still takes."""

    def __init__(self, configs: Sequence[RunConfig]) -> None:
        super().__init__(len(configs))
        self.steps_to_do = {config.name: config.steps for config in configs}  # of runs not ended
        self.lanes: dict[str, RunLane] = {}  # the runs under way
        self.stopped: dict[str, Path] = {}  # runs that stopped and did not go on, by name
        self.steps_of_others = 0  # taken by runs that are no longer under way
        self.started_at: float | None = None
        self.last_line = time.monotonic()

    def for_concurrent_run(self) -> ProgressListener:
        return RunLane(self)

    def run_began(self, lane: "RunLane") -> None:
        """A run began."""
        self.started_at = self.started_at or time.monotonic()
        self.lanes[lane.name] = lane
        self.stopped.pop(lane.name, None)
        self.line(f"begun at step {lane.step}: {as_given(lane.path)}")

    def run_moved(self, lane: "RunLane") -> None:
        """A run took some steps."""
        if time.monotonic() - self.last_line > LOG_INTERVAL:
            self.line(self.summary)

    def run_left(self, lane: "RunLane") -> None:
        """A run is no longer under way."""
        if self.lanes.pop(lane.name, None):
            self.steps_of_others += lane.step - lane.first_step

    def end(self, path: Path, outcome: dict[str, Any]) -> None:
        if outcome["status"] == "stopped":  # it continues, now or with the next command
            self.stopped[path.name] = path
            self.line(f"stopped at step {outcome['step']}  {as_given(path)}")
        else:
            self.steps_to_do.pop(path.name, None)
            super().end(path, outcome)

    def fail(self, config: RunConfig, message: str) -> None:
        self.steps_to_do.pop(config.name, None)
        super().fail(config, message)

    def close(self) -> None:
        """Print all runs in one table, those that were stopped last."""
        self.ended += map(Run, self.stopped.values())
        self.stopped = {}
        super().close()

    def line(self, text: str) -> None:
        self.last_line = time.monotonic()
        super().line(f"[{self.summary}] {text}" if text != self.summary else text)

    @property
    def summary(self) -> str:
        """The progress of the sweep in a few words."""
        failed = f", {self.failures} failed" if self.failures else ""
        remaining = self.remaining()
        left = "" if remaining is None else f", {duration_text(remaining)} left"
        return f"{self.done} of {self.count} done, {len(self.lanes)} running{failed}{left}"

    def remaining(self) -> float | None:
        """Return the seconds to the end, at the steps per second of this sweep so far."""
        taken, to_do = self.steps()
        if self.started_at is None or not taken or not self.steps_to_do:
            return None
        return to_do * (time.monotonic() - self.started_at) / taken

    def steps(self) -> tuple[int, int]:
        """Return the steps taken by this command, and those still to take."""
        lanes = self.lanes.values()
        taken = self.steps_of_others + sum(lane.step - lane.first_step for lane in lanes)
        to_do = sum(self.steps_to_do.values()) - sum(lane.step for lane in lanes)
        return taken, to_do


class RunLane(ProgressListener):
    """Listen to one run among several."""

    def __init__(self, sweep: SweepLog) -> None:
        self.sweep = sweep
        self.name = ""
        self.path = Path()
        self.figures = ""
        self.first_step = 0
        self.step = 0
        self.total = 0

    def begin(self, config: RunConfig, path: Path, step: int) -> None:
        self.sweep.run_left(self)  # a worker may have had it before, and died
        self.name = config.name
        self.path = path
        self.total = config.steps
        self.first_step = step
        self.step = step
        self.sweep.run_began(self)

    def row(self, row: Row) -> None:
        self.figures = figures(row)
        self.tick(row["step"])

    def tick(self, step: int) -> None:
        self.step = step
        self.sweep.run_moved(self)

    def message(self, message: str) -> None:
        self.sweep.message(message)

    def end(self, path: Path, outcome: dict[str, Any]) -> None:
        self.step = outcome["step"]
        self.sweep.run_left(self)
        self.sweep.end(path, outcome)

    def fail(self, config: RunConfig, message: str) -> None:
        self.sweep.run_left(self)
        self.sweep.fail(config, message)


class SweepBars(SweepLog):
    """Move a bar for the sweep and one for each run under way, on the terminal."""

    def __init__(self, configs: Sequence[RunConfig], console: Console | None = None) -> None:
        super().__init__(configs)
        self.bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(20),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[figures]}", markup=False),
            console=console,
        )
        self.whole = self.bars.add_task("the sweep", figures="")
        self.tasks: dict[str, TaskID] = {}
        self.updated_at = 0.0

    def run_began(self, lane: RunLane) -> None:
        self.bars.start()
        super().run_began(lane)
        self.tasks[lane.name] = self.bars.add_task(lane.name, total=lane.total, figures="")
        self.update()

    def run_moved(self, lane: RunLane) -> None:
        task = self.tasks[lane.name]
        self.bars.update(task, total=lane.total, completed=lane.step, figures=lane.figures)
        if time.monotonic() - self.updated_at > REFRESH_INTERVAL:
            self.update()

    def run_left(self, lane: RunLane) -> None:
        super().run_left(lane)
        task = self.tasks.pop(lane.name, None)
        if task is not None:
            self.bars.remove_task(task)
        self.update()

    def update(self) -> None:
        """Update the bar of the sweep."""
        self.updated_at = time.monotonic()
        taken, to_do = self.steps()
        self.bars.update(self.whole, total=taken + to_do, completed=taken, figures=self.summary)

    def line(self, text: str) -> None:
        self.bars.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        self.bars.stop()
        super().close()


def duration_text(seconds: float) -> str:
    """Return a duration in rounded units.

    >>> duration_text(8.2), duration_text(100), duration_text(9000)
    ('about 8 s', 'about 2 min', 'about 2.5 h')
    """
    if seconds < 90:
        return f"about {seconds:.0f} s"
    if seconds < 5400:
        return f"about {seconds / 60:.0f} min"
    return f"about {seconds / 3600:.1f} h"
