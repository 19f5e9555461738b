"""Scores of finished runs, and the files that keep them when the run folders are gone.

`scores.jsonl` has one line per run: its config, the scores of its test images before and after a
temperature fitted on the validation images, and those of the validation images.
`examples/NAME.npz` holds, per test image of a run, what paired comparisons need; the confidence
after the temperature is in 65,535ths. Runs that no table compares so have no such file.
Mixtures of runs have a file of their own, of the same form: mixture_scores.py.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toosure import metrics
from toosure.config import RunConfig
from toosure.posthoc import Temperature
from toosure.recipes.benchmark.class_gaps import class_gap_spread
from toosure.recipes.benchmark.kept_rows import (
    calibrated_errors,
    control_numbers,
    corrupted_means,
    measuring_seconds,
    rows_along,
)
from toosure.recipes.benchmark.shift_scores import shift_summary
from toosure.recipes.recipe import Setting
from toosure.runs import Run
from toosure.runs.files import write_atomically

SCORES_FILE = "scores.jsonl"
EXAMPLES = "examples"  # a folder
CONFIDENCE_STEPS = 65535  # the confidence after a temperature is kept as a whole number of 16 bits
METRICS = (
    *("accuracy", "nll", "brier", "ece", "debiased_ece", "smece", "adaptive_ece", "classwise_ece"),
    *("mce", "aurc", "auroc_misclass", "auroc_ovr", "auroc_ovr_binned"),
)
SHARPNESS = "train/hessian_sharpness"
Scores = dict[str, float]
Examples = dict[str, np.ndarray]  # "confidence", "correct", "log_probability", ... -> (N,)


@dataclass
class Record:
    """What is kept of one run, or of a mixture of runs.

    A mixture has no `val`, no `temperature` and nothing after it where its members were validated
    on different images.
    """

    name: str
    config: RunConfig
    seconds: float
    seconds_measuring: float
    temperature: float | None
    test: Scores
    val: Scores
    test_after_temperature: Scores
    status: str = "complete"
    device: str | None = None
    torch: str | None = None
    commit: str | None = None
    sharpness: float | None = None  # largest eigenvalue of the Hessian, where it was measured
    alone: bool | None = None  # whether no other run shared the device; None: not known
    calibrated_ece: Scores | None = None  # of the test images, by calibrator; None: not kept
    rows: list[Scores] | None = None  # along training, where it was measured more than once
    corrupted: dict[str, Scores] | None = None  # by corruption, where published images were judged
    shifts: dict[str, Any] | None = None  # under corruptions and on unknown data: shift_scores.py
    control: Scores | None = None  # of the last row, where a controller steered: "rho", ...
    members: list[str] | None = None  # of a mixture: the names of its runs

    @property
    def data(self) -> str:
        return self.config.data.partition(":")[0]

    @property
    def training_seconds(self) -> float:
        return self.seconds - self.seconds_measuring

    def line(self) -> str:
        """Return the record as a line of `scores.jsonl`."""
        return json.dumps(asdict(self))

    @classmethod
    def of_line(cls, text: str) -> "Record":
        """Read a line of `scores.jsonl`; raise ValueError where a word of it is not known here."""
        values = json.loads(text)
        return cls(**{**values, "config": RunConfig.of(values["config"])})


# -- scoring --------------------------------------------------------------------------------------


def scores_of(logits: Tensor, labels: Tensor) -> Scores:
    """Return every score of one split, as shares of 1."""
    confidence, _ = metrics.top_label(logits, labels)
    scores = {name: float(getattr(metrics, name)(logits, labels)) for name in METRICS}
    more = {
        "confidence": float(confidence.mean()),
        "class_gap_spread": class_gap_spread(logits, labels),
    }
    return scores | more


def predictions_file(run: Run) -> Path:
    """Return the predictions that count: the network's, or those of its one average of weights.

    Of bSAM with `samples` they are those of the samples, of a run that keeps its `best` weights
    those of these.
    """
    if run.config.get("best"):
        return run.path / "best.npz"
    average = run.config.get("average")
    name = str(average).partition(":")[0] if average else ""
    optimizer = str(run.config.get("optimizer", ""))
    if not name and optimizer.startswith("bsam:") and "samples=" in optimizer:
        name = "bsam"
    return run.path / (f"predictions_{name}.npz" if name else "predictions.npz")


def read_split(run: Run, split: str) -> tuple[Tensor, Tensor]:
    """Return logits and labels of one split at the end of a run."""
    with np.load(predictions_file(run), allow_pickle=False) as arrays:
        logits = torch.from_numpy(arrays[f"{split}_logits"]).double()
        return logits, torch.from_numpy(arrays[f"{split}_labels"])


def record_of(run: Run) -> Record:
    """Score a run by the predictions that it saved at its end."""
    val = read_split(run, "val")
    logits, labels = read_split(run, "test")
    temperature = Temperature().fit_quietly(*val)
    sharpness = run.last.get(SHARPNESS)

    return Record(
        name=run.name,
        config=RunConfig.of(run.config),
        seconds=float(run.last["seconds"]),
        seconds_measuring=measuring_seconds(run),
        temperature=float(temperature.temperature),
        test=scores_of(logits, labels),
        val=scores_of(*val),
        test_after_temperature=scores_of(temperature(logits), labels),
        status=run.status,
        device=run.environment.get("device"),
        torch=run.environment.get("versions", {}).get("torch"),
        commit=run.environment.get("commit"),
        sharpness=None if sharpness is None else float(sharpness),
        alone=ran_alone(run),
        calibrated_ece=calibrated_errors(val, (logits, labels)),
        rows=rows_along(run),
        corrupted=corrupted_means(run),
        shifts=shift_summary(run),
        control=control_numbers(run),
    )


def ran_alone(run: Run) -> bool | None:
    """Whether a run had its device for itself, by the command it recorded; None: not known."""
    command = str(run.environment.get("command", ""))
    workers = re.search(r"--workers[ =](\d+)", command)
    if workers:
        return int(workers[1]) == 1
    return True if " reproduce " in command else None


def examples_of(run: Run) -> Examples:
    """Return what paired comparisons need of each test image."""
    temperature = Temperature().fit_quietly(*read_split(run, "val"))
    return example_arrays(*read_split(run, "test"), temperature)


def example_arrays(logits: Tensor, labels: Tensor, temperature: Temperature | None) -> Examples:
    """Return the same of logits; nothing after a temperature where there is none."""
    confidence, correct = metrics.top_label(logits, labels)
    log_probability = logits.log_softmax(1).gather(1, labels[:, None]).squeeze(1)
    examples = {
        "confidence": confidence.float().numpy(),
        "correct": correct.bool().numpy(),
        "log_probability": log_probability.float().numpy(),
    }
    if temperature is not None:
        after, _ = metrics.top_label(temperature(logits), labels)
        in_steps = np.round(CONFIDENCE_STEPS * after.double().numpy())
        examples["confidence_after"] = in_steps.astype(np.uint16)
    return examples


# -- files ----------------------------------------------------------------------------------------


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

        A run that was scored before is scored again where only now it was judged on shifts.
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
        """Whether a run is not scored yet, or has shifts where its record has none."""
        record = self.records.get(run.name)
        return record is None or (record.shifts is None and shift_summary(run) is not None)

    def write(self, added: Sequence[Record]) -> None:
        """Store the examples of the records, then append to the file of scores.

        In this order a run that was interrupted in between is scored again, with its examples.
        """
        assert self.folder is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        for record in added:
            if examples := self.examples.get(record.name):
                (self.folder / EXAMPLES).mkdir(exist_ok=True)
                write_arrays(self.folder / EXAMPLES / f"{record.name}.npz", examples)

        with (self.folder / self.file).open("a", encoding="utf-8") as file:
            file.writelines(record.line() + "\n" for record in added)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a compressed archive of arrays, whole or not at all."""
    # Typed loosely, because numpy's signature has flags of its own among the keywords.
    keywords: dict[str, Any] = dict(arrays)
    write_atomically(path, lambda file: np.savez_compressed(file, **keywords))


def read_lines(folder: Path, name: str = SCORES_FILE) -> list[str]:
    """Return the lines of a file of scores; none where there is no such file."""
    file = folder / name
    return file.read_text(encoding="utf-8").splitlines() if file.is_file() else []


def score_files(setting: Setting) -> ScoreFiles:
    """Return the score files that a setting names, or empty ones in memory."""
    return ScoreFiles(Path(setting.scores)) if setting.scores else ScoreFiles()


def scored_names(setting: Setting, with_shifts: bool = False, file: str = SCORES_FILE) -> set[str]:
    """Return the names of the runs whose scores are kept: they need not be trained again.

    `with_shifts` leaves out those that were not judged on shifts.
    """
    names = set()
    if setting.scores:
        for line in read_lines(Path(setting.scores), file):
            with suppress(json.JSONDecodeError, KeyError, TypeError):
                values = json.loads(line)
                if not with_shifts or values.get("shifts"):
                    names.add(str(values["name"]))
    return names
