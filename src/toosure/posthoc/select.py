"""Choose among calibrators by the NLL of rows that each was not fitted on."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from toosure.metrics.inputs import ArrayLike, as_pair, check_one_column
from toosure.metrics.scores import nll_rows
from toosure.posthoc.calibrator import Calibrator, Identity
from toosure.posthoc.calibrator_inputs import without_log_zero
from toosure.posthoc.same_rows import fingerprints

MAX_NUMBERS = 2e7  # in the logits, for all calibrators that are not in ALWAYS_TRIED
MAX_VECTOR_NUMBERS = 2e6  # in the logits, for vector scaling
MAX_MATRIX_CLASSES = 50  # for a full matrix
NLL_TIE = 1e-6  # closer NLLs count as equal, and the first calibrator is taken
ALWAYS_TRIED = ("uncalibrated", "temperature", "ensemble_temperature")
Makers = Mapping[str, Callable[[], Calibrator]]


class Trial(NamedTuple):
    """The NLL of one calibrator on rows that it was not fitted on."""

    name: str
    nll: float | None  # None if it could not be fitted
    change: float | None  # against no calibration, paired by row
    error: float | None  # standard error of the change
    note: str = ""


class Choice(NamedTuple):
    """The chosen calibrator, fitted on all rows, and the trials it was chosen by."""

    name: str
    calibrator: Calibrator
    trials: tuple[Trial, ...]  # best first
    held_out: Tensor  # (N, C) logits of each row, from a calibrator not fitted on that row
    folds: int


def choose(
    logits: ArrayLike,
    labels: ArrayLike,
    makers: Makers,
    folds: int = 5,
    seed: int = 0,
    on_trial: Callable[[Trial], None] = lambda trial: None,
    groups: Tensor | None = None,
) -> Choice:
    """Cross-fit every calibrator, and take the one with the lowest NLL on held-out folds.

    The identity takes part as "uncalibrated". A calibrator that refuses the rows is left out, with
    its reason. Equal rows share a fold, and so do rows of one of the `groups` (N,), such as
    sequences or images. The winner is fitted again on all rows. `on_trial` is called with each
    trial as it ends.

    >>> from toosure.posthoc import CALIBRATORS
    >>> generator = torch.Generator().manual_seed(0)
    >>> logits = 4 * torch.randn(1000, 3, generator=generator)
    >>> labels = torch.multinomial((logits / 2).softmax(1), 1, generator=generator).squeeze(1)
    >>> makers = {name: CALIBRATORS[name] for name in ("temperature", "histogram")}
    >>> choose(logits, labels, makers).name
    'temperature'
    """
    check_one_column(logits)
    logits, labels = as_pair(logits, labels)
    logits = logits.detach()
    makers = {"uncalibrated": Identity, **makers}
    Identity().checked(logits, labels)
    same = fingerprints(logits, labels) if groups is None else groups
    parts = stratified_folds(labels, folds, seed, same)
    nll_before = nll_rows(without_log_zero(logits.double()), labels)

    trials: list[Trial] = []
    best = ""
    lowest = float("inf")
    held_out = logits
    for name, make in makers.items():
        try:
            if len(makers) > 2:  # a single one may be slow
                check_affordable(name, *logits.shape)
            outputs, note = cross_fitted(make, logits, labels, parts)
            nll = nll_rows(outputs.double(), labels)
            trials.append(paired_trial(name, nll, nll_before, note, groups))
            if float(nll.mean()) < lowest - NLL_TIE:
                best = name
                lowest = float(nll.mean())
                held_out = outputs
        except ValueError as error:
            trials.append(Trial(name, None, None, None, str(error)))
        on_trial(trials[-1])

    calibrator = makers[best]().fit_quietly(logits, labels)
    trials.sort(key=lambda trial: float("inf") if trial.nll is None else trial.nll)
    return Choice(best, calibrator, tuple(trials), held_out, folds)


def check_affordable(name: str, n: int, classes: int) -> None:
    """Refuse a calibrator that would take too long among others."""
    max_numbers = MAX_VECTOR_NUMBERS if name == "vector" else MAX_NUMBERS
    if n * classes > max_numbers and name not in ALWAYS_TRIED:
        raise ValueError(f"not tried, too slow on {n:,} x {classes:,} numbers; ask for it alone")
    if classes > MAX_MATRIX_CLASSES and name in ("matrix", "dirichlet"):
        raise ValueError(f"not tried, too slow with {classes:,} classes; ask for it alone")


def paired_trial(
    name: str, nll: Tensor, nll_before: Tensor, note: str, groups: Tensor | None
) -> Trial:
    """Return the mean NLL, and its mean change per row with its standard error."""
    change = nll - nll_before
    deviations = change - change.mean()
    if groups is not None:  # rows of a group are alike: count each group once
        inverse = groups.unique(return_inverse=True)[1]
        deviations = torch.zeros(int(inverse.max()) + 1).to(change).index_add_(0, inverse, change)
        deviations -= torch.bincount(inverse) * change.mean()
    units = len(deviations)
    spread = float(deviations.square().sum()) * units / max(units - 1, 1)
    error = spread**0.5 / len(nll)
    return Trial(name, float(nll.mean()), float(change.mean()), error, note)


def cross_fitted(
    make: Callable[[], Calibrator], logits: Tensor, labels: Tensor, parts: list[Tensor]
) -> tuple[Tensor, str]:
    """Return each row's logits from a calibrator fitted on the other folds, and the last note."""
    outputs = torch.empty_like(logits, dtype=torch.promote_types(logits.dtype, torch.float))
    note = ""
    for k, part in enumerate(parts):
        rest = torch.cat(parts[:k] + parts[k + 1 :])
        calibrator = make()
        if calibrator.needs_every_class:
            check_classes_remain(labels, rest, len(parts))
        calibrator.fit_quietly(logits[rest], labels[rest])
        outputs[part] = calibrator(logits[part])
        note = calibrator.note or note
    return outputs, note


def check_classes_remain(labels: Tensor, rest: Tensor, folds: int) -> None:
    """Refuse a fold that holds all rows of a class, so that the `rest` has none."""
    counts = torch.bincount(labels)
    remaining = torch.bincount(labels[rest], minlength=len(counts))
    missing = ((remaining == 0) & (counts > 0)).nonzero().flatten().tolist()
    if not missing:
        return

    k = missing[0]
    rows = f"{counts[k]} rows, equal ones taken together," if counts[k] > 1 else "1 row"
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

    # Shuffled, then sorted by class: every `folds`-th row spreads each class evenly.
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    order = order.to(labels.device)
    order = order[labels[order].argsort(stable=True)]
    if same is None:
        return [order[k::folds] for k in range(folds)]

    # As above, with groups of equal rows instead of rows, each at the place of its first row.
    groups, inverse = same[order].unique(return_inverse=True)
    if len(groups) < folds:
        raise ValueError(
            f"only {len(groups)} rows differ from each other: too few for {folds} folds"
        )
    position = torch.arange(len(order), device=order.device)
    first = position.new_full(groups.shape, len(order)).scatter_reduce(0, inverse, position, "amin")
    fold = first.argsort().argsort()[inverse] % folds  # (N,) of the rows in order
    return [order[fold == k] for k in range(folds)]
