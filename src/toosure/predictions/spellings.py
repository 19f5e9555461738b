"""Labels as text: 3.0 as "3", names without blanks around them."""

import re

import numpy as np

from toosure.predictions.missing_labels import missing_labels

FLOAT = re.compile(r"-?\d{1,15}\.\d*(e[+-]?\d{1,2})?", re.IGNORECASE)
MAX_EXACT_FLOAT = 2**53  # beyond it not every integer is a float


def without_fraction(label: str) -> str:
    """Return a whole float as text without its fraction, as `np.savetxt` writes it; others as is.

    >>> [without_fraction(text) for text in ("2.0", "2.000000", "2.000e+00", "2.5", "cat")]
    ['2', '2', '2', '2.5', 'cat']
    """
    if not FLOAT.fullmatch(label):
        return label
    number = float(label)
    return str(int(number)) if number.is_integer() else label


def spellings_of(values: np.ndarray) -> np.ndarray:
    """Return labels as text: 3.0 as "3", names without blanks around them."""
    if values.dtype.kind == "f":
        missing = np.flatnonzero(~np.isfinite(values))
        if len(missing):
            raise ValueError(missing_labels(missing, values[missing[0]]))

        fractions = np.flatnonzero(values != np.rint(values))
        if len(fractions):
            row = fractions[0]
            raise ValueError(
                f"labels must be class numbers or names; got {values[row]:g} in row {row} "
                "(targets of a regression, or soft labels?)"
            )

        far = np.flatnonzero(np.abs(values) > MAX_EXACT_FLOAT)
        if len(far):
            raise ValueError(
                f"labels must be class numbers; got {values[far[0]]:g} in row {far[0]}"
            )
        values = values.astype(np.int64)
    return np.char.strip(values.astype(str))
