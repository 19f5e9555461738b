"""Which runs are of one data set: by the name that they give, else by their labels."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from toosure.runs import Run

UNNAMED = "unnamed data"
HOW_TO_NAME = (
    "Runs that do not name their data are kept apart by their labels; "
    '`Watch(..., config={"data": "mine"})` names them.'
)


class Labels(NamedTuple):
    """The labels that judge a run which does not name its data, as far as they are known."""

    digest: str  # equal for equal labels
    rows: int
    classes: int
    seed: tuple[str, str]  # of the run, and of the draw of its examples; empty if there is none


def data_sets_of(runs: Sequence[Run]) -> dict[str, str]:
    """Return the data set of each run, by the run's id.

    A run that names its data is of the data of that name. Others are of one data set if their
    labels are the same, or differ by seed alone; it is named by what is known of them, or "" if
    there is only one.
    """
    data_sets = {run.id: data_set_of(run.config) for run in runs}
    unnamed = labels_of([run for run in runs if not data_sets[run.id]])
    joined = joined_by_seed(unnamed.values())
    digests = {run: joined.get(labels.digest, labels.digest) for run, labels in unnamed.items()}
    if len(set(digests.values())) < 2:
        return data_sets

    names: dict[str, str] = {}  # by digest
    for run, digest in digests.items():
        if digest not in names:
            name = described(unnamed[run])
            repeats = name in names.values()
            names[digest] = described(unnamed[run], digest[:6] if repeats else "")
    return data_sets | {run: names[digest] for run, digest in digests.items()}


def data_set_of(config: Mapping[str, Any]) -> str:
    """Return the data set that a config names: its name, and its path if it has one.

    >>> data_set_of({"data": "digits:train=400"}), data_set_of({"data": "imagefolder:cats,size=8"})
    ('digits', 'imagefolder:cats')
    >>> data_set_of({"data": 'imagefolder:"pets/kind=cats",size=8'})
    'imagefolder:pets/kind=cats'
    """
    name, _, rest = str(config.get("data") or "").partition(":")
    parts = (part.removeprefix("path=") for part in re.findall(r'"[^"]*"|[^,]+', rest))
    places = [part.strip('"') for part in parts if not re.match(r"\w+=", part)]
    return ":".join([name, *places])


def labels_of(runs: Sequence[Run]) -> dict[str, Labels]:
    """Return what the notes of each run's loop say of its labels, by the run's id."""
    notes = {run.id: note_of(run) for run in runs}

    # Earlier versions noted a hash of inputs and labels together; another run may know both.
    known = {note.get("sha256"): note["labels"] for note in notes.values() if "labels" in note}
    labels = {}
    for run in runs:
        note = notes[run.id]
        examples = note.get("sha256", "")
        digest = note.get("labels") or known.get(examples, examples)
        rows, classes = (note.get(key) or 0 for key in ("rows", "classes"))
        seeds = (str(notes.get("seed", "")) for notes in (run.config, note))
        labels[run.id] = Labels(digest, rows, classes, (next(seeds), next(seeds)))
    return labels


def note_of(run: Run) -> dict[str, Any]:
    """Return the note on the examples that judge a run: validation, or training without it.

    Entries of the wrong type are left out.
    """
    note = run.examples.get("val", run.examples.get("train"))
    entries = note.items() if isinstance(note, dict) else ()
    kinds = {"rows": int, "classes": int, "sha256": str, "labels": str}
    return {key: value for key, value in entries if isinstance(value, kinds.get(key, object))}


def joined_by_seed(labels: Iterable[Labels]) -> dict[str, str]:
    """Return one digest for the labels that differ by seed alone, by their own.

    They are equally many, of as many classes, and every seed has labels of its own: then the seed
    splits or draws the data. Two tasks that were run with the same seeds are kept apart by this.
    """
    alike: dict[tuple[object, ...], set[tuple[tuple[str, str], str]]] = defaultdict(set)
    for each in labels:
        known_seeds = tuple(map(bool, each.seed))
        alike[each.rows, each.classes, known_seeds].add((each.seed, each.digest))

    joined: dict[str, str] = {}
    for pairs in alike.values():
        seeds, digests = map(set, zip(*pairs, strict=True))
        if len(seeds) == len(digests) == len(pairs):
            joined |= dict.fromkeys(digests, min(digests))
    return joined


def described(labels: Labels, digest: str = "") -> str:
    """Say what is known of data without a name.

    >>> described(Labels("", 1000, 5, ("0", "0"))), described(Labels("", 90, 0, ("", "")), "ab12")
    ('unnamed data (5 classes, 1,000 examples)', 'unnamed data (90 examples, labels ab12)')
    """
    known = [f"{labels.classes} classes"] if labels.classes else []
    known += [f"{labels.rows:,} examples"] if labels.rows else []
    known += [f"labels {digest}"] if digest else []
    return f"{UNNAMED} ({', '.join(known)})" if known else UNNAMED


def how_to_name(data_sets: Iterable[str]) -> str:
    """Return how to name data, if several data sets have no name; else an empty text."""
    unnamed = [name for name in data_sets if name.startswith(UNNAMED)]
    return HOW_TO_NAME if len(unnamed) > 1 else ""
