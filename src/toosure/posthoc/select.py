"""Choose among calibrators by the NLL of rows that each was not fitted on."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from toosure.metrics.inputs import as_pair
from toosure.metrics.scores import nll_rows
from toosure.posthoc.calibrator import Calibrator, Identity, without_log_zero
from toosure.posthoc.same_rows import fingerprints

MOST = 2e7  # numbers up to which the slower ones are tried
SLOW = 2e6  # numbers up to which vector scaling is tried
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


def choose(
    logits: Any,
    labels: Any,
    makers: Makers,
    folds: int = 5,
    seed: int = 0,
    told: Callable[[Trial], None] = lambda trial: None,
) -> Choice:
    """Fit every calibrator on each set of all folds but one, and take the lowest NLL held out.

    No calibration takes part, as "uncalibrated". A calibrator that refuses the rows is left out
    with its reason. Equal rows share a fold. The winner is fitted again on all rows. `told` hears
    of each trial as it ends.

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
    Identity().checked(logits, labels)
    parts = stratified_folds(labels, folds, seed, fingerprints(logits, labels))
    before, trials = nll_rows(without_log_zero(logits.double()), labels), list[Trial]()
    best, lowest, held_out = "", float("inf"), logits
    for name, make in makers.items():
        try:
            if len(makers) > 2:
                check_quick(name, *logits.shape)
            outputs, note = cross_fitted(make, logits, labels, parts)
            rows = nll_rows(outputs.double(), labels)
            trials.append(trial_of(name, rows, before, note))
            if float(rows.mean()) < lowest - TIE:
                best, lowest, held_out = name, float(rows.mean()), outputs
        except ValueError as error:
            trials.append(Trial(name, None, None, None, str(error)))
        told(trials[-1])
    calibrator = makers[best]().fit_quietly(logits, labels)
    trials.sort(key=lambda trial: float("inf") if trial.nll is None else trial.nll)
    return Choice(best, calibrator, tuple(trials), held_out, folds)


def check_quick(name: str, n: int, classes: int) -> None:
    """Refuse, among others, a calibrator that would take too long."""
    if n * classes > (SLOW if name == "vector" else MOST) and name not in QUICK:
        raise ValueError(f"not tried, too slow on {n:,} x {classes:,} numbers; ask for it alone")
    if classes > WIDE and name in ("matrix", "dirichlet"):
        raise ValueError(f"not tried, too slow with {classes:,} classes; ask for it alone")


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
        calibrator = make()
        if calibrator.needs_every_class:
            check_left(labels, rest, len(parts))
        calibrator.fit_quietly(logits[rest], labels[rest])
        outputs[part] = calibrator(logits[part])
        note = calibrator.note or note
    return outputs, note


def check_left(labels: Tensor, rest: Tensor, folds: int) -> None:
    """Refuse folds that hold all rows of a class, so that the others have none."""
    counts = torch.bincount(labels)
    left = torch.bincount(labels[rest], minlength=len(counts))
    for k in ((left == 0) & (counts > 0)).nonzero().flatten().tolist()[:1]:
        rows = f"{counts[k]} row" + "s, equal ones taken together," * bool(counts[k] > 1)
        raise ValueError(f"class {k} has {rows}: too few for {folds} folds")


def stratified_folds(
    labels: Tensor, folds: int, seed: int, same: Tensor | None = None
) -> list[Tensor]:
    """Return row numbers of `folds` parts, each class spread evenly, rows of equal `same` together.

    >>> [sorted(part.tolist()) for part in stratified_folds(torch.tensor([0, 0, 1, 1]), 2, seed=0)]
    [[..., ...], [..., ...]]
    """
    if not 2 <= folds <= len(labels):
        raise ValueError(f"folds must lie between 2 and the {len(labels)} rows; got {folds}")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    order = order.to(labels.device)
    order = order[labels[order].argsort(stable=True)]
    if same is None:
        return [order[k::folds] for k in range(folds)]
    groups, inverse = same[order].unique(return_inverse=True)
    if len(groups) < folds:
        raise ValueError(
            f"only {len(groups)} rows differ from each other: too few for {folds} folds"
        )
    places = torch.arange(len(order), device=order.device)
    first = places.new_full(groups.shape, len(order)).scatter_reduce(0, inverse, places, "amin")
    fold = first.argsort().argsort()[inverse] % folds  # (N,) of the rows in order
    return [order[fold == k] for k in range(folds)]
