"""What `toosure calibrate` kept in a run's folder: calibrators before and after, on test data."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toosure.finite import is_finite_number
from toosure.page.half_intervals import PlusMinus
from toosure.runs import Run
from toosure.runs.regular_files import printable

MAX_KEPT = 40  # calibrators of a run


@dataclass(frozen=True)
class KeptCalibrator:
    """One calibrator: ECE and NLL before and after with intervals (value, low, high), as shares."""

    name: str
    note: str
    n: int
    ece: tuple[float, float, float]
    ece_after: tuple[float, float, float]
    nll: float
    nll_after: float
    ece_change: PlusMinus
    accuracy_change: PlusMinus
    chance: float  # the ECE that a calibrated model shows at most in 97.5 % of such samples


def kept_calibrators(run: Run) -> list[KeptCalibrator]:
    """Return the calibrators of a run by their ECE, the lowest first; damaged ones are left out."""
    records = list(run.calibrations.items())[:MAX_KEPT]
    found = [kept_calibrator(name, record) for name, record in records]
    return sorted((each for each in found if each), key=lambda each: each.ece_after[0])


def kept_calibrator(name: str, record: object) -> KeptCalibrator | None:
    """Read one record; nothing where a number is missing."""
    try:
        assert isinstance(record, dict)
        return KeptCalibrator(
            name=printable(name),
            note=note_of(record),
            n=int(number(record["n"])),
            ece=estimate(record["before"], "ece"),
            ece_after=estimate(record["after"], "ece"),
            nll=estimate(record["before"], "nll")[0],
            nll_after=estimate(record["after"], "nll")[0],
            ece_change=difference(estimate(record, "ece_change")),
            accuracy_change=difference(estimate(record, "accuracy_change")),
            chance=number(record["chance"]),
        )
    except (AssertionError, KeyError, TypeError, ValueError):
        return None


def note_of(record: Mapping[str, Any]) -> str:
    """Return what to know of a calibrator; its ECE may be of something else than the run's own."""
    of = "ECE of P(class 1)" if record.get("of") == "class 1" else ""
    return printable("; ".join(filter(None, [of, str(record.get("note") or "")])))


def number(value: object) -> float:
    """Return a finite number, or raise."""
    if is_finite_number(value):
        return float(value)
    raise ValueError("no number")


def estimate(record: Mapping[str, Any], key: str) -> tuple[float, float, float]:
    """Return value, low and high; NaN for ends that are not there."""
    value, low, high = record[key]
    ends = [math.nan if end is None else number(end) for end in (low, high)]
    return number(value), ends[0], ends[1]


def difference(change: tuple[float, float, float]) -> PlusMinus:
    """Return a change with the half of its interval that lies towards 0: within it, it is chance.

    >>> difference((-0.03, -0.05, -0.02))
    PlusMinus(value=-0.03, half=0.01)
    """
    value, low, high = change
    half = high - value if value < 0 else value - low
    return PlusMinus(value, round(half, 12) if math.isfinite(half) else math.inf)
