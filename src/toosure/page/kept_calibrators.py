"""Read what `toosure calibrate` kept in a run's folder: results before and after."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toosure.finite import finite_number
from toosure.page.half_intervals import PlusMinus, ValueInterval
from toosure.runs import Run
from toosure.runs.regular_files import printable

MAX_KEPT = 40  # calibrators of a run


@dataclass(frozen=True)
class KeptCalibrator:
    """One calibrator: ECE, as a share, and NLL before and after."""

    name: str
    note: str
    n: int
    ece: ValueInterval
    ece_after: ValueInterval
    nll: float
    nll_after: float
    ece_change: PlusMinus
    accuracy_change: PlusMinus
    chance: float  # the ECE that a calibrated model shows at most in 97.5 % of such samples


def kept_calibrators(run: Run) -> list[KeptCalibrator]:
    """Return the calibrators of a run by their ECE, the lowest first; damaged ones are left out."""
    records = list(run.calibrations.items())[:MAX_KEPT]
    calibrators = [kept_calibrator(name, record) for name, record in records]
    return sorted((each for each in calibrators if each), key=lambda each: each.ece_after.value)


def kept_calibrator(name: str, record: object) -> KeptCalibrator | None:
    """Read one record; None if a number is missing."""
    try:
        assert isinstance(record, dict)
        return KeptCalibrator(
            name=printable(name),
            note=note_of(record),
            n=int(finite_number(record["n"])),
            ece=read_interval(record["before"], "ece"),
            ece_after=read_interval(record["after"], "ece"),
            nll=read_interval(record["before"], "nll").value,
            nll_after=read_interval(record["after"], "nll").value,
            ece_change=read_interval(record, "ece_change").plus_minus,
            accuracy_change=read_interval(record, "accuracy_change").plus_minus,
            chance=finite_number(record["chance"]),
        )
    except (AssertionError, KeyError, TypeError, ValueError):
        return None


def note_of(record: Mapping[str, Any]) -> str:
    """Return a note on a calibrator; its ECE may be of P(class 1), unlike the run's own."""
    subject = "ECE of P(class 1)" if record.get("of") == "class 1" else ""
    return printable("; ".join(filter(None, [subject, str(record.get("note") or "")])))


def read_interval(record: Mapping[str, Any], key: str) -> ValueInterval:
    """Return value, low and high; NaN for ends that are not there."""
    value, low, high = record[key]
    ends = [math.nan if end is None else finite_number(end) for end in (low, high)]
    return ValueInterval(finite_number(value), ends[0], ends[1])
