"""Carry out a recipe: train its missing runs, long ones first, then judge its claims."""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from toosure.config import RunConfig
from toosure.optim import BSAM, SAM
from toosure.recipes.json_lines import append_lines
from toosure.recipes.needed_runs import SavedScores, has_ended, missing_configs
from toosure.recipes.recipe import Claim, Drawing, Findings, Part, Recipe, Saves, Setting
from toosure.recipes.run_store import RunStore
from toosure.recipes.score_listener import scoring
from toosure.runs import Run
from toosure.runs.environment import environment
from toosure.sweep import Sweep, sweep
from toosure.sweep.jobs import Changes
from toosure.train import ProgressListener, Runtime
from toosure.train.graph import can_record
from toosure.watch.sink import device_name

LOG = "sweeps.jsonl"  # one record per sweep, beside its runs

# The cost of a measurement, in steps of SGD.
MEASUREMENT_COST = {"gn_sharpness": 60.0, "certificate": 2000.0, "batch_sharpness": 5000.0}

# The cost of a step on a GPU, where an MLP has 1 (benchmarks/results/models.md).
NETWORK_COST = {
    **{"resnet20": 6.0, "resnet18": 10.0, "resnet56": 18.0, "resnet50": 35.0, "resnet110": 36.0},
    **{"wrn": 12.0, "wrn28_10": 48.0, "vit": 17.0, "vit_s32": 17.0, "vit_s16": 35.0},
    **{"densenet": 50.0, "densenet40": 50.0, "densenet_bc100": 70.0},
    **{"pyramidnet": 60.0, "pyramidnet110": 60.0},
}
# In steps of cross-entropy, as runs of the benchmark took; bSAM takes 16 passes over small batches.
OBJECTIVE_COST = {
    **{"gamma_net": 1.4, "mc_dropout": 1.5, "mit": 2.0, "vi": 3.0, "mimo": 3.5},
    **{"batch_ensemble": 5.0, "rank1": 7.5, "ccat": 51.0},
}
BSAM_COST = 12.0


@dataclass
class Outcome:
    """The result of a recipe by part: findings, figures, runs, and runs that cannot be used."""

    recipe: Recipe
    setting: Setting
    out: Path
    findings: dict[str, Findings] = field(default_factory=dict)
    drawings: dict[str, list[Drawing]] = field(default_factory=dict)
    runs: dict[str, list[Run]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)  # run name -> missing, diverged ...
    without_runs: list[str] = field(default_factory=list)  # parts that need other data

    @property
    def claims(self) -> list[Claim]:
        return [claim for findings in self.findings.values() for claim in findings.claims]

    @property
    def failed(self) -> list[Claim]:
        return [claim for claim in self.claims if claim.passed is False]


def train_parts(
    parts: Sequence[Part],
    setting: Setting,
    out: Path,
    runtime: Runtime,
    listener_for: Callable[[Sequence[RunConfig]], ProgressListener] | None = None,
    workers: int = 1,
    limit: int | None = None,
    minutes: float | None = None,
) -> Sweep:
    """Train the missing runs of the parts; return the runs, their failures, and if it was stopped.

    A run with saved scores in `setting.scores` is not missing. `limit` is the number of runs to
    train, in the order of the parts and their rows. No run is started after `minutes`; short runs
    then go first, so that many end, and finished runs are judged all the same. Scores are saved as
    soon as a run ends. `listener_for` is called with the missing runs.
    """
    configs = dict.fromkeys(config for part in parts for config in part.configs(setting))
    mixtures = [mixture for part in parts for mixture in part.mixtures(setting)]
    in_order = longest_first if minutes is None else shortest_first
    missing = in_order(list(missing_configs(configs, setting, out, mixtures))[:limit])

    progress = listener_for(missing) if listener_for else ProgressListener()
    began = time.perf_counter()
    deadline = None if minutes is None else time.monotonic() + 60 * minutes

    saved = SavedScores(setting, mixtures, with_shifts=True)
    saves = saves_by_run(parts, setting, saved)
    with scoring(progress, setting.scores, saves, beside=workers > 1) as listener:
        changes = partial(runtime_changes, runtime=runtime, saved=saved)
        done = sweep(missing, out, runtime, listener, workers, deadline=deadline, changes=changes)

    for part in parts:
        if part.after_training is not None and not done.interrupted:
            part.after_training(setting, RunStore(out), runtime)

    if done.runs:
        ended = sum(has_ended(out / config.name) for config in missing)
        log_sweep(out, parts, runtime, workers, ended, time.perf_counter() - began)
    return done


def runtime_changes(config: RunConfig, runtime: Runtime, saved: SavedScores) -> Changes:
    """Return what the runtime of one run differs in.

    A graph is only for runs that one can record (`can_record`). Runs that only a mixture needs are
    not judged on shifts: the mixture is.
    """
    changes: Changes = {}
    if runtime.graph and not can_record(config):
        changes["graph"] = False
    if runtime.shifts is not None and not saved.needs_scores(config):
        changes["shifts"] = None
    return changes


def saves_by_run(parts: Sequence[Part], setting: Setting, saved: SavedScores) -> dict[str, Saves]:
    """Return what is saved of each run, by name; nothing of runs that only a mixture needs."""
    return {
        config.name: part.saves
        for part in parts
        for config in part.configs(setting)
        if saved.needs_scores(config)
    }


def longest_first(configs: Iterable[RunConfig]) -> list[RunConfig]:
    """Return each run once, the most expensive first; runs on the same data stay together."""
    distinct = list(dict.fromkeys(configs))

    highest: dict[str, float] = {}  # by data set
    for config in distinct:
        highest[config.data] = max(cost(config), highest.get(config.data, 0.0))

    return sorted(distinct, key=lambda c: (-highest[c.data], c.data, -cost(c)))


def shortest_first(configs: Iterable[RunConfig]) -> list[RunConfig]:
    """Return each run once, the cheapest first: so most runs end before a deadline.

    Runs of equal cost keep their order, so that the seeds of a row and the members of a mixture
    follow one another.
    """
    return sorted(dict.fromkeys(configs), key=cost)


def cost(config: RunConfig) -> float:
    """Estimate the cost of a run, in steps of SGD on an MLP."""
    step = optimizer_cost(config) * objective_cost(config)
    network = NETWORK_COST.get(config.model.partition(":")[0], 1.0)

    measurements = len(config.at) or config.steps / config.every
    measuring = sum(MEASUREMENT_COST.get(name, 0.0) for name in config.measure)
    return network * config.steps * step + measurements * measuring


def optimizer_cost(config: RunConfig) -> float:
    """Return the cost of an optimizer's step, in steps of SGD."""
    word = config.word("optimizer")
    if word.name == "muon":
        return 1.5
    if word.name == "bulksgd":
        k = int(word.settings.get("k", 1))
        rounds = int(word.settings.get("rounds") or 0)
        products = 2.0 * rounds * (k + 2) if rounds else 12.0 * k
        return 1 + products / int(word.settings.get("refresh", 1))

    target = word.method.target
    if target is BSAM:
        return BSAM_COST
    return 2.0 if isinstance(target, type) and issubclass(target, SAM) else 1.0


def objective_cost(config: RunConfig) -> float:
    """Return the cost of an objective's step, in steps of cross-entropy, as timed on a GPU."""
    if config.objective is None:
        return 1.0
    word = config.word("objective")
    if word.name == "calmo":
        left_out = {name for name, value in word.settings.items() if value == 0}
        return 1.0 + 2.0 * ("robust" not in left_out) + 3.0 * ("smooth" not in left_out)
    return OBJECTIVE_COST.get(word.name, 1.0)


def log_sweep(
    out: Path, parts: Sequence[Part], runtime: Runtime, workers: int, ended: int, seconds: float
) -> None:
    """Append a record of the device, command and duration of a sweep."""
    record = environment(device_name(runtime.torch_device), workers=workers, graph=runtime.graph)
    record |= {"parts": [part.name for part in parts], "trained": ended, "seconds": seconds}
    append_lines(out / LOG, [json.dumps(record)])


def judge_parts(recipe: Recipe, parts: Sequence[Part], setting: Setting, out: Path) -> Outcome:
    """Read the runs of the parts and judge their claims; missing runs become `problems`."""
    outcome = Outcome(recipe, setting, out)
    for part in parts:
        configs = dict.fromkeys(part.configs(setting))
        if not configs:
            outcome.without_runs.append(part.name)

        saved = SavedScores(setting, part.mixtures(setting))
        store = RunStore(out, {c.name for c in configs if not saved.needs_folder(c)})
        outcome.runs[part.name] = store.runs(configs, diverged=True)
        if outcome.runs[part.name] or saved.has_any(configs):
            try:
                outcome.findings[part.name] = part.findings(setting, store)
                outcome.drawings[part.name] = part.drawings(setting, store)
            except KeyError as error:
                raise ValueError(f"{part.name}: rows of a run in {out} lack {error}") from error

        outcome.problems |= store.problems
    return outcome
