"""Make a row: observe the model, compute the numbers, write the row."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toosure.quantities import QUANTITIES
from toosure.runs.row_reader import Row
from toosure.watch.measurer import Measurer, Observations
from toosure.watch.sink import RowSink
from toosure.watch.spacing import TimeSpent
from toosure.watch.split import Diverged, Numbers

Notify = Callable[[Row], None]


class Stopwatch:
    """Seconds since the start of a run, and the share spent on measuring."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.measuring = 0.0
        self.ended = 0.0  # when the last row was complete
        # Seconds that the last row took. The first row is cold and predicts nothing, so it counts
        # as 0.
        self.cost: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds since the start, without the time between an interruption and the resumption."""
        return time.perf_counter() - self.began

    def spent(self) -> TimeSpent:
        """Return the time that was spent so far, for a budget."""
        now = self.seconds
        return TimeSpent(now, self.measuring, self.cost or 0.0, now - self.ended)

    def state_dict(self) -> dict[str, Any]:
        """Return seconds, time spent measuring and the last cost, for `rewind`."""
        return {"seconds": self.seconds, "measuring": self.measuring, "cost": self.cost}

    def rewind(self, seconds: float, measuring: float, cost: float | None) -> None:
        """Continue from an earlier moment of the run."""
        self.began = time.perf_counter() - seconds
        self.ended = seconds
        self.measuring = measuring
        self.cost = cost


class RowMaker:
    """Make rows one at a time, each complete before training goes on.

    `toosure.watch.background.DeferredRows` makes the same rows while training goes on.
    """

    def __init__(
        self, measurer: Measurer, sink: RowSink, stopwatch: Stopwatch, notify: Notify | None
    ) -> None:
        self.measurer = measurer
        self.sink = sink
        self.stopwatch = stopwatch
        self.notify = notify
        self.reading: AbstractContextManager[object] = nullcontext()  # while the model is read
        self.diverged = False
        # Writes the snapshot of the last row if none was due; the end of a run calls it.
        self.last_snapshot: Callable[[], None] | None = None

    def start(self, row: Row, snapshot_due: bool) -> None:
        """Measure the model for a row and write it, with a snapshot if one is due."""
        row["seconds"] = time.perf_counter() - self.stopwatch.began
        observations = self.observe(row)

        def write_snapshot() -> None:
            self.write_snapshot(row["step"], observations)

        values = [observation.row_values for observation in observations.values()]
        self.finish(row, values, write_snapshot, snapshot_due)

    def add_report(self, row: Row, report: Callable[[], Mapping[str, float]]) -> None:
        """Add the objective's own numbers to a row; the time they take counts as measuring."""
        if self.measurer.device.type == "cuda":
            self.wait_for_training()  # the steps in the queue do not count as measuring
        start = self.stopwatch.seconds
        row.update(report())
        row["seconds_measuring"] = self.stopwatch.seconds - start
        self.stopwatch.measuring += row["seconds_measuring"]

    def observe(self, row: Row) -> Observations:
        """Observe every split for a row and note the time; return nothing if the model diverged."""
        before_waiting = time.perf_counter()
        if self.measurer.device.type == "cuda":
            self.wait_for_training()
        start = time.perf_counter()  # the steps in the queue do not count as measuring

        observations: Observations = {}
        try:
            with self.reading:
                observations = self.measurer.observe(row["step"])
        except Diverged:
            self.diverged = row["diverged"] = True

        now = time.perf_counter()
        cost = now - start
        self.stopwatch.measuring += cost
        row["seconds"] += now - before_waiting  # when its measurement ended
        row["seconds_measuring"] = row.get("seconds_measuring", 0.0) + cost
        return observations

    def wait_for_training(self) -> None:
        """Wait until the GPU has finished the steps that training queued."""
        torch.cuda.synchronize(self.measurer.device)

    def finish(
        self,
        row: Row,
        values: list[Callable[[], Numbers]],
        write_snapshot: Callable[[], None],
        snapshot_due: bool,
    ) -> None:
        """Add the numbers of each split to a row, and write it."""
        start = time.perf_counter()
        seconds = row.pop("seconds")
        cost = row.pop("seconds_measuring")
        for split_values in values:
            row |= split_values()
        if snapshot_due:
            write_snapshot()
        self.last_snapshot = None if snapshot_due else write_snapshot

        spent = time.perf_counter() - start
        self.stopwatch.measuring += spent
        self.stopwatch.ended = seconds + spent
        self.stopwatch.cost = 0.0 if self.stopwatch.cost is None else cost + spent
        row |= {"seconds": seconds + spent, "seconds_measuring": cost + spent}

        self.sink.append(row)
        if self.notify is not None:
            self.notify(row)

    def write_snapshot(self, step: int, observations: Observations) -> None:
        if self.sink.writer is not None and observations:
            self.sink.writer.write_snapshot(step, self.measurer.snapshot(observations))

    def discard(self) -> None:
        """Forget rows that were started, and that the model had diverged."""
        self.last_snapshot = None
        self.diverged = False

    def end(self) -> None:
        """Write the last row's snapshot, and refresh the copy of the weights."""
        if self.last_snapshot is not None:
            self.last_snapshot()
            self.last_snapshot = None

    # -- only deferred rows have something to do here ---------------------------------------

    def advance(self) -> bool:
        """Observe the model for the row that waits; return whether it has diverged meanwhile."""
        return False

    def flush(self) -> None:
        """Finish every row that was started."""

    def flush_overdue(self) -> None:
        """Finish every row that was started, if that was too long ago."""

    def close(self) -> None:
        """Stop the threads."""


def check_numbers(numbers: Mapping[str, Any]) -> None:
    """Raise on numbers that a row cannot hold, or whose name it uses itself."""
    for name, value in numbers.items():
        if not is_plain(value):
            raise ValueError(f"{name} must be one number or text to join a row; got {value!r}")
        split, _, key = name.rpartition("/")
        entry = QUANTITIES.get(key)
        if entry is None or entry.cost in ("given", "file"):
            continue
        of_that_split = split in entry.splits
        of_the_row = not split and not entry.splits
        if of_that_split or of_the_row:
            raise ValueError(f"a row has a {name} of its own: give your number another name")


def is_plain(value: object) -> bool:
    """Whether a row can hold a value: one number (Python, numpy or tensor), or text."""
    if isinstance(value, Tensor):
        return value.numel() == 1
    if isinstance(value, np.ndarray):
        return value.size == 1
    return value is None or isinstance(value, str | Number | np.generic)
