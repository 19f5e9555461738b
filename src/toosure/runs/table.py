"""Many runs as one table: filter by settings or results, and export every row."""

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toosure.runs.run import Run
from toosure.sentences import did_you_mean

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
CONDITION = re.compile(r"\s*([^<>=!\s]+)\s*(<=|>=|==|!=|=|<|>)\s*(.+?)\s*")

ONE_EACH = ": give each condition a --where of its own"


def summary(run: Run) -> dict[str, Any]:
    """Return a run as one flat record: name, status, its config, its last row."""
    return {"run": run.name, "status": run.status, **run.config, **run.last}


def select(runs: Iterable[Run], where: Sequence[str] = ()) -> list[Run]:
    """Keep the runs for which every condition holds, such as "val/ece<0.05" or "seed=0".

    The left side is a key of `summary`. <, <=, > and >= compare numbers. On text `=` asks whether
    the text contains the right side ("optimizer=sgd" keeps sgd:lr=0.1, and bulksgd), `==` whether
    it is the whole text or the name of the word; `none` matches values that are not set. A key that
    no run has is an error, so that a typo is noticed.
    """
    conditions = [Condition.read(text) for text in where]
    records = [(run, summary(run)) for run in runs]
    for condition in conditions:
        condition.check([record for _, record in records])
    return [run for run, record in records if all(c.holds(record) for c in conditions)]


@dataclass(frozen=True)
class Condition:
    """Hold a key of a summary, a comparison and what to compare with."""

    key: str
    sign: str
    wanted: str

    @classmethod
    def read(cls, text: str) -> "Condition":
        """Read "val/ece<0.05"; quotes around the right side are removed."""
        match = CONDITION.fullmatch(text)
        if not match:
            raise ValueError(f'a condition reads like "val/ece<0.05" or "seed=0"; got {text!r}')
        key, sign, wanted = match.groups()
        if len(wanted) > 1 and wanted[0] == wanted[-1] and wanted[0] in "'\"":
            wanted = wanted[1:-1]
        if sign[0] in "<>" and as_number(wanted) is None:
            raise ValueError(f"a number must follow {key}{sign}; got {wanted!r}{ONE_EACH}")
        return cls(key, sign, wanted)

    def check(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Raise if the condition does not apply to these runs."""
        if not records:
            return
        known = sorted({key for record in records for key in record})
        if self.key not in known:
            hint = did_you_mean(self.key, known)
            raise ValueError(f"no run has {self.key!r} in its config or last row{hint}")
        values = [v for r in records if (v := r.get(self.key)) is not None]
        comparable = as_number(self.wanted) is not None or self.wanted.lower() == "none"
        if values and not comparable and all(is_number(value) for value in values):
            raise ValueError(f"{self.key} is a number; got {self.wanted!r}{ONE_EACH}")

    def holds(self, record: Mapping[str, Any]) -> bool:
        """Whether a run's summary meets the condition."""
        value = record.get(self.key)
        number = as_number(self.wanted)
        if number is not None and is_number(value):
            return COMPARE[self.sign](value, number)
        if self.sign[0] in "<>":
            return False
        return self.matches(value) != (self.sign == "!=")

    def matches(self, value: object) -> bool:
        """Whether a value matches, when compared as text."""
        if value is None:
            return self.wanted.lower() == "none"
        if isinstance(value, bool):
            return str(value).lower() == self.wanted.lower()
        text = str(value)
        if self.sign == "==":
            return self.wanted in (text, text.partition(":")[0])
        return self.wanted in text


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def as_number(text: str) -> float | None:
    try:
        return None if math.isnan(float(text)) else float(text)
    except ValueError:
        return None


def export(runs: Sequence[Run], path: str | Path) -> int:
    """Write every row of every run to a .parquet or .csv file; return how many.

    The columns are `run`, `status`, `config/...` and the keys of the rows.
    """
    path = Path(path)
    if path.suffix not in (".parquet", ".csv"):
        raise ValueError(f"{path}: name a .parquet or .csv file")
    records = [record for run in runs for record in long_records(run)]
    if not records:
        raise ValueError("there are no rows to export")

    columns = list(dict.fromkeys(key for record in records for key in record))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_table(path, {c: [record.get(c) for record in records] for c in columns})
    except OSError as error:
        raise ValueError(f"{path}: cannot be written ({error.strerror or error})") from error
    return len(records)


def long_records(run: Run) -> Iterable[dict[str, Any]]:
    """Yield each row of a run with its name, status and config."""
    config = {f"config/{key}": as_cell(value) for key, value in run.config.items()}
    status = run.status
    for row in run.rows:
        yield {"run": run.name, "status": status, **config, **row}


def as_cell(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list) else value


def write_table(path: Path, columns: dict[str, list[Any]]) -> None:
    """Write columns as .csv or .parquet, by the name of the file."""
    if path.suffix == ".csv":
        import csv

        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
        return
    from toosure.runs.parquet import write_parquet

    write_parquet(path, columns)
