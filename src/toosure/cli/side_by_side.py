"""How several runs at once go, on the screen: bars on a terminal, a line now and then in a log."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from toosure.cli.progress import Rows, figures
from toosure.config import RunConfig
from toosure.train.show import Show

REFRESH = 0.2  # seconds between two looks at all runs
QUIET = 30.0  # seconds without a line after which a log hears how the sweep stands


class Lines(Rows):
    """Say when a run begins and how it ended, and how long the whole sweep still takes."""

    def __init__(self, configs: Sequence[RunConfig]) -> None:
        super().__init__(len(configs))
        self.left = {config.name: config.steps for config in configs}  # steps, by run to be done
        self.lanes: dict[str, Lane] = {}  # the runs under way
        self.taken = 0  # steps, in runs no longer under way
        self.since: float | None = None
        self.last_line = time.monotonic()

    def beside(self) -> Show:
        return Lane(self)

    def moved(self, lane: "Lane") -> None:
        """A run took some steps."""
        if time.monotonic() - self.last_line > QUIET:
            self.line(self.standing)

    def came(self, lane: "Lane") -> None:
        """A run began."""
        self.since = self.since or time.monotonic()
        self.lanes[lane.name] = lane
        self.line(f"begun at step {lane.step}: {lane.path}")

    def went(self, lane: "Lane") -> None:
        """A run is no longer under way."""
        if self.lanes.pop(lane.name, None):
            self.taken += lane.step - lane.first

    def end(self, path: Path, outcome: dict[str, Any]) -> None:
        if outcome["status"] == "stopped":  # it goes on, now or with the next command
            self.line(f"stopped at step {outcome['step']}  {path}")
        else:
            self.left.pop(path.name, None)
            super().end(path, outcome)

    def fail(self, config: RunConfig, message: str) -> None:
        self.left.pop(config.name, None)
        super().fail(config, message)

    def line(self, text: str) -> None:
        self.last_line = time.monotonic()
        super().line(f"[{self.standing}] {text}" if text != self.standing else text)

    @property
    def standing(self) -> str:
        """How the sweep stands, in a few words."""
        failed = f", {self.failures} failed" if self.failures else ""
        remaining = self.remaining()
        left = "" if remaining is None else f", {in_words(remaining)} left"
        return f"{self.number} of {self.count} done, {len(self.lanes)} running{failed}{left}"

    def remaining(self) -> float | None:
        """Seconds until the end, at the steps a second of this sweep so far."""
        taken, to_do = self.steps()
        if self.since is None or not taken or not self.left:
            return None
        return to_do * (time.monotonic() - self.since) / taken

    def steps(self) -> tuple[int, int]:
        """The steps taken by this command, and those to take."""
        lanes = self.lanes.values()
        taken = self.taken + sum(lane.step - lane.first for lane in lanes)
        return taken, sum(self.left.values()) - sum(lane.step for lane in lanes)


class Lane(Show):
    """One run among several."""

    def __init__(self, sweep: Lines) -> None:
        self.sweep, self.name, self.figures = sweep, "", ""
        self.path = Path()
        self.first = self.step = self.total = 0

    def begin(self, config: RunConfig, path: Path, step: int) -> None:
        self.sweep.went(self)  # a worker had it before, and died
        self.name, self.path, self.total = config.name, path, config.steps
        self.first = self.step = step
        self.sweep.came(self)

    def row(self, row: dict[str, Any]) -> None:
        self.figures = figures(row)
        self.tick(row["step"])

    def tick(self, step: int) -> None:
        self.step = step
        self.sweep.moved(self)

    def say(self, message: str) -> None:
        self.sweep.say(message)

    def end(self, path: Path, outcome: dict[str, Any]) -> None:
        self.step = outcome["step"]
        self.sweep.went(self)
        self.sweep.end(path, outcome)

    def fail(self, config: RunConfig, message: str) -> None:
        self.sweep.went(self)
        self.sweep.fail(config, message)


class Bars(Lines):
    """Move a bar for the sweep and one for each run under way, on the terminal."""

    def __init__(self, configs: Sequence[RunConfig], console: Console | None = None) -> None:
        super().__init__(configs)
        text = TextColumn("{task.description}", markup=False)
        last = TextColumn("{task.fields[figures]}", markup=False)
        self.bars = Progress(
            text, BarColumn(20), TextColumn("{task.percentage:>3.0f}%"), last, console=console
        )
        self.whole = self.bars.add_task("the sweep", figures="")
        self.tasks: dict[str, TaskID] = {}
        self.updated = 0.0

    def came(self, lane: Lane) -> None:
        self.bars.start()
        super().came(lane)
        self.tasks[lane.name] = self.bars.add_task(lane.name, total=lane.total, figures="")
        self.update()

    def moved(self, lane: Lane) -> None:
        task = self.tasks[lane.name]
        self.bars.update(task, total=lane.total, completed=lane.step, figures=lane.figures)
        if time.monotonic() - self.updated > REFRESH:
            self.update()

    def update(self) -> None:
        """Bring the bar of the sweep to where the sweep is."""
        self.updated = time.monotonic()
        taken, to_do = self.steps()
        self.bars.update(self.whole, total=taken + to_do, completed=taken, figures=self.standing)

    def went(self, lane: Lane) -> None:
        super().went(lane)
        task = self.tasks.pop(lane.name, None)
        if task is not None:
            self.bars.remove_task(task)
        self.update()

    def line(self, text: str) -> None:
        self.bars.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        self.bars.stop()
        super().close()


def in_words(seconds: float) -> str:
    """Say a time as people do.

    >>> in_words(8.2), in_words(100), in_words(9000)
    ('about 8 s', 'about 2 min', 'about 2.5 h')
    """
    if seconds < 90:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"
