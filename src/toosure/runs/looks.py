"""Write and read the looks of a run's controller: every one of them; rows may be far apart."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from toosure.finite import json_ready
from toosure.runs.row_reader import Columns, Row, RowReader
from toosure.runs.run import Run
from toosure.runs.write import RunWriter

LOOKS_FILE = "looks.jsonl"


def write_looks(writer: RunWriter, looks: Iterable[Row]) -> None:
    """Write the looks so far, a line each, in place of those that are there."""
    lines = b"".join(map(line_of, looks))
    writer.write_file(LOOKS_FILE, lambda file: file.write(lines))


def append_look(writer: RunWriter, look: Row) -> None:
    """Append a look."""
    writer.append_to_file(LOOKS_FILE, line_of(look))


def line_of(look: Row) -> bytes:
    return json.dumps(json_ready(look)).encode() + b"\n"


@dataclass(frozen=True)
class RunOfLooks:
    """A run with the looks of its controller in place of its rows."""

    id: str
    name: str
    config: dict[str, Any]
    columns: Columns


def with_looks(run: Run) -> Run | RunOfLooks:
    """Return a run's looks, and its rows after the last one; the run itself if it kept none.

    Rows after the last look say when the actuator was held for the end of a run.
    """
    reader = RowReader(run.path / LOOKS_FILE, run.follow_links)
    reader.refresh()
    if not reader.count:
        return run

    looks = reader.columns
    rows = run.columns
    later = rows["step"] > looks["step"][-1]
    keys = [key for key in {**looks, **rows} if key == "step" or key.startswith("control/")]
    columns = {
        key: np.concatenate([values_of(looks, key), values_of(rows, key)[later]]) for key in keys
    }
    return RunOfLooks(run.id, run.name, run.config, columns)


def values_of(columns: Columns, key: str) -> np.ndarray:
    """Return a column; NaN in every row if there is none."""
    return columns.get(key, np.full(len(columns["step"]), np.nan))
