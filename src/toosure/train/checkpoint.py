"""Checkpoints: everything a run needs to go on bit for bit, two kept, damaged ones stepped over."""

import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from toosure.runs import RunError, RunWriter

KEPT = 2
DAMAGE = (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError, zipfile.BadZipFile)


def save_checkpoint(writer: RunWriter, step: int, state: dict[str, Any]) -> None:
    """Write the state of a step beside and rename it; then drop all but the latest two."""

    def write(file: Any) -> None:
        try:
            torch.save(state, file)
        except RuntimeError as error:  # torch's word for a disk that takes no more
            raise OSError(None, str(error).splitlines()[0]) from error

    writer.write_file(f"checkpoints/{step}.pt", write)
    for old in checkpoints(writer.path)[:-KEPT]:
        old.unlink(missing_ok=True)


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoint files of a run folder, oldest first."""
    found = (folder / "checkpoints").glob("*.pt")
    return sorted((f for f in found if f.stem.isdigit()), key=lambda f: int(f.stem))


def load_checkpoint(folder: Path) -> tuple[dict[str, Any] | None, str]:
    """Return the latest checkpoint that can be read (None if there is none), and what to say.

    Only tensors and plain values are read (weights_only): a checkpoint cannot run code. They come
    to the CPU; whoever takes them moves them where they belong.
    """
    files = checkpoints(folder)
    damaged: list[str] = []
    for file in reversed(files):
        try:
            state = torch.load(file, map_location="cpu", weights_only=True)
            said = f"{', '.join(damaged)} cannot be read; " if damaged else ""
            return state, said
        except DAMAGE:
            damaged.append(str(file.relative_to(folder)))
    if files:
        raise RunError(
            f"{folder}: no checkpoint can be read ({', '.join(damaged)}). Nothing was changed; "
            "move the folder away to begin the run again"
        )
    return None, ""


def random_state(device: torch.device) -> dict[str, Any]:
    """Return the state of torch's own generators: the CPU's, and that of the run's GPU."""
    cuda = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Put torch's own generators back, wherever the run goes on."""
    torch.set_rng_state(state["cpu"].cpu())
    if device.type == "cuda" and state["cuda"]:
        torch.cuda.set_rng_state(state["cuda"][0].cpu(), device)
