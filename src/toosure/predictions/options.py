"""What a user says about a file of predictions, beyond the names in it."""

from collections.abc import Sequence
from dataclasses import dataclass

from toosure.predictions.predictions import Kind


def as_names(names: str | Sequence[str]) -> tuple[str, ...]:
    """Return one name, or several."""
    return (names,) if isinstance(names, str) else tuple(names)


@dataclass(frozen=True)
class ReadOptions:
    """How to read a file; the rest is told from its names and values."""

    kind: Kind | None = None
    split: str | None = None
    label: str | None = None  # the column or array of the true classes
    columns: tuple[str, ...] = ()  # of the scores, in the order of the classes
    classes: tuple[str, ...] = ()  # their names, in the order of the columns
    ignore_index: int | None = None  # rows with this label are left out
    unlabelled: bool = False  # without labels every row counts as class 0: for scores alone
    groups: str | None = None  # the column or array that says which rows come together

    def __post_init__(self) -> None:
        for option, words in (("--classes", self.classes), ("--columns", self.columns)):
            twice = [word for word in words if words.count(word) > 1]
            if twice:
                raise ValueError(f"{option} names {twice[0]} twice")


def check_classes(options: ReadOptions, classes: int | None) -> None:
    """Raise unless --classes, where it is given, names every class."""
    given = len(options.classes)
    if given and given != classes:
        raise ValueError(f"--classes must name {classes} classes in their order; {given} given")
