"""The progress of runs on the screen: a moving line on a terminal, plain rows in a log."""

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from toosure.cli.runs import table_of
from toosure.cli.tables import console
from toosure.config import RunConfig
from toosure.quantities import QUANTITIES, shown_in
from toosure.runs import Run
from toosure.runs.row_reader import Row
from toosure.runs.storage import as_given
from toosure.train import ProgressListener

SLOW_ROW = 3.0  # seconds; if the last row took longer, the next one is announced
MAX_TABLE = 60  # a longer table is not printed


def default_rate(config: RunConfig) -> str:
    """Return the learning rate if it is the optimizer's default, which the name does not show.

    >>> default_rate(RunConfig(optimizer="adamw")), default_rate(RunConfig())
    ("  (lr 0.001, adamw's default)", '')
    """
    word = config.word("optimizer")
    rate = word.method.settings.get("lr")
    if rate is None or "lr" in word.settings or not isinstance(rate.default, float):
        return ""
    return f"  (lr {rate.default:g}, {word.name}'s default)"


class RowPrinter(ProgressListener):
    """Print a line per measurement, and how each run ended."""

    def __init__(self, count: int) -> None:
        self.count = count  # runs to train
        self.done = 0
        self.failures = 0
        self.row_seconds = 0.0  # that measuring the last row took
        self.ended: list[Run] = []

    def begin(self, config: RunConfig, path: Path, step: int) -> None:
        self.line(f"run {self.done + 1} of {self.count}: {as_given(path)}{default_rate(config)}")
        self.total = config.steps
        if step == 0 and (not config.at or 0 in config.at):
            self.begin_measuring()

    def begin_measuring(self) -> None:
        """The first measurement, which takes longest, has begun."""
        self.line("measuring step 0 ...")

    def measuring(self, step: int) -> None:
        if self.row_seconds > SLOW_ROW:
            self.announce(f"measuring step {step}, about {self.row_seconds:.0f} s")

    def announce(self, text: str) -> None:
        self.line(f"{text} ...")

    def row(self, row: Row) -> None:
        self.row_seconds = row.get("seconds_measuring") or 0.0
        self.line(f"step {row['step']:>6} of {self.total}  {figures(row)}")

    def message(self, message: str) -> None:
        self.line(message)

    def end(self, path: Path, outcome: dict[str, Any]) -> None:
        self.done += 1
        self.ended.append(Run(path))
        reason = f": {outcome['message']}" if outcome.get("message") else ""
        self.line(f"{outcome['status']} at step {outcome['step']}{reason}  {as_given(path)}")
        self.close_if_over()

    def fail(self, config: RunConfig, message: str) -> None:
        self.failures += 1
        super().fail(config, message)
        self.close_if_over()

    def close_if_over(self) -> None:
        if self.done + self.failures == self.count:
            self.close()

    def line(self, text: str) -> None:
        typer.echo(text)

    def close(self) -> None:
        """Print all runs in one table, once."""
        if len(self.ended) > MAX_TABLE:
            self.line(f"`toosure runs --out {self.ended[0].path.parent}` lists the runs")
        elif len(self.ended) > 1:
            terminal = console()
            terminal.print(table_of(self.ended, terminal.width))
        self.ended = []


class ProgressBar(RowPrinter):
    """Move a line on the terminal: steps per second, time left, ECE and sharpness."""

    def __init__(self, count: int, console: Console | None = None) -> None:
        super().__init__(count)
        time_left = TimeRemainingColumn(
            compact=True, table_column=Column(min_width=5, no_wrap=True)
        )
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(None),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[pace]}"),
            time_left,
            TextColumn("{task.fields[figures]}"),
            console=console,
        )

    def begin(self, config: RunConfig, path: Path, step: int) -> None:
        super().begin(config, path, step)
        self.first_step = step
        self.started_at = time.monotonic()
        self.bar.start()
        self.task = self.bar.add_task(
            f"{self.done + 1}/{self.count}",
            total=config.steps,
            completed=step,
            pace="",
            figures="measuring" if step == 0 else "",
        )

    def begin_measuring(self) -> None:
        pass  # the moving line shows it

    def announce(self, text: str) -> None:
        self.bar.update(self.task, figures=text)

    def row(self, row: Row) -> None:
        self.row_seconds = row.get("seconds_measuring") or 0.0
        beside = 38 + 2 * len(str(self.total))  # columns of the bar, counts, pace and time left
        self.bar.update(self.task, figures=figures(row, self.bar.console.width - beside))
        self.tick(row["step"])

    def tick(self, step: int) -> None:
        pace = (step - self.first_step) / max(1e-9, time.monotonic() - self.started_at)
        self.bar.update(self.task, completed=step, pace=f"{pace:.0f} steps/s")

    def end(self, path: Path, outcome: dict[str, Any]) -> None:
        self.bar.stop()
        for task in list(self.bar.task_ids):
            self.bar.remove_task(task)
        super().end(path, outcome)


def figures(row: Mapping[str, Any], room: int = 200) -> str:
    """Return the figures of a row that fit into a line, validation if there is one.

    The quantities that their table ranks lowest are left out first.
    """
    judged = "val" if "val/ece" in row else "train"
    texts: dict[str, str] = {}
    for q in shown_in("progress"):
        split = q.terminal_split or judged
        value = row.get(f"{split}/{q.key}")
        if value is not None:
            texts[q.key] = f"{split} {q.short} {value:.4g}"

    for key in sorted(texts, key=lambda key: QUANTITIES[key].importance)[:-1]:
        if len("  ".join(texts.values())) > room:
            del texts[key]
    return "  ".join(texts.values())


def listener_for_runs(configs: Sequence[RunConfig], at_once: bool = False) -> RowPrinter:
    """Choose a listener by where the output goes, and by whether several runs go on at once."""
    if at_once:
        from toosure.cli.side_by_side import SweepBars, SweepLog

        return SweepBars(configs) if sys.stdout.isatty() else SweepLog(configs)
    return ProgressBar(len(configs)) if sys.stdout.isatty() else RowPrinter(len(configs))
