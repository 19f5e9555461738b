"""Runs that differ only in their seed belong together, under the shortest name that tells them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


class Measured(Protocol):
    """What a figure needs of a run: `Run` has it, and so has a run that is being followed."""

    @property
    def name(self) -> str: ...
    @property
    def config(self) -> dict[str, Any]: ...
    @property
    def columns(self) -> Mapping[str, np.ndarray]: ...


@dataclass(frozen=True)
class Group:
    """Runs of one setting, and what to call them."""

    label: str
    runs: tuple[Any, ...]


def group_runs(runs: Sequence[Measured]) -> list[Group]:
    """Put runs of the same setting together, in the order of their first.

    A label says only what differs between the groups; a run without a config stays alone.
    """
    members: dict[str, list[Measured]] = {}
    for place, run in enumerate(runs):
        members.setdefault(setting_of(run, place), []).append(run)
    labels = labels_of([group[0] for group in members.values()])
    return [Group(label, tuple(each)) for label, each in zip(labels, members.values(), strict=True)]


def setting_of(run: Measured, place: int) -> str:
    """Return a text that is equal for runs which differ in their seed alone."""
    if not run.config:
        return str(place)
    return json.dumps({k: v for k, v in run.config.items() if k != "seed"}, sort_keys=True)


MAX_TEXT = 200  # letters of a setting in a label
FIRST = ("optimizer", "loss", "objective", "model", "data", "schedule", "batch")


def labels_of(runs: Sequence[Measured]) -> list[str]:
    """Return one label per run: as few settings as tell the runs apart, or its name."""
    keys = dict.fromkeys([*FIRST, *(key for run in runs for key in run.config if key != "seed")])
    labels = [""] * len(runs)
    chosen: list[str] = []
    for key in keys:
        longer = [label_of(run, [*chosen, key]) for run in runs]
        if len(set(longer)) > len(set(labels)) or key == FIRST[0]:
            labels = longer
            chosen.append(key)

    twice = {label for label in labels if labels.count(label) > 1}
    return [
        run.name if not label or label in twice else label
        for run, label in zip(runs, labels, strict=True)
    ]


def label_of(run: Measured, keys: Sequence[str]) -> str:
    return ", ".join(
        setting_text(key, run.config) for key in keys if run.config.get(key) is not None
    )


def setting_text(key: str, config: Mapping[str, Any]) -> str:
    """Return a setting as it would be typed; a word speaks for itself."""
    value = config[key]
    if isinstance(value, list):
        value = " ".join(map(str, value))
    words = ("data", "model", "optimizer", "loss", "objective", "schedule")
    text = str(value) if key in words else f"{key} {value}"
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"


def name_of(run: Measured, group: Group) -> str:
    """Return what to call one run of a group: its label, with the seed where there are several."""
    if len(group.runs) == 1:
        return group.label
    return f"{group.label}, seed {run.config.get('seed')}"
