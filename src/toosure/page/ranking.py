"""Rank settings by validation NLL; those that cannot be ranked come last."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from toosure.figures import Group
from toosure.page.half_intervals import mean_over_seeds
from toosure.page.replicas import KEYS, replicas_of_run
from toosure.page.run_verdict import TEST, RunVerdict
from toosure.quantities import described
from toosure.runs import Run
from toosure.verdicts import judge_gap, plural, signed

ENDED_EARLY = ("diverged", "failed", "stopped", "interrupted")
WEAK_FACTOR = 1.5  # a gap below this many half widths is a weak finding
LAST_NUMBERS = ("nll", "accuracy", "ece", "smece", "seconds")  # what is known of a setting's end


@dataclass(frozen=True)
class RankedSetting:
    """A setting at its end: means over seeds, on the data that judge."""

    group: Group
    values: Mapping[str, float]  # by key, in the unit of its column
    spreads: Mapping[str, float]  # standard deviations over seeds
    verdict: RunVerdict
    n: int  # examples behind the verdict
    is_ranked: bool  # it has validation data, some seed ended as it should, and it is no repeat
    left_out: int = 0  # runs that ended early, or have no validation data, where others do not
    data: str = ""  # its data set

    @property
    def label(self) -> str:
        return self.group.label

    @property
    def nll(self) -> float:
        return self.values.get("nll", math.nan)

    @property
    def is_weak(self) -> bool:
        """Whether the interval of the gap almost touches 0."""
        gap, half = abs(self.verdict.gap), self.verdict.half_width
        return self.verdict.kind in ("over", "under") and gap < WEAK_FACTOR * half


def rank_setting(group: Group, verdicts: Mapping[str, RunVerdict], data: str = "") -> RankedSetting:
    """Return the numbers and the verdict that a setting is ranked by.

    Seeds that ended early or have no validation data are left out if there are others.
    """
    sound = [run for run in group.runs if run.status not in ENDED_EARLY]
    candidates = sound or list(group.runs)
    runs = [run for run in candidates if not run.training_only] or candidates

    values: dict[str, float] = {}
    spreads: dict[str, float] = {}
    for key in LAST_NUMBERS:
        last = [value_behind(verdicts[run.id], run, key) for run in runs]
        known = [described(key).scale * value for value in last if value is not None]
        if known:
            values[key] = float(np.mean(known))
        if len(known) > 1:
            spreads[key] = float(np.std(known, ddof=1))

    has_data = any(not run.training_only and run.count for run in runs)
    own = [verdicts[run.id] for run in runs]
    verdict = own[0] if len(own) == 1 else verdict_over_seeds(own)
    left_out = len(group.runs) - len(runs)
    is_ranked = bool(sound) and has_data and not group.repeats
    return RankedSetting(group, values, spreads, verdict, verdict.n, is_ranked, left_out, data)


def verdict_over_seeds(verdicts: Sequence[RunVerdict]) -> RunVerdict:
    """Judge the mean gap of several seeds."""
    judged = [verdict for verdict in verdicts if verdict.kind != "none"]
    if not judged:
        return verdicts[0]
    mean = mean_over_seeds([verdict.estimate for verdict in judged])
    n = min(verdict.n for verdict in judged)
    low, high = mean.ends(100)
    kind, sentence = judge_gap(mean.value / 100, low / 100, high / 100, n)

    seeds = f"{len(judged)} {plural(len(judged), 'seed')}"
    if kind == "unclear":
        too_few = seeds if mean.is_over_seeds else f"{n:,} {plural(n, 'sample')}, over {seeds}"
        sentence = f"Cannot tell with {too_few}: a gap of {signed(mean.value / 100)}"
        sentence += f" ± {mean.half_width:.1f} points"
    else:
        sentence += f", over {seeds}"
    on_test = all(verdict.on_test for verdict in judged)
    sentence += TEST if on_test else ""
    missing = len(verdicts) - len(judged)
    if missing:
        sentence += f"; {missing} without a verdict"
    return RunVerdict(
        kind,
        sentence,
        mean.value,
        mean.half_width,
        judged[0].training_only,
        n,
        len(judged),
        mean.seeds_half,
        on_test,
    )


def rank_settings(
    groups: Sequence[Group], verdicts: Mapping[str, RunVerdict], data_sets: Mapping[str, str]
) -> list[RankedSetting]:
    """Return the settings by their NLL on validation data; those that cannot be ranked come last.

    If no NLL was measured, the ECE decides. Verdicts and data sets are those of runs, by their id.
    """
    settings = [rank_setting(group, verdicts, data_sets[group.runs[0].id]) for group in groups]

    def order(setting: RankedSetting) -> tuple[bool, float, float]:
        nll = setting.nll if math.isfinite(setting.nll) else math.inf
        ece = setting.values.get("ece", math.inf)
        return not setting.is_ranked, nll, ece

    return sorted(settings, key=order)


def value_behind(verdict: RunVerdict, run: Run, key: str) -> float | None:
    """Return the last value of a quantity on the data that the verdict on a run is of."""
    if verdict.on_test and key in KEYS:
        scores = replicas_of_run(run, "test")
        return None if scores is None else float(scores.values[KEYS.index(key)])
    return last_value(run, key)


def last_value(run: Run, key: str) -> float | None:
    """Return the last value of a quantity on the split that judges, or of the whole row."""
    value = last_of(run, f"{run.split}/{key}")
    return last_of(run, key) if value is None else value


def last_of(run: Run, key: str) -> float | None:
    """Return the last finite value of a key."""
    values = run.columns.get(key)
    if values is None:
        return None
    finite = np.flatnonzero(np.isfinite(values))
    return float(values[finite[-1]]) if len(finite) else None
