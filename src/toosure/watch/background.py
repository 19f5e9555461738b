"""Rows in the background, so that the queue of a GPU never runs empty.

A row that is due copies the weights and returns. When the next row is due, the copy is observed on
a separate stream, while training steps wait in the queue. Helper processes compute the metrics, and
the row is written one row later, or after half a second without a new row. `Watch` sees only
`DeferredRows`.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import torch

from toosure.runs.row_reader import Row
from toosure.watch.measurer import Measurer, Observations
from toosure.watch.metrics_process import in_a_process, start_processes
from toosure.watch.rows import Notify, RowMaker, Stopwatch
from toosure.watch.sink import RowSink
from toosure.watch.split import Numbers
from toosure.watch.weights_copy import WeightsCopy

Answer = TypeVar("Answer")
THREADS = 2  # calls at a time: one per split
MAX_AGE = 0.5  # seconds after which deferred rows are written, if no new row has started


class Background:
    """Two threads that make calls; with `processes` each hands its calls to a helper process.

    A thread uses one core: splitting small arrays among several would cost more than it gains.
    """

    def __init__(self, processes: bool) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "watch", torch.set_num_threads, (1,))
        self._processes = processes
        if processes:
            start_processes(THREADS)

    def submit(self, call: Callable[[], Answer], here: bool = False) -> Callable[[], Answer]:
        """Start a call, and return a function that waits for its result or raises its error.

        With `here` the call stays in this process.
        """
        if self._processes and not here:
            return self._threads.submit(in_a_process, call).result
        return self._threads.submit(call).result

    def close(self) -> None:
        """Wait for the calls under way, then stop the threads."""
        self._threads.shutdown()


@dataclass
class PendingRow:
    """A row that was observed, while its metrics are computed."""

    row: Row
    values: list[Callable[[], Numbers]]  # each waits for the numbers of one split
    write_snapshot: Callable[[], None]  # waits for the write, if one is due
    snapshot_due: bool  # a snapshot is scheduled; its write has started

    def wait(self) -> None:
        """Wait for started work; ignore its errors."""
        started = [*self.values, *([self.write_snapshot] if self.snapshot_due else [])]
        for call in started:
            with suppress(Exception):
                call()


class DeferredRows(RowMaker):
    """Make rows while training goes on; their numbers are those of `RowMaker`.

    Without a copy of the weights the model is observed at once, and only the metrics are deferred.
    A row is written after `max_age` seconds, even if no other row has started.
    """

    def __init__(
        self,
        measurer: Measurer,
        sink: RowSink,
        stopwatch: Stopwatch,
        notify: Notify | None,
        weights: WeightsCopy | None,
        max_age: float = MAX_AGE,
    ) -> None:
        super().__init__(measurer, sink, stopwatch, notify)
        self.weights = weights
        if weights is not None:
            self.reading = weights
        self.max_age = max_age
        self.background = Background(processes=measurer.device.type == "cuda")
        self.waiting: tuple[Row, bool] | None = None  # to be observed; is a snapshot due?
        self.pending: PendingRow | None = None  # observed, not yet written
        self.last_started = math.inf

    def start(self, row: Row, snapshot_due: bool) -> None:
        """Copy the current weights; the row is observed when the next one is due."""
        row["seconds"] = self.last_started = self.stopwatch.seconds
        self.waiting = row, snapshot_due
        if self.weights is None:
            self.advance()
        else:
            self.weights.take()

    def advance(self) -> bool:
        """Observe the model for the waiting row, and write the previous one."""
        if self.waiting is None:
            return False
        row, snapshot_due = self.waiting
        self.waiting = None

        had_diverged = self.diverged
        observations = self.observe(row)

        def write_snapshot() -> None:
            self.write_snapshot(row["step"], observations)

        snapshot: Callable[[], None] = write_snapshot
        if snapshot_due:
            snapshot = self.background.submit(write_snapshot, here=True)
        pending = PendingRow(row, self.start_values(observations), snapshot, snapshot_due)

        # Meanwhile the metrics of the previous row were computed.
        previous = self.pending
        self.pending = pending
        self.write(previous)
        return self.diverged and not had_diverged

    def start_values(self, observations: Observations) -> list[Callable[[], Numbers]]:
        """Start computing the metrics of each split.

        Large logits stay on the GPU, so their metrics are computed in this process.
        """
        return [
            self.background.submit(
                observation.row_values, here=observation.logits.device.type != "cpu"
            )
            for observation in observations.values()
        ]

    def write(self, pending: PendingRow | None) -> None:
        """Write a row, once its metrics are there."""
        if pending is not None:
            self.finish(pending.row, pending.values, pending.write_snapshot, pending.snapshot_due)

    def wait_for_training(self) -> None:
        """Wait for the copy of the weights, not for the steps queued after it."""
        if self.weights is None:
            super().wait_for_training()
        else:
            self.weights.wait()

    def flush(self) -> None:
        self.advance()
        pending = self.pending
        self.pending = None
        self.write(pending)
        self.last_started = math.inf

    def flush_overdue(self) -> None:
        if self.stopwatch.seconds - self.last_started > self.max_age:
            self.flush()

    def discard(self) -> None:
        if self.pending is not None:
            self.pending.wait()
        self.waiting = None
        self.pending = None
        self.last_started = math.inf
        super().discard()

    def end(self) -> None:
        super().end()
        if self.weights is not None:
            self.weights.take()

    def close(self) -> None:
        self.background.close()


def make_row_maker(
    measurer: Measurer,
    sink: RowSink,
    stopwatch: Stopwatch,
    notify: Notify | None,
    defer: bool,
    weights: WeightsCopy | None,
    flush_early: bool,
) -> RowMaker:
    """Return a maker of rows: `RowMaker`, or `DeferredRows` with `defer`."""
    if not defer:
        return RowMaker(measurer, sink, stopwatch, notify)
    max_age = MAX_AGE if flush_early else math.inf
    return DeferredRows(measurer, sink, stopwatch, notify, weights, max_age)
