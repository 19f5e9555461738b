"""The names of the classes of a table: as given, of its columns, or the numbers in these."""

from collections.abc import Sequence

import numpy as np

from toosure.predictions.labels import by_position, own_names_or_shorter, spelled_labels
from toosure.predictions.numbered_columns import names_by_number
from toosure.predictions.options import ReadOptions, check_classes
from toosure.predictions.truth_words import BOOLEANS, POSITIVE
from toosure.predictions.usual_names import class_of, listed_columns


def shown_names(
    chosen: Sequence[str], class_names: tuple[str, ...], options: ReadOptions
) -> tuple[str, ...]:
    """Return the names of the classes for readers: class_1 and class_2, if labels are 1 and 2."""
    own_names = tuple(class_of(name) for name in chosen)
    are_numbers = all(name.isdecimal() for name in class_names)
    if options.classes or len(own_names) != len(class_names) or not are_numbers:
        return class_names
    return own_names


def check_positive_second(labels: np.ndarray, names: Sequence[str], chosen: Sequence[str]) -> None:
    """Refuse labels 0 and 1 of columns that are named yes and no, in this order."""
    if len(names) != 2 or len(chosen) != 2 or not by_position(labels, names):
        return
    if not {text.lower() for text in spelled_labels(labels)} <= set(BOOLEANS):  # 1 and 2, say
        return
    if [POSITIVE.get(name.lower()) for name in names] == [True, False]:
        raise ValueError(
            f"labels 0 and 1 number the columns, so that 0 would be {names[0]}: if 1 is "
            f"{names[0]}, say --columns {chosen[1]},{chosen[0]}; else --classes {','.join(names)}"
        )


def check_order(chosen: Sequence[str], width: int, classes: Sequence[str]) -> None:
    """Refuse classes in another order than the names of their columns."""
    own = [class_of(name) for name in chosen]
    if width == 1 and own[0] == classes[0] and not own[0].isdecimal():
        raise ValueError(
            f"{chosen[0]!r} is named as the probability of {own[0]}, and --classes has "
            f"{classes[1]} as class 1: write --classes {classes[1]},{classes[0]}"
        )
    if len(own) == width > 1 and set(own) == set(classes) and own != list(classes):
        raise ValueError(
            f"--classes has {listed_columns(classes)}, and the columns are named "
            f"{listed_columns(own)}, in this order: leave --classes out, or name --columns in the "
            "order that you mean"
        )


def names_of(
    chosen: Sequence[str], width: int, labels: np.ndarray, options: ReadOptions
) -> tuple[str, ...]:
    """Return the names of the classes: as given, or of the columns; none if unknown."""
    classes = max(width, 2)
    if options.classes:
        check_classes(options, classes)
        check_order(chosen, width, options.classes)
        return options.classes
    if len(chosen) == width > 1:
        own_names = tuple(class_of(name) for name in chosen)
        spelled = spelled_labels(labels)
        return names_by_number(own_names_or_shorter(own_names, spelled), spelled)

    # One column named by its class, as p_spam: the other label is class 0.
    words = np.unique(np.char.strip(labels.astype(str))).tolist()
    own = class_of(chosen[0])
    if width == 1 and own in words and len(words) == 2 and not own.isdecimal():
        return (next(label for label in words if label != own), own)
    return ()
