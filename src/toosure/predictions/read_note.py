"""Say in a line which columns of a table were read, and as what."""

from collections.abc import Sequence

import numpy as np

from toosure.predictions.labels import by_name_note, by_position
from toosure.predictions.predictions import Kind
from toosure.predictions.truth_words import word_of_class_one
from toosure.predictions.usual_names import listed_columns

KIND_WORDS: dict[Kind, str] = {
    "logits": "logit",
    "probs": "probability",
    "confidence": "confidence",
}


def scores_read(kind: Kind, chosen: Sequence[str], width: int, class_names: Sequence[str]) -> str:
    """Say which columns were read as scores, of what kind, and of one column of which class."""
    word = KIND_WORDS[kind]
    if len(chosen) == 1 and width > 1:
        return f"{width} {word} columns from {chosen[0]!r}"
    if len(chosen) == 1:
        named = f" ({class_names[1]})" if len(class_names) == 2 else ""
        return f"one {word} column {chosen[0]!r} of class 1{named}"
    return f"{len(chosen)} {word} columns {listed_columns(chosen)}"


def labels_read(
    label: str | None,
    labels: np.ndarray,
    class_names: Sequence[str],
    shown: Sequence[str],
    binary: bool,
) -> str:
    """Return where labels come from, and what they mean if that is not obvious.

    `class_names` are those that labels are compared with, `shown` those for readers.
    """
    if label is None:
        return "no labels"
    meant = by_name_note(class_names)
    first_two: Sequence[str] = ()
    if by_position(labels, class_names):
        first_two = ("0", "1")
    elif tuple(shown) != tuple(class_names):
        first_two = class_names[:2]
    if first_two:
        meant = ", ".join(f"{k} is {name}" for k, name in zip(first_two, shown, strict=False))
        meant += ", and so on" if len(class_names) > 2 else ""
    if binary and not class_names and (one := word_of_class_one(labels)):
        meant = f"{one!r} is class 1"
    return f"labels from {label!r}" + (f" ({meant})" if meant else "")
