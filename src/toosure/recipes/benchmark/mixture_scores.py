"""Scores of averaged predictions of several runs, saved so that they outlive the run folders."""

from collections.abc import Sequence
from dataclasses import replace

from toosure.config import RunConfig
from toosure.evaluate.ensemble import mixture as mixture_of
from toosure.predictions import from_logits
from toosure.recipes.benchmark.record import (
    Examples,
    Predictions,
    Record,
    read_split,
    score,
)
from toosure.recipes.benchmark.shift_scores import summary_of
from toosure.recipes.recipe import RunMixture
from toosure.runs import Run
from toosure.shifts.record import ShiftRecord


def score_mixture(
    mixture: RunMixture, runs: Sequence[Run], shifts: ShiftRecord | None
) -> tuple[Record, Examples]:
    """Score the averaged predictions that the runs saved at their end."""
    test = mixed_split(runs, "test")
    val = mixed_split(runs, "val") if same_validation(mixture.members) else None
    record, examples = score(runs, mixture.name, mixture.config, test, val)

    record = replace(
        record,
        shifts=None if shifts is None else summary_of(shifts),
        members=[run.name for run in runs],
    )
    return record, examples


def mixed_split(runs: Sequence[Run], split: str) -> Predictions:
    """Return the log of the runs' mean probability on one split, and the labels."""
    mixed = mixture_of({run.name: from_logits(*read_split(run, split)) for run in runs})
    assert mixed.logits is not None and mixed.labels is not None
    return mixed.logits, mixed.labels


def same_validation(members: Sequence[RunConfig]) -> bool:
    """Whether runs have the same validation images: the same seed splits their data.

    Otherwise most validation images of one run are training images of another, and the saved
    predictions do not say which.
    """
    return len({member.data for member in members}) == 1
