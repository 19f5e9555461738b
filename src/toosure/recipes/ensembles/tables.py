"""The table of ensembles and its claims: single runs, averages of weights, mixtures."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from toosure import metrics
from toosure.ensembles import log_mean_probability
from toosure.recipes.benchmark.protocol import DESCRIPTION
from toosure.recipes.benchmark.record import ran_alone
from toosure.recipes.benchmark.saved_rows import training_seconds
from toosure.recipes.ensembles import sweeps
from toosure.recipes.ensembles.saved_scores import Scores, ScoresByName, read_scores, save_scores
from toosure.recipes.parameters import network_size
from toosure.recipes.recipe import (
    Claim,
    Findings,
    Setting,
    Table,
    claim_without_runs,
    judge,
)
from toosure.recipes.run_store import RunStore
from toosure.recipes.series import mean_std_text
from toosure.runs import Run

NOTE = (
    "Test images at the end of training, 15 bins, mean ± standard deviation over seeds (of a "
    f"deep ensemble: over disjoint sets of members). ResNet-18, {DESCRIPTION}. Seconds are those "
    "of training, all members together, where no other run shared the device. EMA, SWA, SWAG and "
    "Laplace are made of the plain runs; Laplace is there once `toosure calibrate RUN --method "
    "laplace` was called on them."
)
HEADER = ("method", "n", "accuracy %", "NLL", "ECE", "smECE", "gap", "seconds", "parameters")


@dataclass
class MethodScores:
    """The scores of one method by run, or by the members of each mixture."""

    scores: ScoresByName = field(default_factory=dict)
    parameters: int = 0

    def values(self, key: str) -> list[float]:
        return [each[key] for each in self.scores.values() if key in each]

    def mean(self, key: str) -> float:
        return float(np.mean(self.values(key)))


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return the table of all methods, and the claims on it."""
    rows = {**single_rows(setting, store), **method_rows(setting, store)}
    save_scores(setting, {name: row.scores for name, row in rows.items()})
    for name, scores in read_scores(setting).items():
        if name in rows:
            rows[name].scores = scores | rows[name].scores

    rows = {name: row for name, row in rows.items() if row.scores}
    table = Table("ensembles", HEADER, tuple(cells(name, row) for name, row in rows.items()), NOTE)
    values = {name: list(row.scores.values()) for name, row in rows.items()}
    return Findings(claims(setting, rows), [table], values)


# -- rows -----------------------------------------------------------------------------------------


def single_rows(setting: Setting, store: RunStore) -> dict[str, MethodScores]:
    """Return the rows made of single runs: the runs, their averages, and deep ensembles."""
    rows: dict[str, MethodScores] = {}
    for optimizer, configs in (("SGD", sweeps.plain(setting)), ("SAM", sweeps.sam(setting))):
        runs = store.runs(configs)
        size = network_size(configs[0])
        rows[optimizer] = row_of(runs, "predictions.npz", size)
        for name in ("ema", "swa", "swag", "laplace"):
            label = f"{optimizer}, {name.upper() if name != 'laplace' else 'Laplace'}"
            rows[label] = row_of(runs, f"predictions_{name}.npz", size)

        members = sweeps.ensemble_size(setting)
        rows[f"{optimizer}, deep ensemble ({members})"] = ensemble_row(runs, members, size)
    return rows


def method_rows(setting: Setting, store: RunStore) -> dict[str, MethodScores]:
    """Return the rows of methods that train their members at once."""
    rows = {}
    for name in sweeps.METHODS:
        configs = sweeps.method(setting, name)
        size = network_size(configs[0])
        rows[name] = row_of(store.runs(configs), "predictions.npz", size)
    return rows


def row_of(runs: Sequence[Run], file: str, parameters: int) -> MethodScores:
    """Score one file of predictions in each run that has it."""
    row = MethodScores(parameters=parameters)
    for run in runs:
        pair = held_out_rows(run, file)
        if pair is not None:
            row.scores[run.name] = ensemble_scores(*pair) | seconds_of([run])
    return row


def ensemble_row(runs: Sequence[Run], members: int, parameters: int) -> MethodScores:
    """Score mixtures of disjoint sets of runs."""
    row = MethodScores(parameters=parameters * members)
    for start in range(0, len(runs) - members + 1, members):
        chosen = runs[start : start + members]
        saved = [held_out_rows(run, "predictions.npz") for run in chosen]
        pairs = [pair for pair in saved if pair is not None]
        if len(pairs) == members:
            logits = torch.stack([logits for logits, _ in pairs])
            scores = ensemble_scores(log_mean_probability(logits), pairs[0][1])
            row.scores[" + ".join(run.name for run in chosen)] = scores | seconds_of(chosen)
    return row


def seconds_of(runs: Sequence[Run]) -> Scores:
    """Return how long runs trained in total, or nothing if one shared its device."""
    if not all(ran_alone(run) for run in runs):
        return {}
    return {"seconds": sum(training_seconds(run) for run in runs)}


def held_out_rows(run: Run, file: str) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return logits and labels of the test images, or None if the run saved none."""
    try:
        with np.load(run.path / file, allow_pickle=False) as arrays:
            logits = torch.from_numpy(arrays["test_logits"]).double()
            return logits, torch.from_numpy(arrays["test_labels"])
    except (OSError, KeyError):
        return None


def ensemble_scores(logits: torch.Tensor, labels: torch.Tensor) -> Scores:
    """Return accuracy, NLL, calibration errors and the gap between confidence and accuracy."""
    accuracy = float(metrics.accuracy(logits, labels))
    return {
        "accuracy": accuracy,
        "nll": float(metrics.nll(logits, labels)),
        "ece": float(metrics.ece(logits, labels, 15)),
        "smece": float(metrics.smece(logits, labels)),
        "gap": float(logits.softmax(1).amax(1).mean()) - accuracy,
    }


def cells(name: str, row: MethodScores) -> tuple[str, ...]:
    """Return the cells of one method."""

    def spread(key: str, scale: float, form: str) -> str:
        return mean_std_text([scale * value for value in row.values(key)], form)

    return (
        name,
        str(len(row.scores)),
        spread("accuracy", 100, ".2f"),
        spread("nll", 1, ".4f"),
        spread("ece", 100, ".2f"),
        spread("smece", 100, ".2f"),
        spread("gap", 100, ".2f"),
        spread("seconds", 1, ".0f"),
        f"{row.parameters:,}",
    )


# -- claims ---------------------------------------------------------------------------------------


def claims(setting: Setting, rows: dict[str, MethodScores]) -> list[Claim]:
    """Judge the claims of CSAM's Table 1 on ensembles and MC-Dropout."""
    members = sweeps.ensemble_size(setting)
    ensembles = {name: f"{name}, deep ensemble ({members})" for name in ("SGD", "SAM")}
    of_ensembles = []
    for optimizer, ensemble in ensembles.items():
        for key, better in (("ece", "lower"), ("accuracy", "higher")):
            statement = f"an ensemble of {optimizer} has a {better} {key} than a single network"
            of_ensembles.append(better_claim(setting, statement, rows, ensemble, optimizer, key))

    alone, together = (f"SAM has a lower ECE than SGD, {how}" for how in ("alone", "in ensembles"))
    return [
        *of_ensembles,
        better_claim(setting, "MC-Dropout has a lower ECE", rows, "MC-Dropout (5)", "SGD"),
        better_claim(setting, alone, rows, "SAM", "SGD"),
        better_claim(setting, together, rows, ensembles["SAM"], ensembles["SGD"]),
    ]


def better_claim(
    setting: Setting,
    statement: str,
    rows: dict[str, MethodScores],
    one: str,
    other: str,
    key: str = "ece",
) -> Claim:
    """Judge whether one method has a better mean ECE or accuracy than another."""
    if one not in rows or other not in rows:
        return claim_without_runs(statement)
    ours = rows[one].mean(key)
    theirs = rows[other].mean(key)
    return judge(
        statement,
        found=f"{100 * ours:.2f} : {100 * theirs:.2f} "
        f"(n = {len(rows[one].scores)} : {len(rows[other].scores)})",
        paper="yes, in CSAM's Table 1",
        holds=ours > theirs if key == "accuracy" else ours < theirs,
        reasons=[setting.why_not_judged_on_cifar],
    )
