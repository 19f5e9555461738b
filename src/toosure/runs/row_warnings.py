"""What the rows of a run say that a reader should know: numbers that cannot be relied on."""

from collections.abc import Mapping

import numpy as np

CONTROL = {
    "control/gave_up": "the controller gave up: its moves worked the wrong way round",
    "control/at_bound": "the controller ended at its bound: it did not reach what it steers to",
}


def row_warnings(columns: Mapping[str, np.ndarray], last: Mapping[str, object]) -> list[str]:
    """Return a sentence for each number that did not converge, and for a controller that failed.

    >>> row_warnings({"gni_unconverged": np.array([0.0, 1.0])}, {"control/at_bound": 0})
    ['gni did not converge in 1 of 2 rows']
    """
    warnings = []
    for key in sorted(columns):
        if key.endswith("_unconverged"):
            values = columns[key]
            count = np.count_nonzero(np.nan_to_num(values))
            name = key.removesuffix("_unconverged")
            warnings.append(f"{name} did not converge in {count:,} of {len(values):,} rows")
    return warnings + [sentence for key, sentence in CONTROL.items() if last.get(key) == 1]
