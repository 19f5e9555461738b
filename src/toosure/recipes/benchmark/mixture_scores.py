"""Scores of mixtures of runs: made of the predictions of their members, kept when these are gone.

`mixtures.jsonl` lies beside `scores.jsonl` and has lines of the same form, with the names of the
members. `examples/` holds the test images of both.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from toosure.config import RunConfig
from toosure.evaluate.ensemble import mixture as mixture_of
from toosure.predictions import from_logits
from toosure.recipes.benchmark.mixture_shifts import read_shifts
from toosure.recipes.benchmark.record import (
    Examples,
    Predictions,
    Record,
    predictions_file,
    read_split,
    score,
)
from toosure.recipes.benchmark.score_files import ScoreFiles, scored_names
from toosure.recipes.benchmark.shift_scores import adds_sets, summary_of
from toosure.recipes.recipe import RunMixture, Setting
from toosure.recipes.run_store import RunStore
from toosure.runs import Run
from toosure.shifts.record import ShiftRecord

MIXTURES_FILE = "mixtures.jsonl"


def mixture_files(setting: Setting) -> ScoreFiles:
    """Return the records of mixtures that a setting's folder keeps, or none, in memory."""
    return ScoreFiles(Path(setting.scores) if setting.scores else None, file=MIXTURES_FILE)


def kept_mixtures(
    setting: Setting, mixtures: Iterable[RunMixture], with_shifts: bool = False
) -> set[RunMixture]:
    """Return the mixtures whose scores are kept; `with_shifts`: only those judged on shifts."""
    names = scored_names(setting, with_shifts, MIXTURES_FILE)
    return {each for each in mixtures if each.name in names}


def add_mixtures(files: ScoreFiles, mixtures: Iterable[RunMixture], store: RunStore) -> None:
    """Score the mixtures that are new, or only now judged on shifts, and write them."""
    added = []
    for mixture in mixtures:
        known = files.records.get(mixture.name)
        shifts = read_shifts(store.folder, mixture)
        if known is not None and (shifts is None or not adds_sets(known, shifts.ood)):
            continue

        runs = store.runs(mixture.members)
        saved = [run for run in runs if predictions_file(run).is_file()]
        if len(saved) == len(mixture.members):
            record, examples = score_mixture(mixture, saved, shifts)
            files.records[record.name] = record
            files.examples[record.name] = examples
            added.append(record)

    if added and files.folder is not None:
        files.write(added)


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
