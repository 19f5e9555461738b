"""Where rows go: to a folder of the watch's own, to one that another writes, or to a list."""

import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from toosure.runs import RunError, RunWriter
from toosure.runs.environment import environment
from toosure.runs.row_reader import Row
from toosure.runs.rows_digest import begins_with
from toosure.watch.best import BestPredictions
from toosure.watch.same_watch import Notes
from toosure.watch.split import WatchedSplit


class RowSink:
    """Keep the rows of a watch, in a run folder where there is one.

    Given a path, the sink owns the folder: the process of the first rank writes it, and it is
    closed at last when the watch is gone or the process ends.
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
        self.rows: list[Row] = []  # the last one only, where a folder holds them
        self.best = best
        self.owns_folder = isinstance(run, str | Path)
        self.writer = run if isinstance(run, RunWriter) else None
        self._finalizer: weakref.finalize[..., Any] | None = None
        if isinstance(run, str | Path) and first:
            self.writer = own_writer(run, config, resuming)
            self._finalizer = weakref.finalize(watch, end_run, self.writer, self.rows, best)

    def fail_unless_closed(self, watch: object) -> None:
        """Let the run be one that failed where nobody closes it before the watch is gone."""
        if self._finalizer is not None and self.writer is not None and self._finalizer.detach():
            message = "training did not come to its end"
            self._finalizer = weakref.finalize(
                watch, end_run, self.writer, self.rows, self.best, "failed", message
            )

    def begin(self, device: torch.device, step: int, notes: Notes) -> None:
        """Note in a folder of one's own where the run goes on, on what, and that it does."""
        if self._finalizer is not None and self.writer is not None:
            self.writer.write_environment(environment(device_name(device)))
            self.writer.write_json("examples.json", notes)
            self.writer.set_status("running", step)

    def abandon(self) -> None:
        """Let go of a folder in which nothing began, so that the next try has it."""
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
        """Bring the rows of a folder to the disk; return their count and hash, for a checkpoint."""
        if self.writer is None or self.writer.lock is None:
            return {}
        digest = self.writer.sync_rows()
        if self.owns_folder:  # else a checkpoint of the folder's own follows
            self.writer.upload()
        return digest

    def check_rows(self, digest: Mapping[str, Any], step: int) -> None:
        """Raise where the rows before a state are no longer in a folder of one's own."""
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
        """Write the best predictions and, in a folder of one's own, the validation logits."""
        if self.owns_folder and val is not None:
            write_predictions(self.writer, val)
        write_best(self.writer, self.best)

    def close(self, status: str, message: str) -> None:
        """Note how the loop ended, in a folder of one's own, and let go of it."""
        if self._finalizer is not None and self.writer is not None and self._finalizer.detach():
            end_run(self.writer, self.rows, self.best, status, message)


def own_writer(run: str | Path, config: Mapping[str, Any] | None, resuming: bool) -> RunWriter:
    """Open the folder, unless it holds rows that nobody asked to go on from."""
    writer = RunWriter(run, config)
    if writer.has_rows and not resuming:
        writer.close()
        raise RunError(
            f"{run} holds a run already: name another folder, or give resume=state, the "
            "state_dict of its watch from your checkpoint"
        )
    return writer


def end_run(
    writer: RunWriter,
    rows: list[Row],
    best: BestPredictions | None,
    status: str = "ended",
    message: str = "",
) -> None:
    """Note how a loop of one's own ended: called when its watch is gone or the process ends."""
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
    """Write what a loop of one's own ends with, for `toosure evaluate` and `calibrate`.

    All processes of a run compute the logits together; the one with the writer keeps them.
    """
    arrays: dict[str, Any] = {
        "val_logits": val.logits().cpu().numpy(),
        "val_labels": val.host_y.numpy(),
    }
    if writer is not None:
        writer.write_arrays("predictions.npz", arrays)


def device_name(device: torch.device) -> str:
    """Name a device as people do."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
