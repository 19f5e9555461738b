"""What recalibration found: the calibrator, how it was chosen, the numbers before and after."""

import math
from dataclasses import dataclass
from typing import Any

from toosure.evaluate.class_one import class_one_is_named
from toosure.evaluate.estimates import Estimate
from toosure.evaluate.evaluation import MAX_CALL_NUMBERS
from toosure.evaluate.log_zero import counted_zeros
from toosure.metrics.binned import Reliability
from toosure.posthoc import Choice
from toosure.verdicts import size_of

METRICS = ("nll", "brier", "accuracy", "ece", "adaptive_ece", "classwise_ece")


@dataclass(frozen=True)
class Side:
    """Predictions before or after: each metric with its interval, and the table."""

    metrics: dict[str, Estimate]
    table: Reliability


@dataclass(frozen=True)
class Recalibration:
    """A calibrator, how it was chosen, and what it does to rows it was not fitted on."""

    source: str
    judged_on: str  # the test file; empty where folds of the source were held out
    rows: int  # of the fit
    n: int  # judged
    bins: int
    level: float
    choice: Choice
    before: Side
    after: Side
    change: Estimate  # of the NLL, paired by row
    ece_change: Estimate  # paired by row
    accuracy_change: Estimate  # paired by row
    gap_after: Estimate  # confidence minus accuracy, or P(class 1) minus its frequency
    chance: float  # a calibrated model has a lower ECE in 97.5 % of such samples
    class_one: bool = False  # whether tables and binned errors are for P(class 1)
    top_gap_after: Estimate | None = None  # gap of the predicted class, if `class_one`
    classes: int = 0
    zeros: int = 0  # labels with probability 0 before

    @property
    def held_out(self) -> str:
        """The rows that it was judged on, in words."""
        source = self.source or "the predictions"
        folds = f"{self.n:,} rows of {source}, each held out in one of {self.choice.folds} folds"
        return f"{self.n:,} rows of {self.judged_on}" if self.judged_on else folds

    @property
    def sentence(self) -> str:
        """One sentence: what the calibrator does to the NLL, and whether the ECE follows."""
        before = self.before.metrics["nll"].value
        after = self.after.metrics["nll"].value
        numbers = f"NLL {printed_loss(before)} before and {printed_loss(after)} after"
        if self.zeros:
            numbers += f" ({counted_zeros(self.zeros)}, read as 1e-38 for the change)"
        if self.change.low is not None:
            span = f"{self.change.low:+.4f} to {self.change.high:+.4f}".replace("-", "−")
            numbers += f", change {span} at {100 * self.level:g} %"

        if self.choice.name == "uncalibrated":
            return "No calibrator helps: the probabilities stay as they are"
        if self.change.high is not None and self.change.high < 0:
            return f"{described(self.choice)} {self.gain}: {numbers}"
        if self.change.low is not None and self.change.low > 0:
            return f"{described(self.choice)} does harm: {numbers}"
        return f"{described(self.choice)} makes no difference that these rows show: {numbers}"

    @property
    def gain(self) -> str:
        """What a calibrator that lowers the NLL is said to do."""
        low, high = self.ece_change.low, self.ece_change.high
        if low is not None and low > 0:
            return "lowers the NLL and raises the ECE"
        if high is not None and high >= 0:
            return "lowers the NLL, but not the ECE by more than chance"
        return "helps"

    @property
    def remaining(self) -> str:
        """How the probabilities are still wrong afterwards; "" where chance may explain the gap.

        For P(class 1), the larger of the two gaps is named, as in the verdict of `evaluate`.
        """
        gap = self.gap_after
        of_class = False
        if self.top_gap_after is not None:
            of_class = class_one_is_named(gap, self.top_gap_after)
            gap = gap if of_class else self.top_gap_after

        if gap.low is None or gap.high is None or gap.low <= 0 <= gap.high:
            return ""
        points = size_of(gap.value, gap.low, gap.high)
        if of_class:
            return f"P(class 1) is then too {'high' if gap.value > 0 else 'low'} by {points}"
        way = "over" if gap.value > 0 else "under"
        return f"They are then {way}-confident by {points} on average"

    @property
    def judged(self) -> str:
        """What binned errors measure if there are two classes; otherwise ""."""
        if self.classes != 2:
            return ""
        what = "P(class 1)" if self.class_one else "the predicted class"
        return f"ece and adaptive_ece are of {what}"

    @property
    def omissions(self) -> str:
        """Which metrics have no interval, and why; "" if all have one."""
        sides = (self.before.metrics, self.after.metrics)
        names = [name for name in METRICS if any(side[name].low is None for side in sides)]
        slow = [name for name in names if not (self.zeros and name == "nll")]
        why = "too few rows"
        if self.n * self.classes > MAX_CALL_NUMBERS:
            why = f"too slow to resample above {MAX_CALL_NUMBERS:,} numbers"
        sentences = [f"NLL is infinite: {counted_zeros(self.zeros)}."] if self.zeros else []
        sentences += [f"No interval: {', '.join(slow)} ({why})."] if slow else []
        return " ".join(sentences)

    def of_two_classes(self) -> dict[str, Any]:
        """Return what only two classes have: which one is judged, and the other gap."""
        if self.classes != 2:
            return {}
        if self.top_gap_after is None:
            return {"of": "the predicted class"}
        return {"of": "class 1", "top_gap_after": self.top_gap_after.as_json()}

    def as_json(self) -> dict[str, Any]:
        """Return plain values: the choice, the trials, and before and after with intervals."""
        sides = {"before": self.before.metrics, "after": self.after.metrics}
        trials = [trial._asdict() for trial in self.choice.trials]
        both = {side: {k: v.as_json() for k, v in values.items()} for side, values in sides.items()}

        return {
            "method": self.choice.name,
            "note": self.choice.calibrator.note,
            "rows": self.rows,
            "n": self.n,
            "judged_on": self.held_out,
            "level": self.level,
            **both,
            "nll_change": self.change.as_json(),
            "ece_change": self.ece_change.as_json(),
            "accuracy_change": self.accuracy_change.as_json(),
            "gap_after": self.gap_after.as_json(),
            **self.of_two_classes(),
            "chance": self.chance,
            "trials": trials,
        }


def printed_loss(value: float) -> str:
    """Return an NLL as text, to four digits; an infinite one by its sign."""
    return f"{value:.4f}" if math.isfinite(value) else "∞"


def described(choice: Choice) -> str:
    """Name the calibrator, with its temperature where it has one."""
    temperature = getattr(choice.calibrator, "temperature", None)
    return choice.name + (f" (T = {float(temperature):.4g})" if temperature is not None else "")
