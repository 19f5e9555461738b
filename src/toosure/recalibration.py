"""Recalibrate predictions: choose a calibrator, and judge it on rows it was not fitted on."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from toosure.evaluate import Estimate
from toosure.evaluate.class_one import OF_CLASS_ONE, class_one_view
from toosure.evaluate.estimates import ece_change
from toosure.evaluate.evaluation import MAX_BINS, MAX_CALL_NUMBERS, estimate
from toosure.metrics.binned import Reliability, reliability_from_confidence
from toosure.metrics.scores import nll_rows
from toosure.posthoc import CALIBRATORS, Calibrator, Choice, choose
from toosure.posthoc.calibrator import without_log_zero
from toosure.posthoc.same_rows import fingerprints, shared_rows
from toosure.posthoc.select import Makers, Trial, cross_fitted, stratified_folds
from toosure.predictions import Predictions, from_logits, from_probs
from toosure.words import parse

METRICS = ("nll", "brier", "accuracy", "ece", "adaptive_ece", "classwise_ece")


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
    ece_change: Estimate  # paired by row
    class_one: bool = False  # whether tables and binned errors are those of P(class 1)

    @property
    def held_out(self) -> str:
        """Say which rows it was judged on."""
        source = self.source or "the predictions"
        folds = f"{self.n:,} rows of {source}, each held out in one of {self.choice.folds} folds"
        return f"{self.n:,} rows of {self.judged_on}" if self.judged_on else folds

    @property
    def sentence(self) -> str:
        """Say in one sentence what the calibrator does."""
        before = self.before.metrics["nll"].value
        after = self.after.metrics["nll"].value
        numbers = f"NLL {before:.4f} before and {after:.4f} after"
        if self.change.low is not None:
            span = f"{self.change.low:+.4f} to {self.change.high:+.4f}".replace("-", "−")
            numbers += f", change {span} at {100 * self.level:g} %"

        if self.choice.name == "uncalibrated":
            return "No calibrator helps: the probabilities stay as they are"
        if self.change.high is not None and self.change.high < 0:
            return f"{described(self.choice)} helps: {numbers}"
        if self.change.low is not None and self.change.low > 0:
            return f"{described(self.choice)} does harm: {numbers}"
        return f"{described(self.choice)} makes no difference that these rows show: {numbers}"

    @property
    def omissions(self) -> str:
        """Say which metrics have no interval, and why; empty where all have one."""
        sides = (self.before.metrics, self.after.metrics)
        names = [name for name in METRICS if any(side[name].low is None for side in sides)]
        why = f"too slow to resample above {MAX_CALL_NUMBERS:,} numbers"
        return f"No interval: {', '.join(names)} ({why})." if names else ""

    def as_json(self) -> dict[str, Any]:
        """Return plain values: the choice, the trials, and before and after with intervals."""
        sides = {"before": self.before.metrics, "after": self.after.metrics}
        trials = [trial._asdict() for trial in self.choice.trials]
        both = {side: {k: finite(v) for k, v in values.items()} for side, values in sides.items()}

        return {
            "method": self.choice.name,
            "note": self.choice.calibrator.note,
            "rows": self.rows,
            "n": self.n,
            "judged_on": self.held_out,
            "level": self.level,
            **both,
            "nll_change": finite(self.change),
            "ece_change": finite(self.ece_change),
            "trials": trials,
        }


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
    told: Callable[[Trial], None] = lambda trial: None,
) -> Recalibration:
    """Choose a calibrator on `fit` by held-out NLL and judge it on `judge`, never the same rows.

    Without `judge` each row is judged by a calibrator fitted on the other folds. `method` is
    "auto" or a word such as "temperature:criterion=ece"; `told` hears of each trial as it ends.

    >>> import torch
    >>> logits = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
    >>> recalibrate(from_logits(5 * logits, logits.argmax(1).roll(1)), method="temperature").n
    300
    """
    if not 0 < level < 1:
        raise ValueError(f"the level of intervals must lie between 0 and 1; got {level:g}")
    if not 1 <= bins <= MAX_BINS:
        raise ValueError(f"bins must be from 1 to {MAX_BINS:,}; got {bins}")
    logits, labels = rows_of(fit)
    if judge is not None:
        check_apart(fit, judge)

    tried = makers(method)
    choice = choose(logits, labels, tried, folds, seed, told)
    if method != "auto":
        choice = only(choice, tried, logits, labels, seed, needs_folds=judge is None)

    before = fit if judge is None else judge
    outputs = choice.held_out if judge is None else choice.calibrator(rows_of(judge)[0])
    after = replace(
        from_logits(outputs, rows_of(before)[1]), source=before.source, binary=before.binary
    )
    options: dict[str, Any] = {"level": level, "seed": seed, "samples": 1000}
    sides = [side(each, bins, options) for each in (before, after)]
    judged = (judged_view(before), judged_view(after))

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
        ece_change=ece_change(*judged, bins, **options),
        class_one=before.binary,
    )


def judged_view(predictions: Predictions) -> Predictions:
    """Return what diagrams and binned errors are of: P(class 1) of a binary classifier."""
    return class_one_view(predictions) if predictions.binary else predictions


def makers(method: str) -> dict[str, Callable[[], Calibrator]]:
    """Return the calibrators to try: all, or the one that was asked for."""
    if method == "auto":
        return dict(CALIBRATORS)
    word = parse("calibrator", method)
    if not isinstance(word.build(), Calibrator):
        raise ValueError(f"{method} makes no calibrator: derive it from toosure.posthoc.Calibrator")
    return {str(word): partial(word.build)}


def only(
    choice: Choice, tried: Makers, logits: Tensor, labels: Tensor, seed: int, needs_folds: bool
) -> Choice:
    """Take the calibrator that was asked for, also where none would have been better.

    Where other rows judge it, folds that could not be made do not matter.
    """
    name, make = next(iter(tried.items()))
    if choice.name == name:
        return choice

    trial = next(each for each in choice.trials if each.name == name)
    held_out = choice.held_out
    if needs_folds:
        if trial.nll is None:
            raise ValueError(trial.note)
        parts = stratified_folds(labels, choice.folds, seed, fingerprints(logits, labels))
        held_out, _ = cross_fitted(make, logits, labels, parts)
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


def calibrated(calibrator: Calibrator, predictions: Predictions) -> Predictions:
    """Return what a fitted calibrator makes of predictions: probabilities, and the same truth.

    >>> from toosure.posthoc import Identity
    >>> rows = from_logits([[2.0, 0.0], [0.0, 1.0]], [0, 0])
    >>> [round(p, 3) for p in calibrated(Identity(), rows).probs[:, 0].tolist()]
    [0.881, 0.269]
    """
    logits, labels = rows_of(predictions)
    try:
        outputs: Tensor = calibrator(logits.double())
    except RuntimeError as error:
        raise ValueError(
            f"the calibrator was fitted on another number of classes than the {logits.shape[1]} "
            f"of {predictions.source or 'these predictions'}"
        ) from error

    probs = from_probs(outputs.softmax(1), labels)
    return replace(
        probs,
        names=predictions.names,
        source=predictions.source,
        binary=predictions.binary,
        extras=predictions.extras,
    )


def side(predictions: Predictions, bins: int, options: dict[str, Any]) -> Side:
    """Measure predictions; none of the metrics can be below 0, and so no interval is."""
    judged = judged_view(predictions)
    estimates = {}
    for name in METRICS:
        source = judged if name in OF_CLASS_ONE else predictions
        value = estimate(name, source, bins, "right", options)
        bounded = value if value.low is None else value._replace(low=max(0.0, value.low))
        estimates[name] = bounded

    table = reliability_from_confidence(
        judged.confidence, judged.correct, bins, level=options["level"]
    )
    return Side(estimates, table)


def nll_change(before: Predictions, after: Predictions, level: float) -> Estimate:
    """Return the mean change of the rows' NLL, with Student's interval of the paired differences.

    A single row has none.
    """
    from scipy.stats import t as student

    old, new = (without_log_zero(rows_of(each)[0].double()) for each in (before, after))
    labels = rows_of(before)[1]
    change = nll_rows(new, labels) - nll_rows(old, labels)
    mean = float(change.mean())
    n = len(change)
    if n < 2:
        return Estimate(mean)
    half = float(student.ppf(0.5 + level / 2, n - 1)) * float(change.std()) / n**0.5
    return Estimate(mean, mean - half, mean + half)


def check_apart(fit: Predictions, judge: Predictions) -> None:
    """Refuse to judge a calibrator on the rows that it is fitted on."""
    logits, labels = rows_of(fit)
    others, other_labels = rows_of(judge)
    if logits.shape[1] != others.shape[1]:
        raise ValueError(
            f"{judge.source} has {others.shape[1]} classes and {fit.source} has {logits.shape[1]}"
        )

    shared = shared_rows((logits, labels), (others, other_labels))
    if shared:
        raise ValueError(
            f"{shared:,} of {judge.n:,} rows of {judge.source} are also rows of {fit.source}: a "
            "calibrator must not be judged on the rows it is fitted on; give other rows, or no "
            "second file, and folds will be held out"
        )
