"""A theorem as a check: two sides, the slack between them, and a verdict with its reason."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from toosure.margins.margins import MarginSummary
from toosure.margins.robust import RobustMargin

EPS64 = 2.0**-52
HEADER: tuple[str, ...] = ("statement", "claim", "left", "right", "slack", "verdict")
UNDERFLOW = 1e-290  # a smaller number, times the factors of a bound, underflows to 0 in float64


@dataclass(frozen=True)
class Statement:
    """Hold one inequality, `left` <= `right`.

    `holds` is None where the statement does not apply, its assumption is unchecked, or a side
    is only estimated; `reason` then says why. A statement is `vacuous` where every model meets its
    bound (ECE <= 1, for example), and `right` is clamped there.
    """

    name: str
    claim: str
    left: float
    right: float
    vacuous: bool
    holds: bool | None
    reason: str = ""

    @property
    def slack(self) -> float:
        """How far the left side is below the right one."""
        return self.right - self.left


def exp(logarithm: float) -> float:
    """Return e^x, infinite where a float cannot hold it."""
    return math.inf if logarithm >= 709 else math.exp(logarithm)


def judge(
    name: str,
    claim: str,
    left: float,
    right: float,
    *,
    rounding: float,
    floor: float = 0.0,
    cap: float = math.inf,
    base: float = -math.inf,
    reason: str = "",
    applies: bool = True,
) -> Statement:
    """Compare two sides with `rounding` allowed relative to the larger, and `floor` absolutely.

    Sides that differ by less than 1e-290 count as equal: margins of 700 and more give such numbers.
    There is no verdict if the left side is larger by less than the allowance, and the allowance is
    larger than both sides.

    A right side at or above `cap`, which every model meets, is vacuous and clamped; a left side at
    or below `base` is vacuous.
    """
    vacuous = right >= cap or left <= base
    right = min(right, cap)
    if math.isnan(left) or math.isnan(right) or not applies:
        return Statement(name, claim, left, right, vacuous, None, reason or "not measured")

    size = max(abs(left), abs(right))
    allowed = floor + (rounding * size if math.isfinite(size) else 0.0)
    holds = left <= right + allowed + UNDERFLOW
    if holds and left > right + UNDERFLOW and allowed > size:
        return Statement(name, claim, left, right, vacuous, None, too_coarse(allowed))
    return Statement(name, claim, left, right, vacuous, holds, reason)


def too_coarse(allowed: float) -> str:
    """Return a reason: the rounding is larger than both sides."""
    return f"undecided: the rounding allowed, {allowed:.1e}, is more than both sides"


def side_problem(margin: RobustMargin, side: Literal["left", "right"]) -> str:
    """Return why margins prove nothing on a side of `<=` in Q = mean exp(-m); "" if they do.

    On the right Q must not be too small, so its margins must be lower bounds. On the left it must
    not be too large, so they must be upper bounds. Anything else is an estimate.
    """
    if side == "right":
        proves = margin.is_lower_bound
        needed = "lower bounds (certified)"
    else:
        proves = margin.is_upper_bound
        needed = "upper bounds (attacked)"
    if proves:
        return ""
    return f"estimate: {margin.kind} margins on the {side}, where only {needed} prove anything"


@dataclass(frozen=True)
class Certificate:
    """Hold every statement about one model and one data set; print it as a table."""

    statements: tuple[Statement, ...]
    n: int
    classes: int
    eps: float
    norm: str
    ece: float
    log_moments: dict[str, float] = field(default_factory=dict)
    margins: dict[str, MarginSummary] = field(default_factory=dict)
    robust: dict[str, RobustMargin] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Statement:
        """Return the statement of that name, such as `certificate["4.2 (i) lower"]`."""
        return statement_named(self.statements, name)

    @property
    def holds(self) -> bool:
        """Whether no statement failed."""
        return not any(s.holds is False for s in self.statements)

    def __str__(self) -> str:
        rows = [HEADER, *map(row_of, self.statements)]
        head = f"{self.n:,} samples, {self.classes} classes, {self.norm} radius {self.eps:g}"
        return "\n".join([head, *self.notes, "", *table(rows)])


def statement_named(statements: tuple[Statement, ...], name: str) -> Statement:
    """Return the statement of that name; a KeyError lists the names there are."""
    for statement in statements:
        if statement.name == name:
            return statement
    raise KeyError(f"{name!r}; there are {', '.join(s.name for s in statements)}")


def row_of(s: Statement) -> tuple[str, ...]:
    """Return a statement's row of the table."""
    verdict = {True: "holds", False: "FAILS", None: "-"}[s.holds]
    parts = [verdict, "vacuous" if s.vacuous and s.holds is not None else "", s.reason]
    numbers = (f"{v:.4g}" for v in (s.left, s.right, s.slack))
    return (s.name, s.claim, *numbers, "; ".join(p for p in parts if p))


def table(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Format rows as columns of plain text, with a rule below the first row."""
    rows = list(rows)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)] + [0]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return [lines[0], "-" * len(lines[0]), *lines[1:]]
