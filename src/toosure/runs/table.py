"""Many runs as one table: filter by what was asked or found, and export every row."""

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from toosure.runs.read import Run

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
CONDITION = re.compile(r"\s*([^<>=!\s]+)\s*(<=|>=|!=|=|<|>)\s*(.+?)\s*")


def summary(run: Run) -> dict[str, Any]:
    """Return a run as one flat record: name, status, its config, its last row."""
    return {"run": run.name, "status": run.status, **run.config, **run.last}


def select(runs: Iterable[Run], where: Sequence[str] = ()) -> list[Run]:
    """Keep the runs for which every condition holds, such as "val/ece<0.05" or "seed=0".

    The left side is a key of `summary`; a comparison with a number needs a number there, and
    `=` on text asks whether it occurs in it: "optimizer=sgd" keeps sgd:lr=0.1 too.
    """
    conditions = [parse_condition(text) for text in where]
    return [run for run in runs if all(holds(summary(run)) for holds in conditions)]


def parse_condition(text: str) -> Callable[[dict[str, Any]], bool]:
    """Read a condition into a test of a summary."""
    match = CONDITION.fullmatch(text)
    if not match:
        raise ValueError(f'a condition reads like "val/ece<0.05" or "seed=0"; got {text!r}')
    key, sign, wanted = match.groups()

    def holds(record: dict[str, Any]) -> bool:
        found = record.get(key)
        number = as_number(wanted)
        if number is not None and isinstance(found, int | float):
            return COMPARE[sign](found, number)
        if sign in ("=", "!="):
            return (found is not None and wanted in str(found)) == (sign == "=")
        return False

    return holds


def as_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def export(runs: Sequence[Run], path: str | Path) -> int:
    """Write every row of every run to a .parquet or .csv file; return how many.

    The columns are `run`, `status`, `config/...` and the keys of the rows.
    """
    path = Path(path)
    records = [record for run in runs for record in long_records(run)]
    if not records:
        raise ValueError("there are no rows to export")
    columns = list(dict.fromkeys(key for record in records for key in record))
    try:
        write_table(path, {c: [record.get(c) for record in records] for c in columns})
    except OSError as error:
        raise ValueError(f"{path}: cannot be written ({error.strerror or error})") from error
    return len(records)


def long_records(run: Run) -> Iterable[dict[str, Any]]:
    config = {f"config/{key}": as_cell(value) for key, value in run.config.items()}
    status = run.status
    for row in run.rows:
        yield {"run": run.name, "status": status, **config, **row}


def as_cell(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list) else value


def write_table(path: Path, columns: dict[str, list[Any]]) -> None:
    if path.suffix == ".csv":
        import csv

        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
        return
    if path.suffix != ".parquet":
        raise ValueError(f"{path}: name a .parquet or .csv file")
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ValueError(
            "writing .parquet needs pyarrow: pip install 'toosure[parquet]'"
        ) from error
    parquet.write_table(pyarrow.table(columns), path)
