"""Checkpoints: everything a run needs to continue bit for bit; two are kept, should one be bad.

A checkpoint ends in a checksum of itself, and holds the count and hash of the rows before it.
"""

import pickle
import zipfile
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch

from toosure.data.seeds import RunStream, derive_seed
from toosure.processes import Processes
from toosure.runs import RunError, RunWriter
from toosure.runs.rows_digest import begins_with
from toosure.train.checksum import ChecksumWriter, is_intact

MAX_KEPT = 2
# What torch.load raises on a damaged file.
READ_ERRORS = (
    OSError,
    RuntimeError,
    EOFError,
    ValueError,
    pickle.UnpicklingError,
    zipfile.BadZipFile,
)


def save_checkpoint(writer: RunWriter, step: int, state: dict[str, Any]) -> None:
    """Write the state of a step atomically, then delete all checkpoints but the latest two.

    Those of later steps were stepped over when the run resumed, and are deleted as well.
    """

    def write(file: BinaryIO) -> None:
        checked = ChecksumWriter(file)
        try:
            torch.save(state, cast(BinaryIO, checked))
            checked.finish()
        except RuntimeError as error:  # raised by torch when the disk is full
            raise OSError(None, str(error).splitlines()[0]) from error

    writer.write_file(f"checkpoints/{step}.pt", write)
    files = checkpoints(writer.path)
    later = [file for file in files if int(file.stem) > step]
    usable = [file for file in files if int(file.stem) <= step]
    for old in later + usable[:-MAX_KEPT]:
        old.unlink(missing_ok=True)


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoint files of a run folder, oldest first."""
    files = (folder / "checkpoints").glob("*.pt")
    return sorted((f for f in files if f.stem.isdigit()), key=lambda f: int(f.stem))


def load_checkpoint(folder: Path, with_rows: bool = False) -> tuple[dict[str, Any] | None, str]:
    """Return the latest sound checkpoint (None if there is none), and a note on those passed over.

    One is passed over where it is damaged or, `with_rows`, where the rows before it are no longer
    there as they were: a run continued from it would lack them.
    """
    files = checkpoints(folder)
    passed_over: list[str] = []
    for file in reversed(files):
        name = file.relative_to(folder)
        state = read_checkpoint(file)
        if state is None:
            passed_over.append(f"{name} is damaged")
        elif with_rows and not has_its_rows(folder, state):
            passed_over.append(f"rows up to {name} are missing or damaged in metrics.jsonl")
        else:
            return state, "".join(f"{problem}; " for problem in passed_over)

    if files:
        raise RunError(
            f"{folder}: no checkpoint can be used ({'; '.join(passed_over)}). Nothing was changed; "
            "move the folder away to begin the run again"
        )
    return None, ""


def read_checkpoint(file: Path) -> dict[str, Any] | None:
    """Return the content of a checkpoint, or None if it is damaged.

    Its checksum is verified first. Only tensors and plain values are read (weights_only): a
    checkpoint cannot run code. Tensors are loaded onto the CPU; the caller moves them to the
    right device.
    """
    try:
        if not is_intact(file):
            return None
        state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    except READ_ERRORS:
        return None
    return state


def has_its_rows(folder: Path, state: dict[str, Any]) -> bool:
    """Whether the rows before a checkpoint are still in the folder as they were."""
    return begins_with(folder / "metrics.jsonl", state["watch"]["rows"])


def random_states(device: torch.device, processes: Processes) -> dict[str, Any]:
    """Return the random state of the first process, with those of the others inside."""
    first, *others = processes.everyones(random_state(device))
    return {**first, "others": others} if others else first


def set_random_states(
    state: dict[str, Any] | None, device: torch.device, rank: int, seed: int
) -> None:
    """Restore the random state of the process of a rank, by whose draws its share is trained.

    Ranks differ. One that the state does not know, as there were fewer processes or there is no
    state yet, draws by the seed.
    """
    others = [] if state is None else state.get("others", [])
    if rank == 0 and state is not None:
        set_random_state(state, device)
    elif 0 < rank <= len(others):
        set_random_state(others[rank - 1], device)
    elif rank > 0:
        torch.manual_seed(derive_seed(seed, RunStream.RANK, rank))


def random_state(device: torch.device) -> dict[str, Any]:
    """Return the state of torch's global generators: that of the CPU, and of the run's GPU."""
    cuda = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Restore torch's global generators, on whichever device the run continues."""
    torch.set_rng_state(state["cpu"].cpu())
    if device.type == "cuda" and state["cuda"]:
        torch.cuda.set_rng_state(state["cuda"][0].cpu(), device)


def state_of(part: object) -> dict[str, Any]:
    """Return the state of a part that has one."""
    return part.state_dict() if hasattr(part, "state_dict") else {}
