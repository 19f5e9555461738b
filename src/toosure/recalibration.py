"""Recalibrate predictions: choose a calibrator, and judge it on rows it was not fitted on."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from torch import Tensor

from toosure.evaluate import Estimate
from toosure.evaluate.class_one import OF_CLASS_ONE, class_one_view
from toosure.evaluate.estimates import ece_change, estimate_of
from toosure.evaluate.evaluation import Resampling, chance_of, check_level_and_bins, estimate
from toosure.evaluate.log_zero import labels_at_zero
from toosure.evaluate.matching_rows import names_differ
from toosure.evaluate.paired import ece_change_over_groups
from toosure.evaluate.recalibrated import METRICS, Recalibration, Side
from toosure.metrics.binned import reliability_from_confidence
from toosure.metrics.mean_interval import mean_over_groups, student_interval
from toosure.metrics.scores import nll_rows
from toosure.posthoc import CALIBRATORS, Calibrator, Choice, choose
from toosure.posthoc.calibrator_inputs import Outputs, without_log_zero
from toosure.posthoc.same_rows import fingerprints, shared_rows
from toosure.posthoc.select import Makers, Trial, cross_fitted, stratified_folds
from toosure.predictions import Predictions, from_logits, from_probs
from toosure.words import parse

GROUP_SAMPLES = 2000  # resamples of groups for the interval of a mean


def recalibrate(
    fit: Predictions,
    judge: Predictions | None = None,
    method: str = "auto",
    folds: int = 5,
    bins: int = 15,
    level: float = 0.95,
    seed: int = 0,
    on_trial: Callable[[Trial], None] = lambda trial: None,
) -> Recalibration:
    """Choose a calibrator on `fit` by held-out NLL and judge it on `judge`, never the same rows.

    Without `judge` each row is judged by a calibrator fitted on the other folds. `method` is "auto"
    or a word such as "temperature:criterion=ece"; `on_trial` is called with each trial as it ends.
    Rows of one sequence or image are held out and resampled together.

    >>> import torch
    >>> logits = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
    >>> recalibrate(from_logits(5 * logits, logits.argmax(1).roll(1)), method="temperature").n
    300
    """
    check_level_and_bins(level, bins)
    logits, labels = rows_of(fit)
    if judge is not None:
        check_apart(fit, judge)

    tried = makers(method)
    if judge is not None and one_group(fit):  # rows choose: others judge
        fit = replace(fit, groups=None)
    folds = possible_folds(folds, fit)
    choice = choose(logits, labels, tried, folds, seed, on_trial, fit.groups)
    if method != "auto":
        choice = requested_choice(choice, tried, fit, seed, needs_folds=judge is None)

    choice.calibrator.class_names = fit.names

    before = fit if judge is None else judge
    outputs = choice.held_out if judge is None else choice.calibrator(rows_of(judge)[0])
    after = with_logits(before, outputs)

    bootstrap: Resampling = {"level": level, "seed": seed, "samples": 1000}
    hits_gained = after.correct.double() - before.correct.double()
    judged_after = judged_view(after)
    chance = chance_of(judged_after, bins, "right", {**bootstrap, "level": 0.95})
    top_gap = None
    if before.binary:
        top_gap = mean_change(gap_rows(after), level, before.groups, seed)

    return Recalibration(
        source=fit.source,
        judged_on="" if judge is None else judge.source,
        rows=fit.n,
        n=before.n,
        bins=bins,
        level=level,
        choice=choice,
        before=measured_side(before, bins, bootstrap),
        after=measured_side(after, bins, bootstrap),
        change=nll_change(before, after, level, seed),
        ece_change=change_of_ece(before, after, bins, bootstrap),
        accuracy_change=mean_change(hits_gained, level, before.groups, seed),
        gap_after=mean_change(gap_rows(judged_after), level, before.groups, seed),
        chance=chance.ends[1],
        class_one=before.binary,
        top_gap_after=top_gap,
        classes=logits.shape[1],
        zeros=labels_at_zero(before),
    )


def with_logits(predictions: Predictions, logits: Tensor) -> Predictions:
    """Return predictions with calibrated logits: of the same rows, with the same labels."""
    return replace(
        from_logits(logits, rows_of(predictions)[1]),
        source=predictions.source,
        binary=predictions.binary,
        groups=predictions.groups,
    )


def judged_view(predictions: Predictions) -> Predictions:
    """Return what diagrams and binned errors judge: P(class 1) of a binary classifier."""
    return class_one_view(predictions) if predictions.binary else predictions


def gap_rows(predictions: Predictions) -> Tensor:
    """Return confidence minus whether it is right, (N,)."""
    return predictions.confidence.double() - predictions.correct.double()


def makers(method: str) -> dict[str, Callable[[], Calibrator]]:
    """Return the calibrators to try: all, or the one that was asked for."""
    if method == "auto":
        return dict(CALIBRATORS)
    word = parse("calibrator", method)
    if not isinstance(word.build(), Calibrator):
        raise ValueError(f"{method} makes no calibrator: derive it from toosure.posthoc.Calibrator")
    return {str(word): partial(word.build)}


def one_group(predictions: Predictions) -> bool:
    """Whether all rows belong to one sequence or image."""
    return predictions.groups is not None and len(predictions.groups.unique()) < 2


def possible_folds(folds: int, fit: Predictions) -> int:
    """Return the number of folds: at most the number of sequences or images."""
    if one_group(fit):
        raise ValueError("all rows are of one sequence or image: a calibrator needs two at least")
    return folds if fit.groups is None else min(folds, len(fit.groups.unique()))


def requested_choice(
    choice: Choice, tried: Makers, fit: Predictions, seed: int, needs_folds: bool
) -> Choice:
    """Take the requested calibrator, even if none would be better.

    If other rows judge it, folds that could not be made do not matter.
    """
    name, make = next(iter(tried.items()))
    if choice.name == name:
        return choice

    logits, labels = rows_of(fit)
    trial = next(each for each in choice.trials if each.name == name)
    held_out = choice.held_out
    if needs_folds:
        if trial.nll is None:
            raise ValueError(trial.note)
        same = fingerprints(logits, labels) if fit.groups is None else fit.groups
        parts = stratified_folds(labels, choice.folds, seed, same)
        held_out, _ = cross_fitted(make, logits, labels, parts)
    calibrator = make().fit_quietly(logits, labels)
    return choice._replace(name=name, calibrator=calibrator, held_out=held_out)


def rows_of(predictions: Predictions) -> tuple[Tensor, Tensor]:
    """Return logits and labels; raise if there are only confidences."""
    if predictions.logits is None or predictions.labels is None:
        raise ValueError(
            f"{predictions.source or 'these predictions'}: holds confidences only; "
            "a calibrator needs the logits or probabilities of every class"
        )
    return predictions.logits, predictions.labels


def calibrated(calibrator: Calibrator, predictions: Predictions) -> Predictions:
    """Apply a fitted calibrator to predictions: return its probabilities with the same labels.

    >>> from toosure.posthoc import Identity
    >>> rows = from_logits([[2.0, 0.0], [0.0, 1.0]], [0, 0])
    >>> [round(p, 3) for p in calibrated(Identity(), rows).probs[:, 0].tolist()]
    [0.881, 0.269]
    """
    logits, labels = rows_of(predictions)
    if calibrator.needs_every_class:  # others treat all classes alike
        check_same_classes(calibrator.class_names, predictions, "the calibrator")
    calibrator.check_outputs(logits, kind_of_outputs(predictions))
    try:
        outputs: Tensor = calibrator(logits.double())
    except ValueError as error:
        raise ValueError(f"{predictions.source or 'these predictions'}: {error}") from error

    probs = from_probs(outputs.softmax(1), labels)
    return replace(
        probs,
        names=predictions.names,
        source=predictions.source,
        binary=predictions.binary,
        groups=predictions.groups,
        column=predictions.column,
        extras=predictions.extras,
        layout=predictions.layout,
    )


def measured_side(predictions: Predictions, bins: int, bootstrap: Resampling) -> Side:
    """Measure predictions. No metric can be below 0, so no interval goes below 0."""
    judged = judged_view(predictions)
    estimates = {}
    for name in METRICS:
        source = judged if name in OF_CLASS_ONE else predictions
        value = estimate(name, source, bins, "right", bootstrap)
        bounded = value if value.low is None else value._replace(low=max(0.0, value.low))
        estimates[name] = bounded

    table = reliability_from_confidence(
        judged.confidence, judged.correct, bins, level=bootstrap["level"]
    )
    return Side(estimates, table)


def nll_change(before: Predictions, after: Predictions, level: float, seed: int) -> Estimate:
    """Return the mean change of the rows' NLL, with the interval of the paired differences."""
    old, new = (without_log_zero(rows_of(each)[0].double()) for each in (before, after))
    labels = rows_of(before)[1]
    return mean_change(nll_rows(new, labels) - nll_rows(old, labels), level, before.groups, seed)


def change_of_ece(
    before: Predictions, after: Predictions, bins: int, bootstrap: Resampling
) -> Estimate:
    """Return the change of the ECE, with rows or whole groups resampled in pairs."""
    if before.groups is None:
        return ece_change(judged_view(before), judged_view(after), bins, **bootstrap)
    return ece_change_over_groups(before, after, bins, **bootstrap)


def mean_change(change: Tensor, level: float, groups: Tensor | None, seed: int) -> Estimate:
    """Return the mean of rows' changes with its interval; a single row has none.

    The interval is Student's t, or by resampled groups if rows come in groups.
    """
    if groups is None:
        return estimate_of(student_interval(change, level))
    return estimate_of(mean_over_groups(change, groups, level, seed, GROUP_SAMPLES))


def kind_of_outputs(predictions: Predictions) -> Outputs:
    """Return what a file of predictions held: logits or probabilities."""
    return "logits" if predictions.probs is None else "probs"


def check_same_classes(names: Sequence[str], predictions: Predictions, what: str) -> None:
    """Raise if classes are named or ordered differently from the fit."""
    if names_differ(names, predictions.names):
        raise ValueError(
            f"{what} was fitted on the classes {', '.join(names)}, in this order, and "
            f"{predictions.source or 'these predictions'} has {', '.join(predictions.names)}: "
            "bring its columns into the same order, and give the classes the same names"
        )


def check_apart(fit: Predictions, judge: Predictions) -> None:
    """Refuse to judge a calibrator on the rows that it is fitted on."""
    logits, labels = rows_of(fit)
    others, other_labels = rows_of(judge)
    if logits.shape[1] != others.shape[1]:
        raise ValueError(
            f"{judge.source} has {others.shape[1]} classes and {fit.source} has {logits.shape[1]}"
        )

    check_same_classes(fit.names, judge, fit.source or "the calibrator")
    shared = shared_rows((logits, labels), (others, other_labels))
    if shared:
        raise ValueError(
            f"{shared:,} of {judge.n:,} rows of {judge.source} are also rows of {fit.source}: a "
            "calibrator must not be judged on the rows it is fitted on; give other rows, or no "
            "second file, and folds will be held out"
        )
