"""The looks of a run's controller: every one of them, where rows may be far apart."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from toosure.runs.row_reader import Columns, RowReader
from toosure.runs.run import Run

LOOKS_FILE = "looks.jsonl"


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
