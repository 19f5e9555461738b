"""Where rows go: to a folder of the watch, to the folder of a training run, or to a list."""

import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from toosure.runs import RunError, RunWriter
from toosure.runs.environment import environment
from toosure.runs.row_reader import Row
from toosure.runs.rows_digest import begins_with
from toosure.watch.best import BestPredictions
from toosure.watch.split import WatchedSplit

if TYPE_CHECKING:
    from toosure.watch.measurer import Measurer


class RowSink:
    """Keep the rows of a watch, in a run folder if there is one.

    Given a path, the sink owns the folder: the first process writes it. It is closed at the latest
    when the watch is deleted or the process ends.
    """

    def __init__(
        self,
        watch: object,
        run: str | Path | RunWriter | None,
        config: Mapping[str, Any] | None,
        resuming: bool,
        first: bool,
        best: BestPredictions | None,
    ) -> None:
        self.rows: list[Row] = []  # the last one only, if a folder holds them
        self.best = best
        self.owns_folder = isinstance(run, str | Path)
        self.writer = run if isinstance(run, RunWriter) else None
        self._finalizer: weakref.finalize[..., Any] | None = None
        if isinstance(run, str | Path) and first:
            self.writer = own_writer(run, config, resuming)
            self._finalizer = weakref.finalize(watch, end_run, self.writer, self.rows, best)

    def fail_unless_closed(self, watch: object) -> None:
        """Mark the run as failed if the watch is deleted before it is closed."""
        if self._finalizer is not None and self.writer is not None and self._finalizer.detach():
            message = "training did not come to its end"
            self._finalizer = weakref.finalize(
                watch, end_run, self.writer, self.rows, self.best, "failed", message
            )

    def begin(self, measurer: "Measurer", step: int) -> None:
        """Note the environment, the loss, the examples and the status in an own folder."""
        if self._finalizer is not None and self.writer is not None:
            device = device_name(measurer.device)
            self.writer.write_environment(environment(device, **measurer.losses))
            self.writer.write_json("examples.json", measurer.notes)
            self.writer.set_status("running", step)

    def abandon(self) -> None:
        """Release a folder in which nothing was measured, so that the next try can use it."""
        if self._finalizer is not None and self.writer is not None:
            self._finalizer.detach()
            self.writer.close()

    def append(self, row: Row) -> None:
        """Keep a row."""
        if self.writer is not None:
            self.writer.append(row)
            self.rows[:] = [row]
        else:
            self.rows.append(row)

    def sync(self) -> dict[str, Any]:
        """Flush the rows to disk; return their count and hash, for a checkpoint."""
        if self.writer is None or self.writer.lock is None:
            return {}
        digest = self.writer.sync_rows()
        if self.owns_folder:  # else the training run uploads its checkpoint
            self.writer.upload()
        return digest

    def check_rows(self, digest: Mapping[str, Any], step: int) -> None:
        """Raise if an own folder no longer holds the rows before a state."""
        if self._finalizer is None or self.writer is None or not digest:
            return
        if not begins_with(self.writer.path / "metrics.jsonl", digest):
            raise RunError(
                f"{self.writer.path} no longer has the rows up to step {step} as they were when "
                "the state was taken (metrics.jsonl is missing, damaged or of another run): go on "
                "from the state of an earlier checkpoint, or name another folder"
            )

    def rewind(self, step: int, last: Row) -> None:
        """Drop the rows after a step, whose row was `last`."""
        earlier = [row for row in self.rows if row["step"] <= step]
        self.rows[:] = earlier or ([last] if last else [])
        if self.writer is not None:
            self.writer.cut_back(step)

    def finish(self, val: WatchedSplit | None) -> None:
        """Write the best predictions and, into an own folder, the validation logits."""
        if self.owns_folder and val is not None:
            write_predictions(self.writer, val)
        write_best(self.writer, self.best)

    def close(self, status: str, message: str) -> None:
        """Note in an own folder how the loop ended, and release it."""
        if self._finalizer is not None and self.writer is not None and self._finalizer.detach():
            end_run(self.writer, self.rows, self.best, status, message)


def own_writer(run: str | Path, config: Mapping[str, Any] | None, resuming: bool) -> RunWriter:
    """Open the folder; raise if it holds rows and the watch does not resume."""
    writer = RunWriter(run, config)
    if writer.has_rows and not resuming:
        writer.close()
        raise RunError(
            f"{run} holds a run already: name another folder; or keep watch.state_dict() in your "
            'checkpoint, and go on with Watch(..., resume=checkpoint["watch"])'
        )
    return writer


def end_run(
    writer: RunWriter,
    rows: list[Row],
    best: BestPredictions | None,
    status: str = "ended",
    message: str = "",
) -> None:
    """Note how a user's loop ended; called when its watch is deleted or the process ends."""
    last = rows[-1] if rows else {"step": 0}
    if last.get("diverged"):
        status = "diverged"
        message = "the outputs or the training loss are not finite"
    try:
        write_best(writer, best)
        writer.set_status(status, last["step"], message)
    finally:
        writer.close()


def write_best(writer: RunWriter | None, best: BestPredictions | None) -> None:
    """Write the predictions of the best step so far, if there is one."""
    if writer is not None and best is not None and best.arrays:
        writer.write_arrays("best.npz", best.named_arrays())


def write_predictions(writer: RunWriter | None, val: WatchedSplit) -> None:
    """Write the final logits of a user's loop, for `toosure evaluate` and `calibrate`.

    All processes compute the logits together; the process with the writer writes them.
    """
    arrays: dict[str, Any] = {
        "val_logits": val.logits().cpu().numpy(),
        "val_labels": val.host_y.numpy(),
        **val.group_arrays,
    }
    if writer is not None:
        writer.write_arrays("predictions.npz", arrays)


def device_name(device: torch.device) -> str:
    """Return the usual name of a device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
