"""`Watch`: rows of what a classifier is, at chosen steps of its training, and what they cost."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from toosure.config import as_measures
from toosure.processes import ALONE, Processes
from toosure.runs import RunWriter
from toosure.runs.read import Row
from toosure.runs.write import plain
from toosure.watch.folder import Folder
from toosure.watch.later import Later, Unwritten
from toosure.watch.spacing import Spacing, next_snapshot
from toosure.watch.split import Diverged, Look, check_numbers
from toosure.watch.subject import Data, Subject

LONG = 0.5  # seconds after which a row that was left for later is seen to


class Watch:
    """Measure a model while it trains: `watch.step()` after every step of the optimizer.

    On `train` and `val`, each (inputs, labels) held in memory: loss, accuracy, ECE and its kin,
    NLL, Brier score, entropy, margins, and what `measure` adds (Gauss-Newton sharpness unless
    told; see docs/training.md for every key of a row). The start is measured at once as step 0,
    then `every` so many steps, or `at` given steps, or as often as `budget`, a share of the time,
    allows; the end by `finish`, or on leaving a `with` block. Rows go to the folder `run`, or to
    `watch.rows` without one. The model is only read: modes, buffers, gradients and random state
    stay as they are.

    `loss` is the criterion of (logits, labels); `objective`, where one is trained, may offer
    `predict(model, x)` for the logits and `report()` for numbers of its own. `test` is only looked
    at where `measure` has "best": logits at the least validation NLL, kept. `notify` is called
    with each row as it is written; `defer` leaves all its work for later (see `measure`).
    `eps` is the radius of certificates; `curvature` goes to `CurvatureTracker`: `rtol`, `replay`,
    and `batch`, the examples a batch of `batch_sharpness` and `gni` has (128; give your loop's).
    With `processes` (`toosure.processes.join`) each process holds all data and measures its own
    part, the numbers are those of one, and the first one writes; all must call `step` alike.
    `resume` is the `state_dict` of an earlier watch: rows after its step are dropped and measured
    again. Where outputs or the training loss stop being finite, `diverged` is set and the run
    says so.

    >>> import torch
    >>> from toosure.models import mlp
    >>> model, x, y = mlp(inputs=4, classes=3, width=8), torch.randn(30, 4), torch.arange(30) % 3
    >>> watch = Watch(model, nn.CrossEntropyLoss(), train=(x, y), every=2)
    >>> rows = [watch.step(lr=0.1) for _ in range(2)]
    >>> rows[0] is None, rows[1]["step"], rows[1]["train/ece"] == watch.rows[-1]["train/ece"]
    (True, 2, True)
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Any,
        train: Data,
        val: Data | None = None,
        run: str | Path | RunWriter | None = None,
        budget: float | None = None,
        measure: str | Sequence[str] = ("gn_sharpness",),
        *,
        every: int = 20,
        at: Iterable[int] = (),
        resume: Mapping[str, Any] | None = None,
        start: Mapping[str, Any] | None = None,
        test: Data | None = None,
        objective: Any = None,
        notify: Callable[[Row], None] | None = None,
        defer: bool = False,
        config: Mapping[str, Any] | None = None,
        processes: Processes = ALONE,
        eps: float = 0.01,
        bins: int = 15,
        **curvature: Any,
    ) -> None:
        self.measures = measure = as_measures(measure)
        self.spacing, self.processes = Spacing(every, at, budget), processes
        self.report = getattr(objective, "report", None)
        self.subject = Subject(
            model, loss, objective, {"train": train, "val": val}, test, measure,
            waits=defer and budget is None and processes.count == 1,
            eps=eps, bins=bins, processes=processes, **curvature,
        )  # fmt: skip
        self.splits, self.best = self.subject.splits, self.subject.best
        self.steps, self.measured, self.snapshot_from, self.diverged = 0, -1, 0, False
        self.measuring, self.ended = 0.0, 0.0  # seconds: in all, and when the last one was over
        self.cost: float | None = None  # of the last; 0 after the first, which is cold and no guide
        self.notify, self.defer = notify, defer
        self.later = Later(defer, helpers=self.subject.device.type == "cuda")
        self.waiting: tuple[Row, bool] | None = None  # to be looked at; whether to keep a snapshot
        self.pending: Unwritten | None = None
        self.left_at = math.inf  # when a row was last left for later
        self.unkept: Callable[[], None] | None = None  # keeps a snapshot of the last row
        self.began, self.closed = time.perf_counter(), False
        self.folder = Folder(self, run, config, resume is not None, processes.first, self.best)
        self.rows = self.folder.rows
        try:
            self._begin(resume, start or {})
        except BaseException:
            self.folder.give_up()
            raise

    def _begin(self, resume: Mapping[str, Any] | None, start: Mapping[str, Any]) -> None:
        if resume is not None:
            self.load_state_dict(resume)
        self.folder.begin(self.subject.device, self.steps)
        if resume is None and (not self.spacing.at or 0 in self.spacing.at):
            self.measure(**start)
            self._look()  # cold, and best before there are steps to count

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Measure the end and let go of the folder; a loop that raised has failed."""
        if error is None:
            self.finish()
        stopped = isinstance(error, KeyboardInterrupt)
        ending = ("stopped" if stopped else "failed", str(error) or type(error).__name__)
        self.close(*(ending if error is not None else ()))

    @property
    def seconds(self) -> float:
        """Seconds since the start, those before an interruption counted, waiting not."""
        return time.perf_counter() - self.began

    @property
    def last(self) -> Row:
        """The latest row."""
        return self.rows[-1] if self.rows else {}

    def step(self, **numbers: Any) -> Row | None:
        """Count a step, and measure if it is due; `numbers` such as `lr=0.1` join the row."""
        self._check(numbers)
        self.steps += 1
        if self.seconds - self.left_at > LONG:
            self.flush()
        if self.diverged:
            return None
        now, cost = self.seconds, self.cost or 0.0
        due = self.spacing.due(self.steps, now, self.measuring, cost, now - self.ended)
        if self.spacing.budget is not None:  # by the clock of the first process
            (due,) = self.processes.any(due and self.processes.first)
        return self.measure(**numbers) if due else None

    def measure(self, **numbers: Any) -> Row:
        """Measure now, and keep the row; a snapshot too where one is due.

        A step has one row: where it was measured already, that is returned as it is. With `defer`
        a copy of the weights is taken, to be looked at when the next row is due, the time is long
        or somebody asks (`flush`), so that a device always has steps in its queue; and metrics are
        worked out on the side until the row after that.
        """
        self._check(numbers)
        if self.measured == self.steps:
            self.flush()
            return self.last
        known = self.diverged
        self._look()
        if self.diverged and not known:  # it had, when the last row was due
            self.flush()
            return self.last
        row: Row = {"step": self.steps, **numbers}
        row |= self.report() if self.report is not None else {}
        snapshot = self.steps >= self.snapshot_from
        if snapshot:
            self.snapshot_from = next_snapshot(self.steps)
        self.measured, row["seconds"] = self.steps, self.seconds
        self.left_at = row["seconds"] if self.spacing.budget is None else math.inf
        self.waiting = row, snapshot
        if not self.subject.take():
            self._look()
        if not self.defer:
            self.flush()
        return row

    def _look(self) -> None:
        """Look at the model for the row that waits, and begin to work out its metrics."""
        if self.waiting is None:
            return
        (row, snapshot), self.waiting = self.waiting, None
        begin = self.seconds
        self.subject.wait()
        start = self.seconds  # what training queued is not our time
        looks: dict[str, Look] = {}
        try:
            looks = self.subject.look(row["step"])
        except Diverged:
            self.diverged = row["diverged"] = True
        self.ended = self.seconds
        row["seconds"] += self.ended - begin
        row["seconds_measuring"] = cost = self.ended - start
        self.measuring += cost
        keep: Callable[[], None] = partial(self._keep_snapshot, row["step"], looks)
        keep = self.later.begin(keep, here=True) if snapshot else keep
        begun = Unwritten(row, [self._working(*each) for each in looks.items()], keep, snapshot)
        before, self.pending = self.pending, begun
        self._write(before)  # whose metrics have had the time of all this

    def _working(self, name: str, look: Look) -> Callable[[], Row]:
        """Begin to work out metrics; where logits are too many to leave the device, here."""
        here = look.logits.device.type != "cpu"
        return self.later.begin(self.splits[name].working(look), here)

    def _check(self, numbers: Mapping[str, Any]) -> None:
        if self.closed:
            raise ValueError(
                "this watch was closed: to go on, make another with resume=state, its state_dict"
            )
        check_numbers(numbers)

    def flush(self) -> None:
        """Work out what was left for later, and write it."""
        self._look()
        begun, self.pending = self.pending, None
        self._write(begun)
        self.left_at = math.inf

    def _write(self, begun: Unwritten | None) -> None:
        """Write a row that was looked at, once its metrics are there."""
        if begun is None:
            return
        start, row = time.perf_counter(), begun.row
        seconds, cost = row.pop("seconds"), row.pop("seconds_measuring")
        for found in begun.numbers:
            row |= found()
        if begun.due:
            begun.keep()
        self.unkept = None if begun.due else begun.keep
        spent = time.perf_counter() - start
        self.measuring, self.ended = self.measuring + spent, self.seconds
        self.cost = 0.0 if self.cost is None else cost + spent
        row |= {"seconds": seconds + spent, "seconds_measuring": cost + spent}
        self.folder.append(row)
        if self.notify is not None:
            self.notify(row)

    def _keep_snapshot(self, step: int, looks: Mapping[str, Look]) -> None:
        if self.folder.writer is not None and looks:
            self.folder.writer.write_snapshot(step, self.subject.snapshot(looks))

    def finish(self, **numbers: Any) -> Row:
        """Measure the end, unless that was done, and keep its snapshot.

        In a folder of its own the watch also keeps the validation logits (`predictions.npz`).
        """
        if not self.diverged and self.measured != self.steps:
            self.measure(**numbers)
        self.flush()
        keep, self.unkept = self.unkept, None
        if keep is not None:
            keep()
        self.subject.take()
        self.folder.finish(None if self.diverged else self.splits.get("val"))
        return self.last

    def close(self, status: str = "ended", message: str = "") -> None:
        """Let go of the folder now, and not when the watch is gone or the process ends."""
        try:
            if not self.closed:
                self.flush()
        finally:
            self.later.close()
            self.closed = True
            self.folder.close(status, message)

    def state_dict(self) -> dict[str, Any]:
        """Return what it takes to go on as if nothing had happened, tensors and plain types."""
        self.flush()
        return {
            "steps": self.steps,
            "measured": self.measured,
            "snapshot_from": self.snapshot_from,
            "seconds": self.seconds,
            "measuring": self.measuring,
            "cost": self.cost,
            "measure": list(self.measures),
            "splits": list(self.splits),
            "last": {key: plain(value) for key, value in self.last.items()},
            **self.subject.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to where `state` was taken; later rows of the folder are dropped."""
        for name, mine in (("measure", self.measures), ("splits", tuple(self.splits))):
            taken = tuple(state.get(name, mine))
            if set(taken) != set(mine):
                raise ValueError(f"the state is of a watch with {name} {taken}; got {mine}")
        if self.pending is not None:
            self.pending.forget()
        self.waiting, self.pending, self.unkept, self.left_at = None, None, None, math.inf
        self.diverged = False
        self.steps, self.measured = state["steps"], state["measured"]
        self.snapshot_from = state["snapshot_from"]
        self.measuring, self.cost = state["measuring"], state["cost"]
        self.began = time.perf_counter() - state["seconds"]
        self.ended = state["seconds"]
        self.subject.load_state_dict(state)
        self.folder.go_back(self.measured, state.get("last", {}))
