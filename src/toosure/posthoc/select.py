"""Choose among calibrators by the NLL of rows that each was not fitted on."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from toosure.metrics.inputs import as_pair
from toosure.metrics.scores import nll_rows
from toosure.posthoc.calibrator import Calibrator, Identity

MOST = 2e7  # numbers up to which the slower ones are tried
WIDE = 50  # classes up to which a full matrix is tried
TIE = 1e-6  # of NLL: closer ones count as equal, and the first listed is taken
QUICK = ("uncalibrated", "temperature", "ensemble_temperature")
Makers = Mapping[str, Callable[[], Calibrator]]


class Trial(NamedTuple):
    """How one calibrator did on rows it was not fitted on."""

    name: str
    nll: float | None  # None where it could not be fitted
    change: float | None  # against no calibration, paired by row
    error: float | None  # standard error of the change
    note: str = ""


class Choice(NamedTuple):
    """The calibrator chosen, fitted on all rows, and how it was chosen."""

    name: str
    calibrator: Calibrator
    trials: tuple[Trial, ...]  # best first
    held_out: Tensor  # (N, C) each row's logits from a calibrator that was not fitted on it
    folds: int


def choose(logits: Any, labels: Any, makers: Makers, folds: int = 5, seed: int = 0) -> Choice:
    """Fit every calibrator on each set of all folds but one, and take the lowest NLL held out.

    No calibration takes part, as "uncalibrated". A calibrator that refuses the rows is left out
    with its reason. The winner is fitted again on all rows.

    >>> from toosure.posthoc import CALIBRATORS
    >>> generator = torch.Generator().manual_seed(0)
    >>> logits = 4 * torch.randn(1000, 3, generator=generator)
    >>> labels = torch.multinomial((logits / 2).softmax(1), 1, generator=generator).squeeze(1)
    >>> makers = {name: CALIBRATORS[name] for name in ("temperature", "histogram")}
    >>> choose(logits, labels, makers).name
    'temperature'
    """
    logits, labels = as_pair(logits, labels)
    logits = logits.detach()
    makers = {"uncalibrated": Identity, **makers}
    parts = stratified_folds(labels, folds, seed)
    before, trials = torch.empty(0), []
    best, lowest, held_out = "", float("inf"), logits
    for name, make in makers.items():
        if len(makers) > 2 and (slow := reason_against(name, *logits.shape)):
            trials.append(Trial(name, None, None, None, slow))
            continue
        try:
            outputs, note = cross_fitted(make, logits, labels, parts)
        except ValueError as error:
            trials.append(Trial(name, None, None, None, str(error)))
            continue
        rows = nll_rows(outputs.double(), labels)
        before = rows if name == "uncalibrated" else before
        trials.append(trial_of(name, rows, before, note))
        if float(rows.mean()) < lowest - TIE:
            best, lowest, held_out = name, float(rows.mean()), outputs
    if not best:
        raise ValueError(next(trial.note for trial in trials))
    calibrator = makers[best]().fit_quietly(logits, labels)
    trials.sort(key=lambda trial: float("inf") if trial.nll is None else trial.nll)
    return Choice(best, calibrator, tuple(trials), held_out, folds)


def reason_against(name: str, n: int, classes: int) -> str:
    """Say why a calibrator is not tried among others: it would take too long."""
    if n * classes > MOST and name not in QUICK:
        return f"not tried, too slow on {n:,} x {classes:,} numbers; ask for it alone"
    if classes > WIDE and name in ("matrix", "dirichlet"):
        return f"not tried, too slow with {classes:,} classes; ask for it alone"
    return ""


def trial_of(name: str, rows: Tensor, before: Tensor, note: str) -> Trial:
    """Return mean NLL, and its mean change with its standard error."""
    change = rows - before
    error = float(change.std()) / len(rows) ** 0.5
    return Trial(name, float(rows.mean()), float(change.mean()), error, note)


def cross_fitted(
    make: Callable[[], Calibrator], logits: Tensor, labels: Tensor, parts: list[Tensor]
) -> tuple[Tensor, str]:
    """Return each row's logits from a calibrator fitted on the other folds, and the last note."""
    outputs, note = (
        torch.empty_like(logits, dtype=torch.promote_types(logits.dtype, torch.float)),
        "",
    )
    for k, part in enumerate(parts):
        rest = torch.cat(parts[:k] + parts[k + 1 :])
        calibrator = make().fit_quietly(logits[rest], labels[rest])
        outputs[part] = calibrator(logits[part])
        note = calibrator.note or note
    return outputs, note


def stratified_folds(labels: Tensor, folds: int, seed: int) -> list[Tensor]:
    """Return row numbers of `folds` parts, each class spread evenly over them.

    >>> [sorted(part.tolist()) for part in stratified_folds(torch.tensor([0, 0, 1, 1]), 2, seed=0)]
    [[..., ...], [..., ...]]
    """
    if not 2 <= folds <= len(labels):
        raise ValueError(f"folds must lie between 2 and the {len(labels)} rows; got {folds}")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    order = order.to(labels.device)
    order = order[labels[order].argsort(stable=True)]
    return [order[k::folds] for k in range(folds)]
