"""Files with the scores of runs and mixtures, which outlive the run folders.

`scores.jsonl` has one line per run: its config, the scores of its test images before and after a
temperature fitted on the validation images, and the scores of the validation images.
`mixtures.jsonl` has one line per mixture of runs, with the names of its members.
`examples/NAME.npz` holds what paired comparisons need of each test image; the confidence after the
temperature is in 65,535ths. Runs that no table compares by image have no such file.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from toosure.recipes.benchmark.mixture_scores import score_mixture
from toosure.recipes.benchmark.mixture_shifts import read_shifts
from toosure.recipes.benchmark.record import Examples, Record, predictions_file, score_run
from toosure.recipes.benchmark.saved_rows import corrupted_means
from toosure.recipes.benchmark.shift_scores import adds_shifts, covers, shift_summary
from toosure.recipes.json_lines import append_lines, read_json_lines
from toosure.recipes.recipe import RunMixture, Setting
from toosure.recipes.run_store import RunStore
from toosure.runs import Run
from toosure.runs.files import write_arrays

SCORES_FILE = "scores.jsonl"
MIXTURES_FILE = "mixtures.jsonl"
EXAMPLES = "examples"  # a folder


class ScoreFiles:
    """Records and examples by name, read from a folder and extended by finished runs.

    Without a folder they stay in memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.unreadable: list[str] = []  # why a line was left out
        self.records = self.read(SCORES_FILE)  # of runs
        self.mixtures = self.read(MIXTURES_FILE)

    def read(self, name: str) -> dict[str, Record]:
        """Return the records of a file by name; a later line replaces an earlier one."""
        if self.folder is None:
            return {}
        records = {}
        for line in filter(None, read_json_lines(self.folder / name)):
            try:
                record = Record.of_values(line)
            except (ValueError, TypeError, KeyError) as error:
                self.unreadable.append(str(error))
                continue
            records[record.name] = record
        return records

    @cached_property
    def examples(self) -> dict[str, Examples]:
        """What paired comparisons need of each test image, by run or mixture; read at first use."""
        examples = {}
        if self.folder is not None:
            for file in sorted((self.folder / EXAMPLES).glob("*.npz")):
                with np.load(file, allow_pickle=False) as arrays:
                    examples[file.stem] = dict(arrays)
        return examples

    # -- runs -----------------------------------------------------------------------------------

    def add(self, runs: Iterable[Run], save_examples: bool = True) -> list[Record]:
        """Score the finished runs that are new, write them to the folder, and return them.

        A run is scored again if it has since been judged on shifts, on more unknown data or on
        ImageNet-C. Without `save_examples` nothing is saved of single test images.
        """
        added = []
        for run in runs:
            if run.status != "complete" or not self.adds_to_records(run):
                continue
            if not predictions_file(run).is_file():
                continue
            record, examples = score_run(run)
            self.records[run.name] = record
            if save_examples:
                self.examples[run.name] = examples
            added.append(record)

        self.write(added)
        return added

    def adds_to_records(self, run: Run) -> bool:
        """Whether a run is not scored yet, or was judged on something that its record lacks."""
        record = self.records.get(run.name)
        if record is None:
            return True
        if record.corrupted is None and corrupted_means(run) is not None:
            return True
        judged = shift_summary(run)
        return judged is not None and adds_shifts(record, judged["images"], judged["ood"])

    # -- mixtures -------------------------------------------------------------------------------

    def add_mixtures(self, mixtures: Iterable[RunMixture], store: RunStore) -> None:
        """Score the mixtures that are new or newly judged on shifts, and write them.

        A mixture waits until all of its members have saved their predictions.
        """
        added = []
        for mixture in mixtures:
            known = self.mixtures.get(mixture.name)
            shifts = read_shifts(store.folder, mixture)
            if known and not (shifts and adds_shifts(known, shifts.images, shifts.ood)):
                continue

            runs = store.runs(mixture.members)
            saved = [run for run in runs if predictions_file(run).is_file()]
            if len(saved) == len(mixture.members):
                record, examples = score_mixture(mixture, saved, shifts)
                self.mixtures[record.name] = record
                self.examples[record.name] = examples
                added.append(record)
        self.write(added)

    # -- files ----------------------------------------------------------------------------------

    def write(self, added: Sequence[Record]) -> None:
        """Write the examples of the records, then append to the files of scores.

        In this order, a run that is interrupted in between is scored again with its examples.
        """
        if self.folder is None or not added:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        for record in added:
            if examples := self.examples.get(record.name):
                (self.folder / EXAMPLES).mkdir(exist_ok=True)
                write_arrays(
                    self.folder / EXAMPLES / f"{record.name}.npz", examples, compressed=True
                )

        for record in added:
            name = SCORES_FILE if record.members is None else MIXTURES_FILE
            append_lines(self.folder / name, [record.line()])


def score_files(setting: Setting) -> ScoreFiles:
    """Return the score files of a setting, or empty ones in memory."""
    return ScoreFiles(Path(setting.scores) if setting.scores else None)


# -- without reading records ----------------------------------------------------------------------


def saved_names(setting: Setting, with_shifts: bool = False) -> set[str]:
    """Return the names of the runs and mixtures that have saved scores.

    `with_shifts` counts only those that were judged on all shifts that the setting asks for. A line
    with an unknown word counts too: its run need not be trained again.
    """
    if not setting.scores:
        return set()
    names = set()
    for file in (SCORES_FILE, MIXTURES_FILE):
        for line in read_json_lines(Path(setting.scores) / file):
            if line and "name" in line and (was_judged(line, setting) or not with_shifts):
                names.add(str(line["name"]))
    return names


def was_judged(line: Mapping[str, Any], setting: Setting) -> bool:
    """Whether the run of a line was judged on all shifts that the setting asks for."""
    shifts = line.get("shifts") or {}
    return bool(shifts) and covers(shifts, setting, line["config"]["data"])


def damaged_lines(folder: Path) -> int:
    """Return how many lines of the file of scores are no records, for example torn ones."""
    lines = read_json_lines(folder / SCORES_FILE)
    return sum(line is None or "name" not in line for line in lines)
