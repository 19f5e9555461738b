"""What an evaluation of one label per row holds."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from toosure.evaluate.class_gaps import ClassGaps
from toosure.evaluate.estimates import Estimate
from toosure.evaluate.log_zero import counted_zeros
from toosure.evaluate.per_class import ClassRow
from toosure.finite import json_ready
from toosure.metrics.binned import Reliability
from toosure.quantities import evaluation_groups

OF_VERDICT = ("accuracy", "ece")  # the verdict needs them


@dataclass(frozen=True)
class Evaluation:
    """The numbers of one set of predictions."""

    source: str
    kind: str
    n: int
    classes: int | None
    bins: int
    edge: str
    level: float
    metrics: dict[str, Estimate]
    left_out: dict[str, str]  # metric -> why it was not taken
    gap: Estimate  # mean confidence minus accuracy
    chance: Estimate  # the ECE that a calibrated model with these confidences shows
    table: Reliability
    per_class: tuple[ClassRow, ...]
    class_one: bool = False  # whether calibration errors, gap and table are for P(class 1)
    top_gap: Estimate | None = None  # gap of the predicted class, if `class_one`
    groups: int | None = None  # number of groups that were resampled instead of rows
    group_name: str = "group"
    class_gaps: ClassGaps | None = None  # of the predicted classes, if they are known
    zeros: int = 0  # labels with probability 0
    notes: tuple[str, ...] = ()  # sentences on labels that are not what the predictions expect

    @property
    def frequency(self) -> float:
        """How often the prediction is right; with `class_one`, how often class 1 is true."""
        return float(self.table.accuracy.nan_to_num() @ self.table.counts.double()) / self.n

    @property
    def judged(self) -> str:
        """What calibration errors and the gap measure if there are two classes; otherwise ""."""
        if self.classes != 2:
            return ""
        what = "P(class 1)" if self.class_one else "the predicted class"
        return f"Calibration errors and the gap are of {what}"

    def number(self, name: str) -> Estimate | None:
        """Return a number of the JSON with its interval: a metric, the gap, or `binary_brier`.

        `binary_brier` is scikit-learn's Brier score of two classes, half of `brier`.
        """
        if name == "gap":
            return self.gap
        if name != "binary_brier":
            return self.metrics.get(name)
        both = self.metrics.get("brier")
        if both is None or self.classes != 2:
            return None
        low, high = (end if end is None else end / 2 for end in both[1:])
        return Estimate(both.value / 2, low, high)

    @property
    def infinite(self) -> str:
        """Why the NLL is infinite; "" if it is not, or was not measured."""
        shown = self.zeros and "nll" in self.metrics
        return f"NLL is infinite: {counted_zeros(self.zeros)}." if shown else ""

    def omissions(self) -> list[str]:
        """Return why metrics were left out, one line per reason."""
        reasons = dict.fromkeys(self.left_out.values())
        named = {why: [n for n, w in self.left_out.items() if w == why] for why in reasons}
        return [f"Left out: {', '.join(names)} ({why})." for why, names in named.items()]

    def as_json(self) -> dict[str, Any]:
        """Return plain values by metric name; None where infinite, undefined or left out."""
        values = {name: json_ready(self.metrics[name].value) for name in self.metrics}
        intervals = {
            name: json_ready([each.low, each.high])
            for name, each in self.metrics.items()
            if json_ready(each.low) is not None
        }
        counts: dict[str, Any] = {
            "n": self.n,
            "classes": self.classes,
            "bins": self.bins,
            "edge": self.edge,
        }

        both = dict.fromkeys(self.left_out) | values
        ordered = {name: both[name] for name in metric_keys() if name in both}
        if self.classes == 2:
            counts |= {"of": "class 1" if self.class_one else "the predicted class"}
        if self.class_one:
            counts |= {"frequency": self.frequency}
        if (score := self.number("binary_brier")) is not None:
            counts |= {"binary_brier": score.value}
        if self.groups is not None:
            counts |= {"groups": self.groups}
        if self.class_gaps is not None:
            counts |= {"class_gaps": self.class_gaps.as_json()}
        if self.notes:
            counts |= {"notes": list(self.notes)}
        return ordered | counts | {"intervals": {"level": self.level} | intervals}


def metric_keys() -> list[str]:
    """Return the metrics of an evaluation, in the order of their groups."""
    return [key for keys in evaluation_groups().values() for key in keys]


def wanted_keys(wanted: Collection[str] | None) -> list[str]:
    """Return the metrics to measure, in their order; raise for a name that is no metric."""
    keys = metric_keys()
    if wanted is None:
        return keys
    wanted = [wanted] if isinstance(wanted, str) else wanted
    for key in wanted:
        if key not in keys:
            raise ValueError(f"no metric {key!r}; there are {', '.join(keys)}")
    return [key for key in keys if key in (*wanted, *OF_VERDICT)]
