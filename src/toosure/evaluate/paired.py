"""Compare two models on the same rows: paired differences with intervals, and a verdict."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from toosure.evaluate.estimates import Estimate, both_intervals
from toosure.evaluate.evaluation import check_level_and_bins
from toosure.evaluate.log_zero import counted_zeros, labels_at_zero
from toosure.evaluate.matching_rows import check_same_classes, check_same_rows
from toosure.evaluate.paired_scores import PairedScore, judged, paired_scores
from toosure.finite import json_ready
from toosure.metrics.binned import (
    Reliability,
    equal_width_edges,
    error_of,
    reliability_from_confidence,
)
from toosure.metrics.group_draws import group_count, small_sample_factor
from toosure.metrics.grouped_bins import group_bin_sums, sums_and_replicas
from toosure.metrics.resampler import Resampler
from toosure.predictions import Predictions
from toosure.quantities import QUANTITIES
from toosure.verdicts import plural

MANY_ROWS = 20_000  # from here on fewer replicas: each costs a few milliseconds
FEW_SAMPLES = 400
MAX_NAME = 40  # characters of a name in a sentence


class Difference(NamedTuple):
    """One number of both files, and second minus first with its interval."""

    key: str
    first: float
    second: float
    change: Estimate

    @property
    def infinite(self) -> bool:
        """Whether it is infinite on one side or both, so that there is no change."""
        return not (math.isfinite(self.first) and math.isfinite(self.second))

    @property
    def direction(self) -> int:
        """1 if the second is better for sure, -1 if it is worse for sure, 0 if it is open."""
        if self.change.low is None or self.change.high is None:
            return 0
        sign = 1 if QUANTITIES[self.key].better == "higher" else -1
        if self.change.low > 0:
            return sign
        return -sign if self.change.high < 0 else 0


@dataclass(frozen=True)
class Comparison:
    """What two files say about the same rows."""

    first: str
    second: str
    n: int
    bins: int
    level: float
    differences: tuple[Difference, ...]
    left_out: str  # why some numbers are missing; empty if none is
    checked: str  # how it is known that the rows are the same
    tables: tuple[Reliability, Reliability]
    judged: str = ""  # what the ECE is of, where there are two classes
    class_one: bool = False  # whether calibration errors and tables are for P(class 1)
    groups: int | None = None  # number of groups that were resampled instead of rows

    @property
    def names(self) -> tuple[str, str]:
        """What the two are called in sentences and headings: "the first" where names are long."""
        if max(len(self.first), len(self.second)) > MAX_NAME:
            return "the first", "the second"
        return self.first, self.second

    @property
    def resampled(self) -> str:
        """What is resampled for the intervals: rows or whole groups."""
        return "rows" if self.groups is None else f"{self.groups:,} groups of rows"

    @property
    def sentence(self) -> str:
        """A sentence: which model is better in which numbers, and what is open."""
        first, second = self.names
        better = [d for d in self.differences if d.direction > 0]
        worse = [d for d in self.differences if d.direction < 0]
        open_ones = [d for d in self.differences if d.direction == 0 and not d.infinite]
        infinite = [d for d in self.differences if d.infinite]
        ending = f"; {listed_names(infinite)} is infinite and was not compared" if infinite else ""
        if not better and not worse:
            rows = f"{self.n:,} {plural(self.n, 'row')}"
            pair = f"{first} and {second}"
            where = f" in {listed_names(open_ones)}" if infinite else ""
            return f"{rows} show no difference between {pair}{where}{ending}"

        parts = [f"better in {listed_names(better)}"] if better else []
        parts += [f"worse in {listed_names(worse)}"] if worse else []
        verdict = f"{second} is {' and '.join(parts)}"
        remainder = f"; {listed_names(open_ones)}: no difference shown" if open_ones else ""
        return f"{verdict} than {first}{remainder}{ending}"

    @property
    def kind(self) -> str:
        """Return "better", "worse", "mixed" or "open", of the second file."""
        directions = {d.direction for d in self.differences} - {0}
        if len(directions) == 2:
            return "mixed"
        return {1: "better", -1: "worse"}[directions.pop()] if directions else "open"

    def as_json(self) -> dict[str, Any]:
        """Return plain values: each number of both, the change and its interval."""
        keys = ("first", "second", "change", "low", "high")
        rows = {
            d.key: dict(zip(keys, map(json_ready, (d.first, d.second, *d.change)), strict=True))
            for d in self.differences
        }
        about = {"first": self.first, "second": self.second, "n": self.n, "bins": self.bins}
        verdict = {"verdict": self.sentence, "kind": self.kind}
        of = {"of": "class 1" if self.class_one else "the predicted class"} if self.judged else {}
        if self.groups is not None:
            about |= {"groups": self.groups}
        return about | of | {"level": self.level, **verdict, "differences": rows}


def listed_names(differences: list[Difference]) -> str:
    """Name the numbers, as in a sentence."""
    short = [QUANTITIES[d.key].short for d in differences]
    return short[0] if len(short) == 1 else f"{', '.join(short[:-1])} and {short[-1]}"


def compare(
    first: Predictions,
    second: Predictions,
    bins: int = 15,
    level: float = 0.95,
    seed: int = 0,
    samples: int = 1000,
    on_progress: Callable[[int, int], None] = lambda done, of: None,
) -> Comparison:
    """Compare two models on the same rows: the numbers of the second minus the first.

    Rows are resampled in pairs, or whole groups where rows come in groups. `on_progress` is called
    with the number of replicas that are done and the number of all. The intervals of the changes of
    ECE and smECE hold both the "percentile" and the "basic" interval (see `both_intervals`).

    >>> from toosure.predictions import from_probs
    >>> sure = from_probs([[0.9, 0.1], [0.1, 0.9], [0.9, 0.1]], [0, 1, 1])
    >>> calm = from_probs([[0.7, 0.3], [0.3, 0.7], [0.7, 0.3]], [0, 1, 1])
    >>> [round(d.change.value, 3) for d in compare(sure, calm).differences if d.key == "ece"]
    [-0.2]
    """
    check_level_and_bins(level, bins)
    check_same_classes(first, second)
    checked = check_same_rows(first, second)
    if first.groups is None:  # the rows are the same, and one file may say more of them
        first = replace(first, groups=second.groups)
    scores, left_out = paired_scores(first, second, bins)
    left_out = left_out or infinite_losses(first, second)
    samples = min(samples, FEW_SAMPLES) if first.n > MANY_ROWS else samples

    replicas: dict[str, list[float]] = {score.key: [] for score in scores}
    for done, weights in enumerate(resampled_weights(first, seed, samples)):
        on_progress(done, samples)
        for score in scores:
            replicas[score.key].append(score.change(weights))

    views = judged(first, second)
    rows = [(side.confidence, side.correct) for side in views]
    tables = [reliability_from_confidence(*pair, bins, level=level) for pair in rows]
    return Comparison(
        first=first.source or "the first",
        second=second.source or "the second",
        n=first.n,
        bins=bins,
        level=level,
        differences=tuple(
            difference(each, replicas[each.key], level, first.groups) for each in scores
        ),
        left_out=left_out,
        checked=checked,
        tables=(tables[0], tables[1]),
        judged=what_is_judged(first, second),
        class_one=views[0] is not first,
        groups=None if first.groups is None else group_count(first.groups),
    )


def infinite_losses(first: Predictions, second: Predictions) -> str:
    """Return why the NLL is not compared, where it is infinite; otherwise ""."""
    sides = {first.source or "the first": first, second.source or "the second": second}
    zeros = {name: labels_at_zero(side) for name, side in sides.items()}
    infinite = [f"{counted_zeros(count)} in {name}" for name, count in zeros.items() if count]
    return f"NLL is infinite and not compared: {', '.join(infinite)}." if infinite else ""


def what_is_judged(first: Predictions, second: Predictions) -> str:
    """Return what ECE and smECE compare if there are two classes, and why; otherwise ""."""
    if first.classes != 2 or second.classes != 2:
        return ""
    if first.binary and second.binary:
        return "ECE and smECE are of P(class 1)"
    reason = ""
    if first.binary or second.binary:
        named = second.source or "the second" if first.binary else first.source or "the first"
        reason = f", since {named} holds both classes"
    return f"ECE and smECE are of the predicted class{reason}"


def resampled_weights(predictions: Predictions, seed: int, samples: int) -> Iterator[np.ndarray]:
    """Yield how often each row is drawn, (N,) float64, for every replica; groups stay together."""
    groups = None if predictions.groups is None else predictions.groups.cpu().numpy()
    units = predictions.n if groups is None else int(groups.max()) + 1
    for counts in Resampler(seed, samples).row_counts(units):
        drawn = counts.astype(np.float64)
        yield drawn if groups is None else drawn[groups]


def ece_change_over_groups(
    first: Predictions, second: Predictions, bins: int, level: float, seed: int, samples: int
) -> Estimate:
    """Return the change of the ECE, second minus first, as `compare` does, resampling groups.

    Sums over each group and bin are resampled, not rows, of which an image may have a million.
    """
    assert first.groups is not None
    values, replicas = [], []
    for side in judged(first, second):
        edges = equal_width_edges(bins, side.confidence)
        per_group = group_bin_sums(side.confidence, side.correct, first.groups, edges, "right")
        sums, drawn = sums_and_replicas(per_group, seed, samples)
        values.append(float(error_of(sums, 1)))
        replicas.append(error_of(drawn, 1))

    changes = (replicas[1] - replicas[0]).tolist()
    return change_of(values[1] - values[0], changes, level, first.groups, biased=True)


def difference(
    score: PairedScore, replicas: list[float], level: float, groups: Tensor | None
) -> Difference:
    """Return one number of both files and its change, with the interval of the replicas."""
    value = score.second - score.first
    change = Estimate(value)
    if np.isfinite(value) and len(replicas) >= 2 and score.rows >= 2:
        change = change_of(value, replicas, level, groups, score.biased)
    return Difference(score.key, score.first, score.second, change)


def change_of(
    value: float, replicas: list[float], level: float, groups: Tensor | None, biased: bool
) -> Estimate:
    """Return a change with the interval of its replicas, of which noise may make all larger.

    Replicas of few groups vary too little (`small_sample_factor`).
    """
    low, high = np.nanquantile(replicas, [0.5 - level / 2, 0.5 + level / 2])
    if groups is not None:
        factor = small_sample_factor(group_count(groups), level)
        low, high = (value + factor * (end - value) for end in (low, high))
    if biased:
        low, high = both_intervals(value, low, high)
    return Estimate(value, float(low), float(high))
