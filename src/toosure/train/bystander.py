"""The processes of a run that do not write: they hear what the first one says of the folder."""

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
from toosure.train.checkpoint import load_checkpoint


class Bystander(RunWriter):
    """Stand where a writer stands, and write nothing: only the first process does."""

    def __init__(self, path: Path) -> None:
        self.path, self.lock, self.rows = path, None, None
        self.said: dict[str, Any] = {}

    @property
    def outcome(self) -> dict[str, Any]:
        return self.said

    def set_status(self, status: str, step: int, message: str = "") -> None:
        pass

    def write_environment(self, environment: Mapping[str, Any]) -> None:
        pass

    def cut_back(self, step: int) -> None:
        pass

    def append(self, row: Mapping[str, Any]) -> None:
        pass

    def write_snapshot(self, step: int, arrays: Mapping[str, np.ndarray]) -> None:
        pass

    def write_file(self, name: str, write: Callable[[BinaryIO], Any]) -> None:
        pass


def open_run(config: RunConfig, out: Path, processes: Processes) -> RunWriter:
    """Open the folder in the first process; the others learn how the run stands there."""
    check_alike(config, processes)
    path, writer, problem, outcome = out / config.name, None, "", {}
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
    with reaching(processes):
        problem, outcome = processes.broadcast((problem, outcome))
    if problem:
        raise RunError(problem)
    if writer is None:
        writer = Bystander(path)
        writer.said = outcome
    return writer


def check_alike(config: RunConfig, processes: Processes) -> None:
    """Raise unless all processes were asked for the same run."""
    with reaching(processes):
        told = processes.broadcast(config.name)
    if told != config.name:
        raise SystemExit(f"process {processes.rank} was asked for another run: {config.name}")


def told_checkpoint(folder: Path, processes: Processes) -> tuple[dict[str, Any] | None, str]:
    """Read the last checkpoint in the first process; the others are told."""
    found: Any = None
    if processes.first:
        try:
            found = load_checkpoint(folder)
        except RunError as error:
            found = error
    found = processes.broadcast(found)
    if isinstance(found, RunError):
        raise found
    return found


def closed_run(writer: RunWriter, processes: Processes) -> Run:
    """Return the run, once the first process has written how it ended.

    A machine that cannot see the folder keeps the status alone, so that a sweep can go on there.
    """
    with reaching(processes):
        outcome = processes.broadcast(writer.outcome)
    if isinstance(writer, Bystander) and not (writer.path / "status.json").is_file():
        writer.path.mkdir(parents=True, exist_ok=True)
        write_json(writer.path / "status.json", outcome)
    return Run(writer.path)


def give_up(error: Exception, processes: Processes) -> NoReturn:
    """End this process, since the others wait for it; where all failed alike, raise the error."""
    if processes.count == 1 or (not isinstance(error, RunError) and processes.all_failed()):
        raise error
    raise ending(in_a_line(error), processes) from error


def ending(reason: str, processes: Processes) -> SystemExit:
    return SystemExit(
        f"process {processes.rank} of {processes.count} ends: {reason}. "
        "Repeat the command to go on from the last checkpoint"
    )


@contextmanager
def reaching(processes: Processes) -> Iterator[None]:
    """Inside, one that cannot be reached ends this process: without it no run can go on."""
    try:
        yield
    except RuntimeError as error:  # what the group raises, as torch has it
        raise ending("another has ended or does not answer", processes) from error


def in_a_line(error: Exception) -> str:
    """Return what an error says first, or its name if it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0]
