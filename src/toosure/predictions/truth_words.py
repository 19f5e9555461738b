"""Labels of two classes that are booleans or words for them, as yes and no."""

from collections.abc import Sequence

import numpy as np

from toosure.predictions.spellings import spellings_of, without_fraction

BOOLEANS = {
    **dict.fromkeys(("true", "1", "yes", "positive"), True),
    **dict.fromkeys(("false", "0", "no", "negative"), False),
}
POSITIVE = {**BOOLEANS, "pos": True, "neg": False}  # names of the two classes of a test


def word_of_class_one(values: np.ndarray) -> str:
    """Return how labels such as yes and no spell class 1; empty for 0 and 1, true and false, names.

    >>> word_of_class_one(np.array(["No", "Yes", "No"])), word_of_class_one(np.array(["0", "1"]))
    ('Yes', '')
    """
    if values.dtype.kind not in "UO":
        return ""
    spelled = np.unique(spellings_of(values)).tolist()
    words = [label for label in spelled if BOOLEANS.get(label.lower())]
    return words[0] if len(words) == 1 and words[0].lower() not in ("1", "true") else ""


def boolean_numbers(values: np.ndarray, names: Sequence[str], classes: int) -> np.ndarray:
    """Return 0 and 1 for booleans, which can only tell two classes apart."""
    if classes != 2:
        raise ValueError(
            f"labels are true or false, which cannot say which of {classes} classes is true"
        )
    numbers: np.ndarray = np.where(values, class_of_truth(names), 1 - class_of_truth(names))
    return numbers.astype(np.int64)


def class_of_truth(names: Sequence[str]) -> int:
    """Return the number of the class that true and yes mean: 1, unless class 0 is called so.

    >>> [class_of_truth(names) for names in (["cat", "dog"], ["1", "0"], ["True", "False"])]
    [1, 0, 0]
    """
    words = [without_fraction(name.lower()) for name in names]
    return 0 if words in (["1", "0"], ["true", "false"]) else 1


def parse_booleans(values: np.ndarray) -> np.ndarray:
    """Read true and false, 1 and 0, as a column of any file spells them."""
    spellings, inverse = np.unique(values.astype(str), return_inverse=True)
    truths = []
    for spelling in spellings.tolist():
        word = without_fraction(spelling.strip().lower())
        if word not in BOOLEANS:
            raise ValueError(f"correct must be true or false (1 or 0); got {spelling!r}")
        truths.append(BOOLEANS[word])
    return np.array(truths, dtype=bool)[inverse]
