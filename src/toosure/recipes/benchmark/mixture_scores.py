"""Scores of mixtures of runs, made of the predictions of their members."""

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
    """Score the mixture of runs by the predictions that they saved at their end."""
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
    """Whether runs were validated on the same images: their data are split by the same seed.

    Otherwise most validation images of one are training images of another, and predictions do not
    say which.
    """
    return len({member.data for member in members}) == 1
