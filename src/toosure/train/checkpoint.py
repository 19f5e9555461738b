"""Checkpoints: everything a run needs to continue bit for bit; two are kept, should one be bad."""

import pickle
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import torch

from toosure.runs import RunError, RunWriter

MAX_KEPT = 2
READ_ERRORS = (
    OSError,
    RuntimeError,
    EOFError,
    ValueError,
    pickle.UnpicklingError,
    zipfile.BadZipFile,
)  # what torch.load raises on a damaged file


def save_checkpoint(writer: RunWriter, step: int, state: dict[str, Any]) -> None:
    """Write the state of a step atomically, then delete all checkpoints but the latest two."""

    def write(file: BinaryIO) -> None:
        try:
            torch.save(state, file)
        except RuntimeError as error:  # raised by torch when the disk is full
            raise OSError(None, str(error).splitlines()[0]) from error

    writer.write_file(f"checkpoints/{step}.pt", write)
    for old in checkpoints(writer.path)[:-MAX_KEPT]:
        old.unlink(missing_ok=True)


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoint files of a run folder, oldest first."""
    files = (folder / "checkpoints").glob("*.pt")
    return sorted((f for f in files if f.stem.isdigit()), key=lambda f: int(f.stem))


def load_checkpoint(folder: Path) -> tuple[dict[str, Any] | None, str]:
    """Return the latest readable checkpoint (None if there is none), and a note on damaged ones.

    Only tensors and plain values are read (weights_only): a checkpoint cannot run code. Tensors
    are loaded onto the CPU; the caller moves them to the right device.
    """
    files = checkpoints(folder)
    damaged: list[str] = []
    for file in reversed(files):
        try:
            state = torch.load(file, map_location="cpu", weights_only=True)
        except READ_ERRORS:
            damaged.append(str(file.relative_to(folder)))
        else:
            note = f"{', '.join(damaged)} cannot be read; " if damaged else ""
            return state, note

    if files:
        raise RunError(
            f"{folder}: no checkpoint can be read ({', '.join(damaged)}). Nothing was changed; "
            "move the folder away to begin the run again"
        )
    return None, ""


def random_state(device: torch.device) -> dict[str, Any]:
    """Return the state of torch's global generators: that of the CPU, and of the run's GPU."""
    cuda = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Restore torch's global generators, on whichever device the run continues."""
    torch.set_rng_state(state["cpu"].cpu())
    if device.type == "cuda" and state["cuda"]:
        torch.cuda.set_rng_state(state["cuda"][0].cpu(), device)
