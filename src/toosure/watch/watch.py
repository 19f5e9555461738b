"""`Watch`: measure a classifier at chosen steps of its training, and note what that cost."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from torch import nn

from toosure.batches.reader import InputsOf, LabelsOf
from toosure.config import as_measures
from toosure.finite import json_ready
from toosure.processes import ALONE, Processes
from toosure.runs import RunWriter
from toosure.runs.row_reader import Row
from toosure.watch.arguments import check_arguments, with_names
from toosure.watch.background import make_row_maker
from toosure.watch.criterion import Criterion
from toosure.watch.joint import processes_of, without_ddp
from toosure.watch.measurer import Data, Measurer, device_of
from toosure.watch.rows import Notify, Stopwatch, check_numbers
from toosure.watch.sam_numbers import RHO, SamRadius
from toosure.watch.same_watch import check_same_watch, hashes_in
from toosure.watch.sample import ExampleSource
from toosure.watch.sink import RowSink
from toosure.watch.spacing import Spacing, is_due, next_snapshot
from toosure.watch.weights_copy import copy_weights


class Watch:
    """Measure a model while it trains: `watch.step()` after every step of the optimizer.

    A row holds loss, accuracy, ECE and its kin, NLL, Brier score, entropy and margins on `train`
    and `val`, and what `measure` adds (Gauss-Newton sharpness by default; docs/training.md lists
    every key). The model is only read: modes, buffers, gradients and random state stay as they are.

    Data: `train` and `val` are (inputs, labels) in memory, or a DataLoader, a Dataset or a dict of
    tensors (docs/watch.md). From these `examples` (2000, or a dict by split) are drawn once by
    `seed` and kept on the model's device; `inputs` and `labels`, keys or functions, name the parts
    of a batch. `test` is only measured if `measure` has "best", which keeps the logits at the
    lowest validation NLL.

    When: the start is measured as step 0, then `every` 20 steps, or the steps in `at`, or as often
    as `budget`, a share of the time, allows. `finish` or leaving a `with` block measures the end.
    With `defer`, `step` returns an unfinished row, which is completed while training goes on. If
    outputs or the training loss stop being finite, `diverged` is set and the run says so.

    Where: rows go to the folder `run`, or to `watch.rows`; `notify` is called with each of them.
    `config` is noted in the folder, and `start` holds numbers that join the row of step 0. `resume`
    is the `state_dict` of an earlier watch on the same examples; later rows are measured again.

    How: `loss` is the criterion of (logits, labels), None for cross-entropy. An `objective` may
    offer `predict(model, x)` for the logits and `report()` for numbers of its own. `bins` is of the
    binned errors, `eps` the radius of certificates, `rho` the radius of `sam_theory`. The other
    arguments, `curvature`, go to `CurvatureTracker`: `rtol`, `replay`, and `batch`, that of your
    loop, for `batch_sharpness`, `gni`, `sam_theory` (128). It sees `curvature_examples` of a split.

    Several processes: with `processes="all"` under DDP each process measures its share of the same
    examples, and the first writes; all must make the watch and call `step` alike. Curvature of
    weights that FSDP2 shards is measured on gathered weights, up to `gather` of them (50 million).

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
        loss: Criterion | None,
        train: Data,
        val: Data | None = None,
        run: str | Path | RunWriter | None = None,
        budget: float | None = None,
        measure: str | Sequence[str] = ("gn_sharpness",),
        *,
        every: int = 20,
        at: Iterable[int] = (),
        inputs: InputsOf = None,
        labels: LabelsOf = None,
        examples: int | Mapping[str, int] | None = None,
        seed: int = 0,
        resume: Mapping[str, Any] | None = None,
        start: Mapping[str, Any] | None = None,
        test: Data | None = None,
        objective: object = None,
        notify: Notify | None = None,
        defer: bool = False,
        config: Mapping[str, Any] | None = None,
        processes: Processes | Literal["all"] = ALONE,
        eps: float = 0.01,
        rho: SamRadius = RHO,
        bins: int = 15,
        **curvature: Any,
    ) -> None:
        check_arguments(curvature, type(self))
        self.measures = as_measures(measure)
        self.spacing = Spacing(every, at, budget)
        model = without_ddp(model)
        curvature = with_names(curvature, model)
        self.processes = processes = processes_of(processes, device_of(model))

        self.report = getattr(objective, "report", None)
        self.before_row: Callable[[int], None] = lambda step: None  # called with a row's step
        self.steps = 0
        self.latest_numbers: dict[str, Any] = {}  # those given to the last step
        self.last_measured = -1  # the step of the last row
        self.snapshot_from = 0  # the step from which on a snapshot is due
        self.closed = False

        # A copy of the weights can be measured later; but a budget needs the cost of a row at once.
        can_wait = defer and budget is None and processes.count == 1
        weights = copy_weights(model, loss, objective, rho) if can_wait else None
        if weights is not None:
            model, loss, rho = weights.model, weights.loss, weights.kept_rho

        self.measurer = Measurer(
            model,
            loss,
            objective,
            {"train": train, "val": val},
            test,
            self.measures,
            ExampleSource(inputs, labels, examples, seed, not isinstance(run, RunWriter)),
            eps=eps,
            bins=bins,
            rho=rho,
            processes=processes,
            **curvature,
        )
        self.splits = self.measurer.splits
        self.stopwatch = Stopwatch()
        best = self.measurer.best
        self.sink = RowSink(self, run, config, resume is not None, processes.first, best)
        self.rows = self.sink.rows

        # Under a budget rows are far apart, and flushing a row early would add to its cost.
        flush_early = budget is None
        self.maker = make_row_maker(
            self.measurer, self.sink, self.stopwatch, notify, defer, weights, flush_early
        )
        self._begin(resume, start or {})

    @classmethod
    def of(cls, model: nn.Module, train: Data, val: Data | None = None, **options: Any) -> "Watch":
        """Watch a model on the loaders of its loop; the options are those of `Watch`.

        Without `loss` it is cross-entropy, the binary one if the model has one output.
        """
        return cls(model, options.pop("loss", None), train, val, **options)

    def _begin(self, resume: Mapping[str, Any] | None, start: Mapping[str, Any]) -> None:
        """Go on from a state, or measure step 0 if that is due; after an error free the folder."""
        try:
            if resume is not None:
                self.load_state_dict(resume)
            self.sink.begin(self.measurer, self.steps)
            if resume is None and (not self.spacing.at or 0 in self.spacing.at):
                self.measure(**start)
                self.maker.advance()  # now: the first one is slow, and must not delay later steps
        except BaseException:
            self.sink.abandon()
            raise

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Measure the end and release the folder; a loop that raised has failed."""
        if error is None:
            self.finish()
            self.close()
        else:
            status = "stopped" if isinstance(error, KeyboardInterrupt) else "failed"
            self.close(status, str(error) or type(error).__name__)

    @property
    def seconds(self) -> float:
        """Seconds since the start, without interruptions."""
        return self.stopwatch.seconds

    @property
    def last(self) -> Row:
        """The latest row."""
        return self.rows[-1] if self.rows else {}

    @property
    def diverged(self) -> bool:
        """Whether outputs or the training loss have stopped being finite."""
        return self.maker.diverged

    @diverged.setter
    def diverged(self, value: bool) -> None:
        self.maker.diverged = value

    def step(self, **numbers: Any) -> Row | None:
        """Count a step, and measure if it is due; `numbers` such as `lr=0.1` join the row."""
        self._check(numbers)
        self.steps += 1
        self.latest_numbers = numbers
        self.maker.flush_overdue()
        if self.maker.diverged:
            return None

        due = is_due(self.spacing, self.steps, self.stopwatch.spent, self.processes)
        return self.measure(**numbers) if due else None

    def measure(self, **numbers: Any) -> Row:
        """Measure now and keep the row, with a snapshot if one is due.

        A step has one row: if it was measured already, that row is returned. With `defer` the row
        is completed while training goes on (`toosure.watch.background`); `flush` waits for it.
        """
        self._check(numbers)
        if self.last_measured == self.steps or self.maker.advance():
            self.flush()
            return self.last

        snapshot_due = self.steps >= self.snapshot_from
        if snapshot_due:
            self.snapshot_from = next_snapshot(self.steps)
        self.before_row(self.steps)
        row: Row = {"step": self.steps, **numbers, **self.measurer.marks}
        if self.report is not None:
            self.maker.add_report(row, self.report)
        self.last_measured = self.steps
        self.maker.start(row, snapshot_due)
        return row

    def _check(self, numbers: Mapping[str, Any]) -> None:
        if self.closed:
            raise ValueError(
                "this watch was closed: go on with another, Watch(..., resume=watch.state_dict())"
            )
        check_numbers(numbers)

    def flush(self) -> None:
        """Finish every row that was deferred, and write it."""
        self.maker.flush()

    def finish(self, **numbers: Any) -> Row:
        """Measure the end, unless it was measured, and keep its snapshot.

        Without `numbers` the row has those of the last `step`. In its own folder the watch also
        keeps the validation logits (`predictions.npz`).
        """
        if not self.diverged and self.last_measured != self.steps:
            self.measure(**self.latest_numbers | numbers)
        self.flush()
        self.maker.end()
        with self.measurer.joint.measuring():
            self.sink.finish(None if self.diverged else self.splits.get("val"))
        return self.last

    def close(self, status: str = "ended", message: str = "") -> None:
        """Release the folder now, not only when the watch is deleted or the process ends."""
        try:
            if not self.closed:
                self.flush()
        finally:
            self.maker.close()
            self.closed = True
            self.sink.close(status, message)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a resumed watch needs, as tensors and plain types."""
        self.flush()
        return {
            "steps": self.steps,
            "measured": self.last_measured,
            "snapshot_from": self.snapshot_from,
            **self.stopwatch.state_dict(),
            "measure": list(self.measures),
            "splits": list(self.splits),
            "examples": hashes_in(self.measurer.notes),
            "last": json_ready(self.last),
            "numbers": json_ready(self.latest_numbers),
            "rows": self.sink.sync(),
            **self.measurer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to where `state` was taken; later rows of the folder are dropped."""
        check_same_watch(state, self.measures, tuple(self.splits), self.measurer.notes)
        self.sink.check_rows(state.get("rows", {}), state["measured"])

        self.maker.discard()
        self.steps = state["steps"]
        self.last_measured = state["measured"]
        self.snapshot_from = state["snapshot_from"]
        self.latest_numbers = state.get("numbers", {})
        self.stopwatch.rewind(state["seconds"], state["measuring"], state["cost"])
        self.measurer.load_state_dict(state)
        self.sink.rewind(self.last_measured, state.get("last", {}))
