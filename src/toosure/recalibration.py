"""Recalibrate predictions: choose a calibrator, and judge it on rows it was not fitted on."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toosure.evaluate import estimate
from toosure.evaluate.estimates import Estimate
from toosure.metrics.binned import Reliability, reliability_from_confidence
from toosure.metrics.scores import nll_rows
from toosure.posthoc import CALIBRATORS, Calibrator, Choice, choose
from toosure.posthoc.calibrator import without_log_zero
from toosure.predictions import Predictions, from_logits
from toosure.words import parse

METRICS = ("nll", "brier", "accuracy", "ece", "adaptive_ece", "classwise_ece")
SHARED = 0.01  # of the judged rows may also be rows of the fit, by chance


@dataclass(frozen=True)
class Side:
    """How predictions are, before or after: each metric with its interval, and the table."""

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

    @property
    def held_out(self) -> str:
        """Say which rows it was judged on."""
        folds = (
            f"{self.n:,} rows of {self.source}, each held out in one of {self.choice.folds} folds"
        )
        return f"{self.n:,} rows of {self.judged_on}" if self.judged_on else folds

    @property
    def sentence(self) -> str:
        """Say in one sentence what the calibrator does."""
        nll = [side.metrics["nll"].value for side in (self.before, self.after)]
        span = f"{self.change.low:+.4f} to {self.change.high:+.4f}".replace("-", "−")
        numbers = f"NLL {nll[0]:.4f} to {nll[1]:.4f}, change {span} at {100 * self.level:g} %"
        if self.choice.name == "uncalibrated":
            return "No calibrator helps: the probabilities stay as they are"
        if self.change.high is not None and self.change.high < 0:
            return f"{described(self.choice)} helps: {numbers}"
        if self.change.low is not None and self.change.low > 0:
            return f"{described(self.choice)} does harm: {numbers}"
        return f"{described(self.choice)} makes no difference that these rows show: {numbers}"

    def as_json(self) -> dict[str, Any]:
        """Return plain values: the choice, the trials, and before and after with intervals."""
        sides = {"before": self.before.metrics, "after": self.after.metrics}
        trials = [trial._asdict() for trial in self.choice.trials]
        found: dict[str, Any] = {"method": self.choice.name, "note": self.choice.calibrator.note}
        found |= {"rows": self.rows, "n": self.n, "judged_on": self.held_out, "level": self.level}
        both = {side: {k: finite(v) for k, v in values.items()} for side, values in sides.items()}
        return found | both | {"nll_change": finite(self.change), "trials": trials}


def finite(values: Estimate) -> list[float | None]:
    """Return value, low, high; None where there is none or it is not finite."""
    return [v if v is not None and np.isfinite(v) else None for v in values]


def described(choice: Choice) -> str:
    """Name the calibrator, with its temperature where it has one."""
    temperature = getattr(choice.calibrator, "temperature", None)
    return choice.name + (f" (T = {float(temperature):.4g})" if temperature is not None else "")


def recalibrate(
    fit: Predictions,
    judge: Predictions | None = None,
    method: str = "auto",
    folds: int = 5,
    bins: int = 15,
    level: float = 0.95,
    seed: int = 0,
) -> Recalibration:
    """Choose a calibrator on `fit` by held-out NLL and judge it on `judge`, never the same rows.

    Without `judge` each row is judged by a calibrator fitted on the other folds. `method` is
    "auto" or a word such as "temperature:criterion=ece".

    >>> logits = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
    >>> recalibrate(from_logits(5 * logits, logits.argmax(1).roll(1)), method="temperature").n
    300
    """
    if not 0 < level < 1:
        raise ValueError(f"the level of intervals must lie between 0 and 1; got {level:g}")
    logits, labels = rows_of(fit)
    if judge is not None:
        check_apart(fit, judge)
    choice = choose(logits, labels, makers(method), folds, seed)
    if method != "auto":
        choice = only(choice, method, logits, labels, folds, seed)
    before = fit if judge is None else judge
    outputs = choice.held_out if judge is None else choice.calibrator(rows_of(judge)[0])
    after = replace(from_logits(outputs, rows_of(before)[1]), source=before.source)
    options: dict[str, Any] = {"level": level, "seed": seed, "samples": 1000}
    sides = [side(each, bins, options) for each in (before, after)]
    return Recalibration(
        source=fit.source,
        judged_on="" if judge is None else judge.source,
        rows=fit.n,
        n=before.n,
        bins=bins,
        level=level,
        choice=choice,
        before=sides[0],
        after=sides[1],
        change=nll_change(before, after, level),
    )


def makers(method: str) -> dict[str, Callable[[], Calibrator]]:
    """Return the calibrators to try: all, or the one that was asked for."""
    if method == "auto":
        return dict(CALIBRATORS)
    word = parse("calibrator", method)
    return {str(word): partial(word.build)}


def only(
    choice: Choice, method: str, logits: Tensor, labels: Tensor, folds: int, seed: int
) -> Choice:
    """Take the calibrator that was asked for, also where none would have been better."""
    name, make = next(iter(makers(method).items()))
    trial = next(each for each in choice.trials if each.name == name)
    if trial.nll is None:
        raise ValueError(trial.note)
    if choice.name == name:
        return choice
    from toosure.posthoc.select import cross_fitted, stratified_folds

    held_out, _ = cross_fitted(make, logits, labels, stratified_folds(labels, folds, seed))
    calibrator = make().fit_quietly(logits, labels)
    return choice._replace(name=name, calibrator=calibrator, held_out=held_out)


def rows_of(predictions: Predictions) -> tuple[Tensor, Tensor]:
    """Return logits and labels, or say that confidences are not enough."""
    if predictions.logits is None or predictions.labels is None:
        raise ValueError(
            f"{predictions.source or 'these predictions'}: holds confidences only; "
            "a calibrator needs the logits or probabilities of every class"
        )
    return predictions.logits, predictions.labels


def side(predictions: Predictions, bins: int, options: dict[str, Any]) -> Side:
    """Measure predictions."""
    found = {name: estimate(name, predictions, bins, "right", options) for name in METRICS}
    table = reliability_from_confidence(
        predictions.confidence, predictions.correct, bins, level=options["level"]
    )
    return Side(found, table)


def nll_change(before: Predictions, after: Predictions, level: float) -> Estimate:
    """Return the mean change of the rows' NLL, with the interval of the paired differences."""
    old, new = (without_log_zero(rows_of(each)[0].double()) for each in (before, after))
    labels = rows_of(before)[1]
    change = nll_rows(new, labels) - nll_rows(old, labels)
    z = float(torch.special.ndtri(torch.tensor(0.5 + level / 2, dtype=torch.float64)))
    half = z * float(change.std()) / len(change) ** 0.5
    return Estimate(float(change.mean()), float(change.mean()) - half, float(change.mean()) + half)


def check_apart(fit: Predictions, judge: Predictions) -> None:
    """Refuse to judge a calibrator on the rows that it is fitted on."""
    (logits, labels), (others, other_labels) = rows_of(fit), rows_of(judge)
    if logits.shape[1] != others.shape[1]:
        raise ValueError(
            f"{judge.source} has {others.shape[1]} classes and {fit.source} has {logits.shape[1]}"
        )
    same = logits.shape == others.shape and torch.equal(logits.float(), others.float())
    shared = len(labels) if same else rows_in_both((logits, labels), (others, other_labels))
    if shared > SHARED * judge.n:
        raise ValueError(
            f"{shared:,} of {judge.n:,} rows of {judge.source} are also rows of {fit.source}: a "
            "calibrator must not be judged on the rows it is fitted on; give other rows, or no "
            "second file, and folds will be held out"
        )


def rows_in_both(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> int:
    """Count rows that are in both, of those that are in each only once.

    Rounded probabilities of few classes repeat by chance; such rows say nothing.
    """
    once = []
    for logits, labels in (first, second):
        rows = np.concatenate([logits.float().numpy(), labels[:, None].float().numpy()], 1)
        hashed = np.ascontiguousarray(rows).view(f"V{rows.shape[1] * 4}").ravel()
        found, counts = np.unique([hash(row.tobytes()) for row in hashed], return_counts=True)
        once.append(found[counts == 1])
    return len(np.intersect1d(*once))
