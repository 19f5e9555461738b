"""The first process of a run (rank 0) writes its folder and sends the others what it read."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np

from toosure.config import RunConfig
from toosure.processes import Processes
from toosure.runs import Run, RunError, RunWriter
from toosure.runs.files import write_json
from toosure.runs.storage import local_folder
from toosure.sentences import first_line
from toosure.train.checkpoint import load_checkpoint

Checkpoint = tuple[dict[str, Any] | None, str]  # what `load_checkpoint` returns


class NullWriter(RunWriter):
    """Stand in for the writer in all processes but the first, and write nothing."""

    def __init__(self, path: Path, outcome: dict[str, Any] | None = None) -> None:
        self.path = local_folder(path)
        self.stored = None
        self.lock = None
        self.rows = None
        self.received = outcome or {}

    @property
    def outcome(self) -> dict[str, Any]:
        """The status that the first process read."""
        return self.received

    def set_status(self, status: str, step: int, message: str = "") -> None:
        pass

    def write_environment(self, environment: Mapping[str, Any]) -> None:
        pass

    def cut_back(self, step: int) -> None:
        pass

    def append(self, row: Mapping[str, Any]) -> None:
        pass

    def sync_rows(self) -> dict[str, Any]:
        return {}

    def write_snapshot(self, step: int, arrays: Mapping[str, np.ndarray]) -> None:
        pass

    def write_file(self, name: str, write: Callable[[BinaryIO], Any]) -> None:
        pass

    def append_to_file(self, name: str, data: bytes) -> None:
        pass


def open_run(config: RunConfig, out: Path, processes: Processes) -> RunWriter:
    """Open the folder in the first process, and send the others the status of the run there."""
    check_same_run(config, processes)
    path = out / config.name
    writer: RunWriter | None = None
    problem = ""
    outcome: dict[str, Any] = {}

    if processes.first:
        try:
            writer = RunWriter(path, asdict(config))
            outcome = writer.outcome
        except ValueError as error:  # a RunError, or a file that cannot be read
            problem = str(error)
            if writer is not None:
                writer.close()
            if processes.count == 1:
                raise

    # A problem is sent too: otherwise the others would wait for the first.
    with exit_if_unreachable(processes):
        problem, outcome = processes.broadcast((problem, outcome))
    if problem:
        raise RunError(problem)
    return writer or NullWriter(path, outcome)


def check_same_run(config: RunConfig, processes: Processes) -> None:
    """Raise unless all processes were asked for the same run."""
    with exit_if_unreachable(processes):
        name = processes.broadcast(config.name)
    if name != config.name:
        raise SystemExit(f"process {processes.rank} was asked for another run: {config.name}")


def broadcast_checkpoint(folder: Path, processes: Processes) -> Checkpoint:
    """Load the last checkpoint in the first process, and send it to the others."""
    answer: Checkpoint | RunError = (None, "")
    if processes.first:
        try:
            answer = load_checkpoint(folder, with_rows=True)
        except RunError as error:
            answer = error

    answer = processes.broadcast(answer)
    if isinstance(answer, RunError):
        raise answer
    return answer


def closed_run(writer: RunWriter, processes: Processes) -> Run:
    """Return the run, once the first process has written how it ended.

    A machine that does not see the folder gets only a status file, so that its sweep can continue.
    """
    with exit_if_unreachable(processes):
        outcome = processes.broadcast(writer.outcome)

    status = writer.path / "status.json"
    if isinstance(writer, NullWriter) and not status.is_file():
        status.parent.mkdir(parents=True, exist_ok=True)
        write_json(status, outcome)
    return Run(writer.path)


def raise_or_exit(error: Exception, processes: Processes) -> NoReturn:
    """Raise the error if all processes have it; else exit, because the others wait for this one."""
    if processes.count == 1 or (not isinstance(error, RunError) and processes.all_failed()):
        raise error
    raise exit_with(first_line(error), processes) from error


def exit_with(reason: str, processes: Processes) -> SystemExit:
    """Return the exception that ends this process, with a hint how to continue."""
    return SystemExit(
        f"process {processes.rank} of {processes.count} ends: {reason}. "
        "Repeat the command to go on from the last checkpoint"
    )


@contextmanager
def exit_if_unreachable(processes: Processes) -> Iterator[None]:
    """End this process if another cannot be reached: no run continues without it."""
    try:
        yield
    except RuntimeError as error:  # raised by torch.distributed
        raise exit_with("another has ended or does not answer", processes) from error
