"""Carry a recipe out: its runs through the ordinary sweep, long ones first, then the findings."""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from toosure.config import RunConfig
from toosure.recipes.recipe import Claim, Drawing, Findings, Part, Recipe, Setting, Shelf
from toosure.runs import Run
from toosure.runs.environment import environment
from toosure.sweep import Sweep, sweep
from toosure.train import Means, ProgressListener
from toosure.train.graph import can_record
from toosure.watch.sink import device_name

LOG = "sweeps.jsonl"


@dataclass
class Outcome:
    """What came of a recipe: findings a part, the runs behind each, and what went wrong."""

    recipe: Recipe
    setting: Setting
    out: Path
    findings: dict[str, Findings] = field(default_factory=dict)
    drawings: dict[str, list[Drawing]] = field(default_factory=dict)
    runs: dict[str, list[Run]] = field(default_factory=dict)
    ill: dict[str, str] = field(default_factory=dict)  # run name -> missing, diverged at step ...
    elsewhere: list[str] = field(default_factory=list)  # parts that have no runs on these data

    @property
    def claims(self) -> list[Claim]:
        return [claim for found in self.findings.values() for claim in found.claims]

    @property
    def failed(self) -> list[Claim]:
        return [claim for claim in self.claims if claim.passed is False]


def train_parts(
    parts: Sequence[Part],
    setting: Setting,
    out: Path,
    means: Means,
    show_for: Callable[[Sequence[RunConfig]], ProgressListener] = lambda _: ProgressListener(),
    workers: int = 1,
) -> Sweep:
    """Carry out what is missing of the parts' runs; return them, what failed, and if it stopped.

    `show_for` is given the runs to carry out. `means.graph` is used where a graph can be had:
    runs that decide on the host (BulkSGD) go without, before the others.
    """
    configs = ordered(config for part in parts for config in part.configs(setting))
    missing = [config for config in configs if not is_done(out / config.name)]
    show, began, done = show_for(missing), time.perf_counter(), Sweep()
    for graph in (False, True):
        chosen = [c for c in missing if (means.graph and can_record(c)) == graph]
        if chosen and not done.stopped:
            some = sweep(chosen, out, replace(means, graph=graph), show, workers)
            done.runs += some.runs
            done.failures |= some.failures
            done.stopped = some.stopped
    if done.runs:
        ended = sum(is_done(out / config.name) for config in missing)
        note(out, parts, means, workers, ended, time.perf_counter() - began)
    return done


def ordered(configs: Iterable[RunConfig]) -> list[RunConfig]:
    """Return each run once, runs on the same data together, the dearest first."""
    each = list(dict.fromkeys(configs))
    dearest = {c.data: max(cost(o) for o in each if o.data == c.data) for c in each}
    return sorted(each, key=lambda c: (-dearest[c.data], c.data, -cost(c)))


def cost(config: RunConfig) -> float:
    """Guess what a run costs, in steps of SGD on the same network."""
    word = config.word("optimizer")
    solved = 12.0 * int(word.settings.get("k", 1)) / int(word.settings.get("refresh", 1))
    passes = {"sam": 2.0, "csam": 2.0, "muon": 1.5, "bulksgd": 1 + solved}.get(word.name, 1.0)
    objective = config.objective.partition(":")[0] if config.objective else ""
    passes *= {"calmo": 10.0, "gamma_net": 4.0}.get(objective, 1.0)
    network = 10.0 if config.model.startswith("resnet") else 1.0
    looks = len(config.at) or config.steps / config.every
    dear = {"gn_sharpness": 60.0, "certificate": 2000.0, "batch_sharpness": 5000.0}
    return network * config.steps * passes + looks * sum(dear.get(m, 0.0) for m in config.measure)


def is_done(folder: Path) -> bool:
    return folder.is_dir() and Run(folder).status in ("complete", "diverged")


def note(
    out: Path, parts: Sequence[Part], means: Means, workers: int, ended: int, seconds: float
) -> None:
    """Remember what a sweep took, beside its runs."""
    record = environment(device_name(means.torch_device), workers=workers, graph=means.graph)
    record |= {"parts": [part.name for part in parts], "trained": ended, "seconds": seconds}
    with (out / LOG).open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def judge_parts(recipe: Recipe, parts: Sequence[Part], setting: Setting, out: Path) -> Outcome:
    """Read the runs of the parts and return what they say; runs that are missing are told."""
    outcome = Outcome(recipe, setting, out)
    for part in parts:
        shelf, configs = Shelf(out), dict.fromkeys(part.configs(setting))
        if not configs:
            outcome.elsewhere.append(part.name)
        outcome.runs[part.name] = shelf.runs(configs, diverged=True)
        if outcome.runs[part.name]:
            try:
                outcome.findings[part.name] = part.findings(setting, shelf)
                outcome.drawings[part.name] = part.drawings(setting, shelf)
            except KeyError as error:
                raise ValueError(f"{part.name}: rows of a run in {out} lack {error}") from error
        outcome.ill |= shelf.ill
    return outcome
