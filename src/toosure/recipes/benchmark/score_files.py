"""Scores of finished runs, and the files that keep them when the run folders are gone.

`scores.jsonl` has one line per run: its config, the scores of its test images before and after a
temperature fitted on the validation images, and those of the validation images.
`examples/NAME.npz` holds, per test image of a run, what paired comparisons need; the confidence
after the temperature is in 65,535ths. Runs that no table compares so have no such file.
Mixtures of runs have a file of their own, of the same form: mixture_scores.py.
"""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from toosure.recipes.benchmark.kept_rows import corrupted_means
from toosure.recipes.benchmark.record import (
    Examples,
    Record,
    examples_of,
    predictions_file,
    record_of,
)
from toosure.recipes.benchmark.shift_scores import adds_sets, has_sets, shift_summary
from toosure.recipes.recipe import Setting
from toosure.runs import Run
from toosure.runs.files import write_arrays

SCORES_FILE = "scores.jsonl"
EXAMPLES = "examples"  # a folder


@dataclass
class ScoreFiles:
    """Records and examples by run name, read from a folder and extended by finished runs.

    Without a folder, they are kept in memory alone.
    """

    folder: Path | None = None
    records: dict[str, Record] = field(default_factory=dict)
    examples: dict[str, Examples] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)  # why a line was left out
    file: str = SCORES_FILE

    def __post_init__(self) -> None:
        if self.folder is None:
            return
        for line in read_lines(self.folder, self.file):
            try:
                record = Record.of_line(line)
            except (ValueError, TypeError, KeyError) as error:
                self.unreadable.append(str(error))
                continue
            self.records[record.name] = record

        for file in sorted((self.folder / EXAMPLES).glob("*.npz")):
            with np.load(file, allow_pickle=False) as arrays:
                self.examples[file.stem] = dict(arrays)

    def add(self, runs: Iterable[Run], keep_examples: bool = True) -> list[Record]:
        """Score the finished runs that are new, write them to the folder, and return them.

        A run that was scored before is scored again where only now it was judged on shifts, on
        more unknown data or on ImageNet-C.
        Without `keep_examples` nothing is kept of single test images.
        """
        added = []
        for run in runs:
            if run.status != "complete" or not self.adds_to_records(run):
                continue
            if not predictions_file(run).is_file():
                continue
            self.records[run.name] = record_of(run)
            if keep_examples:
                self.examples[run.name] = examples_of(run)
            added.append(self.records[run.name])

        if added and self.folder is not None:
            self.write(added)
        return added

    def adds_to_records(self, run: Run) -> bool:
        """Whether a run is not scored yet, or was judged on what its record does not have."""
        record = self.records.get(run.name)
        if record is None:
            return True
        if record.corrupted is None and corrupted_means(run) is not None:
            return True
        judged = shift_summary(run)
        return judged is not None and adds_sets(record, judged["ood"])

    def write(self, added: Sequence[Record]) -> None:
        """Store the examples of the records, then append to the file of scores.

        In this order a run that was interrupted in between is scored again, with its examples.
        """
        assert self.folder is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        for record in added:
            if examples := self.examples.get(record.name):
                (self.folder / EXAMPLES).mkdir(exist_ok=True)
                write_arrays(
                    self.folder / EXAMPLES / f"{record.name}.npz", examples, compressed=True
                )

        with (self.folder / self.file).open("a", encoding="utf-8") as file:
            file.writelines(record.line() + "\n" for record in added)


def read_lines(folder: Path, name: str = SCORES_FILE) -> list[str]:
    """Return the lines of a file of scores; none where there is no such file."""
    file = folder / name
    try:
        return file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is damaged: it is no text in UTF-8") from error


def damaged_lines(folder: Path) -> int:
    """Return how many lines of the file of scores are no records, as one that was cut short."""
    damaged = 0
    for line in read_lines(folder):
        try:
            damaged += "name" not in json.loads(line)
        except (json.JSONDecodeError, TypeError):
            damaged += 1
    return damaged


def score_files(setting: Setting) -> ScoreFiles:
    """Return the score files that a setting names, or empty ones in memory."""
    return ScoreFiles(Path(setting.scores)) if setting.scores else ScoreFiles()


def scored_names(setting: Setting, with_shifts: bool = False, file: str = SCORES_FILE) -> set[str]:
    """Return the names of the runs whose scores are kept: they need not be trained again.

    `with_shifts` leaves out those that were not judged on shifts, or not on the setting's `ood`.
    """
    names = set()
    if setting.scores:
        for line in read_lines(Path(setting.scores), file):
            with suppress(json.JSONDecodeError, KeyError, TypeError):
                values = json.loads(line)
                shifts = values.get("shifts") or {}
                judged = shifts and has_sets(shifts, setting.ood, values["config"]["data"])
                if not with_shifts or judged:
                    names.add(str(values["name"]))
    return names
