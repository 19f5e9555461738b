"""How a run goes, on the screen: a line that moves on a terminal, plain rows in a log."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from toosure.cli.runs import table_of
from toosure.config import RunConfig
from toosure.runs import Run
from toosure.train.show import Show

SHOWN = 60  # a table of more runs is not read


def unsaid_rate(config: RunConfig) -> str:
    """Return the learning rate where it is the optimizer's default: nothing else would show it.

    >>> unsaid_rate(RunConfig(optimizer="adamw")), unsaid_rate(RunConfig())
    ("  (lr 0.001, adamw's default)", '')
    """
    word = config.word("optimizer")
    rate = word.method.settings.get("lr")
    if rate is None or "lr" in word.settings or not isinstance(rate.default, float):
        return ""
    return f"  (lr {rate.default:g}, {word.name}'s default)"


class Rows(Show):
    """Print a line a measurement, and how each run ended."""

    def __init__(self, count: int) -> None:
        self.count, self.number, self.failures = count, 0, 0
        self.ended: list[Run] = []

    def begin(self, config: RunConfig, path: Path, step: int) -> None:
        self.line(f"run {self.number + 1} of {self.count}: {path}{unsaid_rate(config)}")
        self.total = config.steps
        if step == 0 and (not config.at or 0 in config.at):
            self.start()

    def start(self) -> None:
        """The first measurement, the longest, is on its way."""
        self.line("measuring step 0 ...")

    def row(self, row: dict[str, Any]) -> None:
        self.line(f"step {row['step']:>6} of {self.total}  {figures(row)}")

    def say(self, message: str) -> None:
        self.line(message)

    def end(self, path: Path, outcome: dict[str, Any]) -> None:
        self.number += 1
        run = Run(path)
        self.ended.append(run)
        reason = f": {outcome['message']}" if outcome.get("message") else ""
        self.line(f"{outcome['status']} at step {outcome['step']}{reason}  {path}")
        self.close_if_over()

    def fail(self, config: RunConfig, message: str) -> None:
        self.failures += 1
        super().fail(config, message)
        self.close_if_over()

    def close_if_over(self) -> None:
        if self.number + self.failures == self.count:
            self.close()

    def line(self, text: str) -> None:
        typer.echo(text)

    def close(self) -> None:
        """Show all runs side by side, once."""
        if len(self.ended) > SHOWN:
            self.line(f"`toosure runs --out {self.ended[0].path.parent}` lists the runs")
        elif len(self.ended) > 1:
            console = Console(width=None if sys.stdout.isatty() else 200)
            console.print(table_of(self.ended, console.width))
        self.ended = []


class Bar(Rows):
    """Move a line on the terminal: steps a second, time left, ECE and sharpness."""

    def __init__(self, count: int, console: Console | None = None) -> None:
        super().__init__(count)
        left = TimeRemainingColumn(compact=True, table_column=Column(min_width=5, no_wrap=True))
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(None),
            TextColumn("{task.completed}/{task.total}"), TextColumn("{task.fields[pace]}"), left,
            TextColumn("{task.fields[figures]}"), console=console,
        )  # fmt: skip

    def begin(self, config: RunConfig, path: Path, step: int) -> None:
        super().begin(config, path, step)
        self.first, self.since = step, time.monotonic()
        self.bar.start()
        self.task = self.bar.add_task(
            f"{self.number + 1}/{self.count}", total=config.steps, completed=step,
            pace="", figures="measuring" if step == 0 else "",
        )  # fmt: skip

    def start(self) -> None:
        pass  # the moving line stands at 0

    def row(self, row: dict[str, Any]) -> None:
        beside = 38 + 2 * len(str(self.total))  # the bar, counts, pace and time left
        self.bar.update(self.task, figures=figures(row, self.bar.console.width - beside))
        self.tick(row["step"])

    def tick(self, step: int) -> None:
        pace = (step - self.first) / max(1e-9, time.monotonic() - self.since)
        self.bar.update(self.task, completed=step, pace=f"{pace:.0f} steps/s")

    def end(self, path: Path, outcome: dict[str, Any]) -> None:
        self.bar.stop()
        for task in list(self.bar.task_ids):
            self.bar.remove_task(task)
        super().end(path, outcome)


def figures(row: dict[str, Any], room: int = 200) -> str:
    """Return the figures of a row that fit into a line, validation where there is one."""
    split = "val" if "val/ece" in row else "train"
    found = {
        "loss": row.get("train/loss"),
        "accuracy": row.get(f"{split}/accuracy"),
        "ECE": row.get(f"{split}/ece"),
        "sharpness": row.get("train/gn_sharpness"),
    }
    said = {name: f"{name} {value:.4g}" for name, value in found.items() if value is not None}
    for least in ("accuracy", "loss", "sharpness"):
        if len("  ".join(said.values())) > room:
            said.pop(least, None)
    return "  ".join(said.values())


def show_for(configs: Sequence[RunConfig], at_once: bool = False) -> Rows:
    """Choose by where the output goes, and by whether several runs go on at once."""
    if at_once:
        from toosure.cli.side_by_side import Bars, Lines

        return Bars(configs) if sys.stdout.isatty() else Lines(configs)
    return Bar(len(configs)) if sys.stdout.isatty() else Rows(len(configs))
