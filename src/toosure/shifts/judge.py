"""Judge a network on clean and corrupted test images and on images of other data sets."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from toosure import metrics
from toosure.data import Dataset, Split
from toosure.data.corruptions import Shift
from toosure.data.standardise import standardised
from toosure.metrics.inputs import known_outputs
from toosure.metrics.ood import fpr95_of_scores, ood_score
from toosure.metrics.ranking import auroc
from toosure.shifts.ood_sets import OODSet, drawn_indices
from toosure.shifts.plan import CORRUPTED, ShiftPlan
from toosure.shifts.record import METRICS, OOD_SCORES, Ood, Scores, ShiftRecord

Predict = Callable[[Tensor], Tensor]  # standardised images (N, C, H, W) -> logits (N, K)
Progress = Callable[[int, int, str], None]  # sets judged, sets in all, the name of the next
LOST_ENERGY = 1e-3  # below, the rows are log-probabilities that were rounded
OodScores = dict[str, Tensor]  # by name of the score: (N,), higher for rows like the training data


def judge_shifts(
    predict: Predict,
    data: Dataset,
    plan: ShiftPlan,
    outside: Sequence[OODSet] = (),
    progress: Progress | None = None,
    temperature: float | None = None,
) -> ShiftRecord:
    """Return the scores of a network on its test set, clean and corrupted, and on `outside` sets.

    Corruptions are made on the device of the data, a set at a time. `progress` is called before
    each set, and may raise to end the work. With a `temperature`, NLL and ECE of corrupted images
    after it are kept too: what temperature scaling on clean images is worth on corrupted ones.
    """
    began = time.perf_counter()
    chosen = with_images(data, plan)
    sets = len(plan.corruptions) * len(plan.severities) + 1 + len(outside)
    report = progress or (lambda done, total, name: None)

    report(0, sets, "clean")
    logits = predict(chosen.test.x)
    clean = score_logits(logits, chosen.test.y)  # raises on probabilities
    known = meaningful(ood_scores(logits))

    with known_outputs():  # the same network: its outputs are not looked at again
        cells: dict[tuple[str, int], Scores] = {}
        corrupted: list[OodScores] = []
        for done, (corruption, severity, split) in enumerate(corrupted_splits(chosen, plan), 1):
            report(done, sets, f"{corruption}:{severity}")
            logits = predict(split.x)
            cells[corruption, severity] = score_logits(logits, split.y)
            cells[corruption, severity] |= scores_after(logits, split.y, temperature)
            corrupted.append(ood_scores(logits))

        # Pooled: an AUROC against equally many images of each cell is the mean over cells.
        pooled = {name: torch.cat([each[name] for each in corrupted]) for name in known}
        ood = {CORRUPTED: detection(known, pooled, "the test images, corrupted")}
        for done, unknown in enumerate(outside, len(cells) + 1):
            report(done, sets, unknown.name)
            logits = predict(standardised_like(data, unknown.pixels))
            separation = detection(known, ood_scores(logits), unknown.note)
            ood[unknown.name] = replace(separation, source=unknown.source)

    return ShiftRecord(
        images=len(chosen.test),
        available=len(data.test),
        clean=clean,
        cells=cells,
        ood=ood,
        seed=plan.seed,
        seconds=round(time.perf_counter() - began, 3),
    )


def with_images(data: Dataset, plan: ShiftPlan) -> Dataset:
    """Return the data with the number of test images that the plan asks for."""
    test = data.test
    if not len(test):
        raise ValueError("shifts are judged on test images, and this data set has none")
    indices = drawn_indices(len(test), plan.images, plan.seed)
    if len(indices) == len(test):
        return data
    return replace(data, test=test.take(indices))


def corrupted_splits(data: Dataset, plan: ShiftPlan) -> Iterator[tuple[str, int, Split]]:
    """Yield the test set under each corruption at each severity, made when it is asked for."""
    for corruption in plan.corruptions:
        for severity in plan.severities:
            shift = cast(Shift, (corruption, severity))  # `shifted` checks the names
            split = data.shifted(shift, plan.seed)
            assert split is not None
            yield corruption, severity, split


def standardised_like(data: Dataset, pixels: Tensor) -> Tensor:
    """Scale uint8 images as the training images of a data set were, on its device."""
    return standardised(pixels.to(data.mean.device), data.mean, data.std)


def score_logits(logits: Tensor, labels: Tensor) -> Scores:
    """Return accuracy, NLL, ECE and smECE; NaN for scores that are not finite."""
    host_logits = logits.cpu()
    host_labels = labels.cpu()
    values = {name: float(getattr(metrics, name)(host_logits, host_labels)) for name in METRICS}
    return {name: value if math.isfinite(value) else math.nan for name, value in values.items()}


def scores_after(logits: Tensor, labels: Tensor, temperature: float | None) -> Scores:
    """Return NLL and ECE after a temperature; nothing without one."""
    if temperature is None:
        return {}
    scaled = logits.cpu().double() / temperature
    values = {name: float(getattr(metrics, name)(scaled, labels.cpu())) for name in ("nll", "ece")}
    return {
        f"{name}_after_temperature": value if math.isfinite(value) else math.nan
        for name, value in values.items()
    }


def ood_scores(logits: Tensor) -> OodScores:
    return {name: ood_score(logits, name) for name in OOD_SCORES}


def meaningful(scores: OodScores) -> OodScores:
    """Leave out the energy of log-probabilities, as a mixture predicts them: it is 0, or noise."""
    lost = float(scores["energy"].abs().max()) < LOST_ENERGY
    return {name: each for name, each in scores.items() if not (lost and name == "energy")}


def detection(known: OodScores, unknown: OodScores, note: str) -> Ood:
    """Return how well each score tells the test images from unknown ones."""
    return Ood(
        images=len(next(iter(unknown.values()))),
        auroc={name: float(auroc(known[name], unknown[name])) for name in known},
        fpr95={name: float(fpr95_of_scores(known[name], unknown[name])) for name in known},
        note=note,
    )
