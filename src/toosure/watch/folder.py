"""The run folder of a loop that is not ours: opened by its watch, and closed when that is gone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from toosure.runs import RunError, RunWriter
from toosure.runs.read import Row
from toosure.watch.best import Best
from toosure.watch.split import WatchedSplit


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
    writer: RunWriter, rows: list[Row], best: Best | None, status: str = "ended", message: str = ""
) -> None:
    """Note how a loop of one's own ended: called when its watch is gone or the process ends."""
    last = rows[-1] if rows else {"step": 0}
    if last.get("diverged"):
        status, message = "diverged", "the outputs or the training loss are not finite"
    try:
        keep_best(writer, best)
        writer.set_status(status, last["step"], message)
    finally:
        writer.close()


def keep_best(writer: RunWriter | None, best: Best | None) -> None:
    """Keep what was best so far, if anything was."""
    if writer is not None and best is not None and best.kept:
        writer.write_file("best.npz", best.write)


def keep_predictions(writer: RunWriter | None, val: WatchedSplit) -> None:
    """Keep what a loop of one's own ends with, for `toosure evaluate` and `calibrate`.

    All processes of a run find the logits together; the one with the writer keeps them.
    """
    arrays: dict[str, Any] = {"val_logits": val.logits().cpu().numpy()}
    arrays["val_labels"] = val.host_y.numpy()
    if writer is not None:
        writer.write_file("predictions.npz", lambda file: np.savez(file, **arrays))


def device_name(device: torch.device) -> str:
    """Name a device as people do."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
