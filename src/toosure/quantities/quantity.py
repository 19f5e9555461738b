"""An entry of the table of quantities, and functions to query the table.

Functions are named as text, so that pages need no torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any, Literal

Place = Literal["table", "panel", "progress", "notebook", "tile", "first"]
Cost = Literal[
    "none",  # nothing: the watch counts it, or a page takes the difference of two columns
    "given",  # nothing: the training loop gives it to `Watch.step`
    "logits",  # one forward pass, which all such quantities share
    "curvature",  # passes forth and back: `CurvatureTracker`
    "forwards",  # one pass forth and back and a few forth: `critical_sharpness`
    "certificate",  # the margin theorems: `certify`
    "sam_step",  # the theory of SAM on one batch: `certify_sam`
    "fit",  # a temperature, fitted on half of the split
    "file",  # it is a file and no number
]
HEADINGS = ("Binned errors", "Errors without bins", "Scores", "Ranking")  # of an evaluation


@dataclass(frozen=True)
class Quantity:
    """Describe one number.

    `compute` is "module:function". The function gets the arguments that `takes` names, from what
    is known of a split (`toosure.watch.outputs.Outputs`): `logits`, `labels`, `confidence`,
    `correct`, `margins`, `sorted_margins`, `bins`; and `options` besides. With a `group`,
    `toosure evaluate` states it too: by the function `toosure.metrics.KEY` of (logits, labels),
    or `KEY_from_confidence` if there is one, else by `compute` as the watch calls it.

    `shown` maps a place to the position there: `table` (`toosure runs` and the comparison),
    `panel` (along training), `progress` (the line while a run goes on), `notebook`, `tile` (the
    numbers on top of a page), `first` (what `toosure evaluate` prints without `--all`).
    `importance` decides what stays where space is short.

    >>> QUANTITIES["ece"].heading, QUANTITIES["ece"].better
    ('ECE, points', 'lower')
    """

    key: str
    name: str  # in full: "expected calibration error"
    says: str  # its meaning, a sentence without its full stop
    label: str = ""  # a short name, if the full one is long: "ECE"
    unit: str = ""  # as shown, after `scale`
    scale: float = 1
    form: str = ".3f"  # how it is printed, after `scale`
    log: bool = False  # drawn on a logarithmic axis
    better: Literal["", "lower", "higher"] = ""
    splits: tuple[str, ...] = ("train", "val")  # empty: of the whole row; evaluation: in no row
    cost: Cost = "logits"  # what it takes to know it
    measure: str = ""  # the word of `--measure` that asks for it; empty: always measured
    compute: str = ""
    takes: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    shown: Mapping[Place, int] = field(default_factory=dict)
    importance: int = 0
    terminal_split: str = ""  # shown of this split in the terminal; empty: of validation
    group: str = ""  # its heading in `toosure evaluate`
    # How its interval is found there: from sums over cells of equal confidence (fast), by calling
    # the function for every replica (slow, at most 200 times), or not at all.
    resampled: Literal["", "cells", "calls"] = ""
    binned: bool = False  # takes the bins that an evaluation was asked for
    pairwise: bool = False  # compares all pairs of examples
    needs_classes: bool = False  # confidences alone are not enough, though a function takes them

    @property
    def heading(self) -> str:
        """The short name with its unit."""
        short = self.label or self.name
        return f"{short}, {self.unit}" if self.unit else short

    @property
    def short(self) -> str:
        """The short name."""
        return self.label or self.name

    @property
    def title(self) -> str:
        """The full name, as the title of a panel."""
        return self.name[:1].upper() + self.name[1:]

    @cached_property
    def function(self) -> Any:
        """The function that computes it, loaded when it is first asked for."""
        module, _, name = self.compute.partition(":")
        return getattr(import_module(module), name)


QUANTITIES: dict[str, Quantity] = {}


def register(*entries: Quantity) -> None:
    """Add quantities to the table; from then on they are measured and shown.

    A second entry with the same key replaces the first.
    """
    QUANTITIES.update((entry.key, entry) for entry in entries)


# Companions of a curvature quantity: its relative error, and a flag if the solver gave up.
COMPANIONS = ("_error", "_unconverged")


def in_row(split: str = "") -> list[Quantity]:
    """Return the quantities that a row may hold on a split, in the order of the table."""
    return [q for q in QUANTITIES.values() if split in q.splits or (not split and not q.splits)]


def shown_in(place: Place) -> list[Quantity]:
    """Return the quantities shown at a place, in their order there."""
    entries = [q for q in QUANTITIES.values() if place in q.shown]
    return sorted(entries, key=lambda q: q.shown[place])


def measures() -> tuple[str, ...]:
    """Return the words of `--measure`, in the order in which a config names them."""
    return tuple(dict.fromkeys(q.measure for q in QUANTITIES.values() if q.measure))


def evaluation_groups() -> dict[str, tuple[str, ...]]:
    """Return the metrics of `toosure evaluate`: keys by heading."""
    names = dict.fromkeys([*HEADINGS, *(q.group for q in QUANTITIES.values() if q.group)])
    return {name: tuple(key for key, q in QUANTITIES.items() if q.group == name) for name in names}


def find(key: str) -> Quantity | None:
    """Return the entry of a row's key such as `val/ece`; None for a number of the user's own.

    >>> find("train/gn_sharpness_error").key, find("train/slack 4.1 (i)").key, find("val/mine")
    ('gn_sharpness', 'slack ', None)
    """
    whole = QUANTITIES.get(key)
    if whole is not None and not whole.splits:  # of the whole row, as control/rho
        return whole

    split, slash, name = key.rpartition("/")
    for suffix in COMPANIONS:
        name = name.removesuffix(suffix)
    entry = QUANTITIES.get("slack " if name.startswith("slack ") else name)
    if entry is None or bool(slash) != bool(entry.splits):
        return None
    return entry if not slash or split in entry.splits else None


def described(key: str) -> Quantity:
    """Return the entry of a key without its split; an unknown key is named by itself.

    >>> described("my_number").heading
    'my number'
    """
    return QUANTITIES.get(key) or Quantity(key, key.replace("_", " "), "", form=".4g")


def own_keys(keys: Sequence[str]) -> list[str]:
    """Return the keys that the table does not know: numbers of an objective or of the user."""
    return [key for key in keys if find(key) is None]


def markdown() -> str:
    """Return the keys of a row as two markdown tables, for the docs."""
    lines = ["Keys without a split:", "", "| key | |", "|---|---|"]
    rows = [q for q in in_row() if q.cost != "file"]
    lines += [f"| `{q.key}` | {in_cell(q.says)} |" for q in rows]

    lines += ["", "Keys of a split, each as `train/...` and, where there are validation data,"]
    lines += ["`val/...`:", "", "| key | | `--measure` |", "|---|---|---|"]
    for q in QUANTITIES.values():
        splits = [split for split in ("train", "val") if split in q.splits]
        if not splits or q.cost == "none":
            continue

        name = "slack NAME" if q.key == "slack " else q.key
        only = f"{splits[0]} only: " if len(splits) == 1 else ""
        measure = f"`{q.measure}`" if q.measure else ""
        lines.append(f"| `{name}` | {only}{in_cell(q.says)} | {measure} |")
    return "\n".join(lines)


def in_cell(text: str) -> str:
    """Escape the bars of a sentence, as in |g|, which would end a cell of a table."""
    return text.replace("|", r"\|")
