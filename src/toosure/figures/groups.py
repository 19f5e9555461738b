"""Group runs that differ only in their seed, under the shortest distinct label."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


class Measured(Protocol):
    """What a figure needs of a run; `Run` has it."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def config(self) -> dict[str, Any]: ...
    @property
    def columns(self) -> Mapping[str, np.ndarray]: ...


@dataclass(frozen=True)
class Group:
    """Runs of one setting, each of another seed, with a label and a name for each."""

    label: str
    runs: tuple[Any, ...]
    names: tuple[str, ...]  # of the runs: the label, with the seed if there are several
    repeats: str = ""  # the label of the setting whose seeds these runs repeat


MAX_TEXT = 200  # characters of a setting in a label
WORDS = ("optimizer", "loss", "objective", "model", "data", "schedule")  # settings that are words
FIRST = ("optimizer", "loss", "objective", "model", "data", "schedule", "batch")
MEASURING_SETTINGS = (  # they change no weight
    "every",
    "at",
    "budget",
    "measure",
    "eps",
    "curvature_examples",
    "curvature_loss",
)


def group_runs(
    runs: Sequence[Measured],
    data_sets: Sequence[str] = (),
    yielding: Collection[Any] = (),
) -> list[Group]:
    """Group runs of the same setting, in the order of their first run.

    A label holds every setting of the training in which groups differ, and what they measure only
    if nothing else differs. A run without a config is a group of its own, under its name (its id
    where names repeat).
    `data_sets` names the data of the runs whose config does not. Runs that share a setting and a
    seed are repeats: one of them stands for the seed, and the others follow as groups of their own.
    It is the first one that is not among those in `yielding`.
    """
    members: dict[str, list[Measured]] = {}
    settings: dict[str, dict[str, Any]] = {}  # of each group
    for place, run in enumerate(runs):
        setting = without_seed(run.config)
        if run.config and data_sets and not setting.get("data"):
            setting["data"] = data_sets[place] or None
        text = json.dumps(setting, sort_keys=True) if run.config else str(place)
        members.setdefault(text, []).append(run)
        settings[text] = setting

    labels = distinct_labels(list(settings.values()), list(members.values()))
    groups = []
    for label, group in zip(labels, members.values(), strict=True):
        first, *others = parted_by_seed(group, yielding)
        groups.append(named_group(label, first))
        groups += [
            named_group(f"{label}, repeat {number}", repeated, label)
            for number, repeated in enumerate(others, start=1)
        ]
    return groups


def distinct_labels(
    settings: Sequence[Mapping[str, Any]], members: Sequence[Sequence[Measured]]
) -> list[str]:
    """Return the labels of groups; one that is empty or shared gives way to a run's name or id."""
    firsts = [group[0] for group in members]
    labels = setting_labels(settings)
    count = Counter(labels)
    pairs = list(zip(labels, firsts, strict=True))
    labels = [label if label and count[label] == 1 else first.name for label, first in pairs]

    count = Counter(labels)
    pairs = list(zip(labels, firsts, strict=True))
    return [label if count[label] == 1 else first.id for label, first in pairs]


def parted_by_seed(runs: Sequence[Measured], yielding: Collection[Any]) -> list[list[Measured]]:
    """Part the runs of one setting so that no part has a seed twice; each keeps their order.

    A run whose config names no seed counts as a seed of its own.
    """
    places = sorted(range(len(runs)), key=lambda place: runs[place] in yielding)
    count: Counter[object] = Counter()
    part_of: dict[int, int] = {}
    for place in places:
        seed = seed_of(runs[place])
        part_of[place] = count[seed] if seed is not None else 0
        count[seed] += 1
    return [
        [run for place, run in enumerate(runs) if part_of[place] == part]
        for part in range(max(part_of.values()) + 1)
    ]


def seed_of(run: Measured) -> str | None:
    """Return the seed of a run as text; None if its config names none."""
    seed = run.config.get("seed")
    return None if seed is None else str(seed)


def named_group(label: str, runs: Sequence[Measured], repeats: str = "") -> Group:
    """Return a group with a name for each run: the label, with the seed if there are several."""
    names = [f"{label}, seed {run.config.get('seed')}" for run in runs]
    return Group(label, tuple(runs), tuple(names) if len(runs) > 1 else (label,), repeats)


def setting_labels(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a label for each config, longer by each setting in which they differ.

    The optimizer is always named. What is measured is named only where nothing else differs.
    """
    labels = [""] * len(configs)
    keys = dict.fromkeys([*FIRST, *(key for config in configs for key in config)])
    for key in sorted(keys, key=lambda key: key in MEASURING_SETTINGS):
        longer = list(labels)
        for place, config in enumerate(configs):
            if config.get(key) is not None:
                longer[place] += ", " * bool(labels[place]) + setting_text(key, config)

        values = {json.dumps(config.get(key)) for config in configs if config}
        tells_more = len(set(longer)) > len(set(labels))
        if tells_more or key == FIRST[0] or (len(values) > 1 and key not in MEASURING_SETTINGS):
            labels = longer
    return labels


def without_seed(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config without its seed, and without its data's seed if that is the same.

    >>> without_seed({"data": "digits:train=400,seed=3", "seed": 3})
    {'data': 'digits:train=400'}
    """
    setting = {key: value for key, value in config.items() if key != "seed"}
    name, _, rest = str(setting.get("data", "")).partition(":")
    own = f"seed={config.get('seed')}"
    if own in rest.split(","):
        others = ",".join(part for part in rest.split(",") if part != own)
        setting["data"] = f"{name}:{others}" if others else name
    return setting


def setting_text(key: str, config: Mapping[str, Any]) -> str:
    """Return a setting as on the command line; a word without the option's name."""
    value = config[key]
    if isinstance(value, list):
        value = " ".join(map(str, value)) or "none"
    text = str(value) if key in WORDS else f"{key} {value}"
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"


def settings_of(config: Mapping[str, Any]) -> dict[str, str]:
    """Return every setting of a config as text, with settings inside words by their names.

    >>> settings_of({"optimizer": "sgd:lr=0.1,momentum=0.9", "steps": 500, "seed": 0})
    {'optimizer': 'sgd', 'lr': '0.1', 'momentum': '0.9', 'steps': '500'}
    """
    settings: dict[str, str] = {}
    for key, value in without_seed(config).items():
        if value is None or isinstance(value, dict):
            continue
        text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
        if key not in WORDS:
            settings.setdefault(key, text[:MAX_TEXT])
            continue

        name, _, rest = text.partition(":")
        settings[key] = name[:MAX_TEXT]
        for part in rest.split(","):
            inner, sign, given = part.partition("=")
            if sign:
                settings.setdefault(inner, given[:MAX_TEXT])
    return settings
