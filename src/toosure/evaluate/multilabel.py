"""Evaluate independent binary outputs: every label, all pooled, and a verdict that names the worst.

`metrics.multilabel` measures; here the numbers become an evaluation with sentences and JSON.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from toosure.evaluate.estimates import Estimate, estimate_of
from toosure.metrics.binned import Reliability
from toosure.metrics.inputs import ArrayLike
from toosure.metrics.interval_ends import Interval
from toosure.metrics.multilabel import (
    LabelCalibration,
    as_multilabel,
    multilabel_calibration,
    pooled_table,
)
from toosure.sentences import listed
from toosure.verdicts import MAX_HALF_WIDTH, Verdict, plural, signed

MAX_NAMED = 5  # labels that the verdict names


class LabelRow(NamedTuple):
    """One label of an evaluation."""

    name: str
    samples: int
    frequency: float
    probability: float
    gap: Estimate
    ece: Estimate
    smece: Estimate
    brier: Estimate  # of one column, mean (p - y)^2
    nll: Estimate
    adjusted_p: float
    fault: str  # "too high", "too low", "uneven", or empty


@dataclass(frozen=True)
class MultilabelEvaluation:
    """The numbers of independent labels: each label, and all entries pooled."""

    source: str
    n: int
    bins: int
    edge: str
    level: float
    labels: tuple[LabelRow, ...]
    pooled: dict[str, Estimate]  # gap, ece, smece, brier, nll
    table: Reliability  # of all entries
    worst: tuple[LabelRow, ...]  # the labels with a fault, largest ECE first

    @property
    def verdict(self) -> Verdict:
        """The labels that chance does not explain, and the reasons."""
        count = len(self.labels)
        reasons = (pooled_sentence(self), correction_sentence(self))
        if self.worst:
            subject = f"{len(self.worst)} of {count} {plural(count, 'label')}"
            verb = "is" if len(self.worst) == 1 else "are"
            sentence = f"{subject} {verb} miscalibrated: {worst_named(self.worst)}"
            return Verdict(direction(self.worst), sentence, reasons)

        if self.pooled["gap"].half <= MAX_HALF_WIDTH:
            return Verdict("fine", f"No label of {count} is miscalibrated beyond chance", reasons)
        return Verdict("unclear", f"Cannot tell with {self.n:,} {plural(self.n, 'row')}", reasons)

    def number(self, name: str) -> Estimate | None:
        """Return a number of all labels pooled, with its interval."""
        return self.pooled.get(name)

    def as_json(self) -> dict[str, Any]:
        """Return plain values: the verdict, the pooled measures and every label."""
        return {
            "kind": "multilabel",
            "verdict": self.verdict.sentence,
            "n": self.n,
            "labels": len(self.labels),
            "bins": self.bins,
            "edge": self.edge,
            "level": self.level,
            "pooled": {name: each.as_json() for name, each in self.pooled.items()},
            "worst": [label.name for label in self.worst],
            "per_label": [
                {k: v.as_json() if isinstance(v, Estimate) else v for k, v in row._asdict().items()}
                for row in self.labels
            ],
        }


def evaluate_multilabel(
    logits: ArrayLike | None,
    targets: ArrayLike | None,
    probs: ArrayLike | None,
    bins: int,
    edge: str,
    ignore_index: int | None,
    names: tuple[str, ...],
    level: float,
    seed: int,
    samples: int,
) -> MultilabelEvaluation:
    """Measure (N, K) independent outputs with targets (N, K)."""
    result = multilabel_calibration(
        logits, targets, bins, edge, level, seed, samples, ignore_index, names, probs=probs
    )
    pairs = as_multilabel(logits, targets, probs, ignore_index)
    rows = {label.name: row_of(label) for label in result.labels}

    return MultilabelEvaluation(
        source="",
        n=len(pairs.probs),
        bins=bins,
        edge=edge,
        level=level,
        labels=tuple(rows.values()),
        pooled={name: estimate_of(each) for name, each in result.pooled.items()},
        table=pooled_table(pairs, bins, edge, level),
        worst=tuple(rows[label.name] for label in result.worst),
    )


def row_of(label: LabelCalibration) -> LabelRow:
    """Return a label with plain numbers, field by field."""
    fields: dict[str, Any] = label._asdict()
    for name, value in fields.items():
        if isinstance(value, Interval):
            fields[name] = estimate_of(value)
    return LabelRow(**fields)


def worst_named(worst: tuple[LabelRow, ...]) -> str:
    """Name the worst labels, each with what is wrong.

    >>> zero = Estimate(0.0)
    >>> measures = (Estimate(0.1), Estimate(0.1), zero, zero, zero)
    >>> row = LabelRow("dog", 9, 0.1, 0.2, *measures, adjusted_p=0.01, fault="too high")
    >>> worst_named((row,))
    'dog (too high by 10.0 points)'
    """
    named = []
    for row in worst:
        size = f"by {100 * abs(row.gap.value):.1f} points"
        if row.fault == "uneven":
            size = f"with an ECE of {100 * row.ece.value:.1f} points"
        named.append(f"{row.name} ({row.fault} {size})")
    return listed(named, MAX_NAMED)


def direction(worst: tuple[LabelRow, ...]) -> str:
    """Return "over" if all faults are too high, "under" if too low, otherwise "uneven"."""
    faults = {row.fault for row in worst}
    if faults == {"too high"}:
        return "over"
    return "under" if faults == {"too low"} else "uneven"


def pooled_sentence(result: MultilabelEvaluation) -> str:
    """Return a sentence on gap and ECE of all entries together."""
    gap = result.pooled["gap"]
    ece = result.pooled["ece"]
    interval = ""
    if gap.low is not None and gap.high is not None:
        interval = f" ({100 * result.level:g} % interval {signed(gap.low)} to {signed(gap.high)})"
    return (
        f"Over all {len(result.labels)} labels of {result.n:,} rows, the mean probability is "
        f"{signed(gap.value)} points off the frequency{interval}, and the pooled ECE is "
        f"{100 * ece.value:.1f} points; whole rows were resampled."
    )


def correction_sentence(result: MultilabelEvaluation) -> str:
    """Return a sentence on the correction for many labels."""
    return (
        "A label is named where its gap or its ECE is larger than the largest that chance gives "
        f"among {len(result.labels)} calibrated labels in {100 * result.level:g} % of draws."
    )
