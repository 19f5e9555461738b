"""Subgroups of the rows, each with its verdict and intervals that hold for all of them together."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from toosure.evaluate.class_one import class_one_view, is_of_class_one, judge_gaps
from toosure.evaluate.estimates import Estimate, single_level
from toosure.evaluate.evaluation import Resampling, estimate, gap_of
from toosure.predictions import Predictions, take_rows
from toosure.predictions.csv_files import is_number
from toosure.sentences import listed
from toosure.verdicts import judge_gap

MAX_GROUPS = 200
MAX_VALUES = 20  # a column of more distinct numbers is cut into quarters
EMPTY = "(empty)"  # the group of rows without a value
MAX_SAMPLES = 20_000
MIN_TAIL_REPLICAS = 10  # of the bootstrap, beyond each end of a widened interval


class Subgroup(NamedTuple):
    """The rows that share a value of a column."""

    name: str
    n: int
    accuracy: Estimate
    confidence: float  # mean
    gap: Estimate  # mean confidence minus accuracy; mean P(class 1) minus its frequency
    ece: Estimate
    kind: str  # "over", "under", "uneven", "fine" or "unclear"
    sentence: str
    top_gap: Estimate | None = None  # gap of the predicted class, if `gap` is for P(class 1)

    @property
    def frequency(self) -> float:
        """How often the prediction is right, or class 1 is true."""
        return self.confidence - self.gap.value

    @property
    def fault(self) -> str:
        """The fault of a group that is too sure or not sure enough, in a few words."""
        if self.sentence.startswith("P(class 1)"):
            return f"P(class 1) too {'high' if self.kind == 'over' else 'low'}"
        return f"{self.kind}-confident"


@dataclass(frozen=True)
class Subgroups:
    """All subgroups by one column."""

    column: str
    groups: tuple[Subgroup, ...]
    level: float  # at which all intervals hold together
    class_one: bool = False  # whether confidence, gap and ECE are for P(class 1)

    @property
    def sentence(self) -> str:
        """A sentence: which groups are not calibrated, and the correction for many groups."""
        off = [group for group in self.groups if group.kind in ("over", "under")]
        off.sort(key=lambda group: -abs(group.gap.value))  # the worst first
        named = listed(f"{group.name} ({group.fault})" for group in off)

        count = len(self.groups)
        result = f"{len(off)} of {count} groups by {self.column!r} are off: {named}"
        if not off:
            result = f"No group by {self.column!r} is shown to be over- or under-confident"
        both = ", of P(class 1) and of the predicted class," if self.class_one else ""
        single = single_level(self.level, count * (2 if self.class_one else 1))
        return (
            f"{result}. The {100 * self.level:g} % intervals{both} hold for all {count} groups "
            f"together (Bonferroni: each is taken at {100 * single:.4g} %)."
        )

    def as_json(self) -> dict[str, Any]:
        """Return the groups and what is said of them as plain values."""
        rows = [
            {
                "group": group.name,
                "n": group.n,
                "confidence": group.confidence,
                "accuracy": list(group.accuracy),
                "gap": list(group.gap),
                "ece": list(group.ece),
                "verdict": group.sentence,
                **({} if group.top_gap is None else {"top_gap": list(group.top_gap)}),
            }
            for group in self.groups
        ]

        subject = "class 1" if self.class_one else "the predicted class"
        together = {"level": self.level, "correction": "bonferroni", "of": subject}
        return {"column": self.column, **together, "groups": rows}


def subgroups(
    predictions: Predictions,
    by: str,
    bins: int = 15,
    edge: str = "right",
    level: float = 0.95,
    seed: int = 0,
    top_label: bool | None = None,
) -> Subgroups:
    """Evaluate the rows of each value of the column `by`, with a correction for many groups.

    A binary classifier is judged by P(class 1) and by the predicted class; with `top_label=True`
    by the predicted class alone.

    >>> from dataclasses import replace
    >>> from toosure.predictions import from_confidence
    >>> rows = from_confidence([0.9, 0.9, 0.9, 0.9], [True, True, False, False])
    >>> rows = replace(rows, extras={"site": np.array(["a", "a", "b", "b"])})
    >>> [(group.name, group.n) for group in subgroups(rows, "site").groups]
    [('a', 2), ('b', 2)]
    """
    members = members_of(predictions.extras, by)
    of_class_one = is_of_class_one(predictions, top_label)
    single = single_level(level, len(members) * (2 if of_class_one else 1))
    tail = (1 - single) / 2
    samples = min(MAX_SAMPLES, max(1000, math.ceil(MIN_TAIL_REPLICAS / tail)))
    bootstrap: Resampling = {"level": single, "seed": seed, "samples": samples}

    groups = []
    for name, rows in members.items():
        own = take_rows(predictions, rows)
        check_groups(own, f"{by} {name}")
        accuracy = estimate("accuracy", own, bins, edge, bootstrap)
        judged = class_one_view(own) if of_class_one else own
        gap = gap_of(judged, bootstrap)
        ece = estimate("ece", judged, bins, edge, bootstrap)
        confidence = float(judged.confidence.double().mean())

        top_gap = None
        if of_class_one:
            top_gap = gap_of(own, bootstrap)
            kind, sentence = judge_gaps(gap, top_gap, own.n)
        else:
            assert gap.low is not None and gap.high is not None
            kind, sentence = judge_gap(gap.value, gap.low, gap.high, own.n)
        groups.append(
            Subgroup(name, own.n, accuracy, confidence, gap, ece, kind, sentence, top_gap)
        )
    return Subgroups(by, tuple(groups), level, of_class_one)


def members_of(extras: Mapping[str, np.ndarray], by: str) -> dict[str, np.ndarray]:
    """Return the rows of each value of a column; many numbers are cut into quarters."""
    if by not in extras:
        there = ", ".join(extras) or "no column beside the predictions"
        raise ValueError(f"no column {by!r} to group by; there is {there}")

    values = extras[by]
    distinct, inverse = np.unique(values, return_inverse=True)
    numbers = numbers_of(values) if len(distinct) > MAX_VALUES else None
    if numbers is not None:
        return quarters(numbers)
    if len(distinct) > MAX_GROUPS:
        raise ValueError(
            f"column {by!r} has {len(distinct):,} values; at most {MAX_GROUPS} groups are "
            "possible: choose a coarser column"
        )
    is_float = values.dtype.kind == "f"
    names = [f"{value:g}" if is_float else str(value) for value in distinct]
    if len(set(names)) < len(names):  # 1000001 and 1000002
        names = [str(value) for value in distinct]
    empty = "nan" if is_float else ""  # the text "nan" is a group of its own
    names = [EMPTY if name == empty else name for name in names]
    return {name: np.flatnonzero(inverse == k) for k, name in enumerate(names)}


def numbers_of(values: np.ndarray) -> np.ndarray | None:
    """Return a column of numbers as floats, NaN where it is empty; None if it holds text.

    A column of a table that misses a value comes as text; text that misses none is meant as it is.
    """
    if values.dtype.kind in "if":
        return values.astype(np.float64)
    cells = values.astype(str).tolist()
    if "" not in cells or not all(cell == "" or is_number(cell) for cell in cells):
        return None
    return np.array([float(cell) if cell else math.nan for cell in cells])


def check_groups(own: Predictions, name: str) -> None:
    """Raise if all rows of a subgroup are in one group, since one group has no spread."""
    if own.groups is not None and not bool(own.groups.any()):
        raise ValueError(
            f"all rows of {name} are of one {own.group_name}, and an interval over groups needs "
            "at least two: choose a coarser column, or name no groups"
        )


def quarters(values: np.ndarray) -> dict[str, np.ndarray]:
    """Return the rows of each quarter of a column of numbers, by value, and those without one."""
    if np.isinf(values).any():
        raise ValueError("the column to group by holds infinity: drop such rows, or correct them")
    empty = np.isnan(values)
    edges = np.unique(np.quantile(values[~empty], [0, 0.25, 0.5, 0.75, 1]))
    place = np.clip(np.searchsorted(edges, values, side="left"), 1, len(edges) - 1)
    names = [f"{low:g} to {high:g}" for low, high in itertools.pairwise(edges)]
    members = {n: np.flatnonzero((place == k + 1) & ~empty) for k, n in enumerate(names)}
    return members | ({EMPTY: np.flatnonzero(empty)} if empty.any() else {})
