"""The gap of a run on its test predictions, which judge it where there is no validation data."""

import math
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from toosure.page.replicas import example_scores, groups_in
from toosure.quantiles import NORMAL_95
from toosure.runs import Run
from toosure.runs.array_file import READ_ERRORS, read_arrays
from toosure.runs.regular_files import Signature, signature
from toosure.runs.status import ENDED


class GapOnTest(NamedTuple):
    """Mean confidence minus accuracy in points, half its 95 % interval, and the examples."""

    gap: float
    half_width: float
    n: int


def gap_on_test(run: Run) -> GapOnTest | None:
    """Return the gap on a run's test predictions; None if it did not end or kept none."""
    if run.status not in ENDED:
        return None
    file = run.last_predictions
    return gap_in(file, signature(file), run.follow_links)


@lru_cache(maxsize=2048)
def gap_in(file: Path, _: Signature | None, follow_links: bool) -> GapOnTest | None:
    """Return the gap in a file of predictions."""
    try:
        arrays = read_arrays(file, follow_links)
        scores = example_scores(arrays["test_logits"], arrays["test_labels"].astype(int))
        groups = groups_in(arrays, "test")
    except READ_ERRORS:
        return None

    excess = scores.confidence - scores.correct
    n = len(excess)
    if n < 2 or not np.isfinite(excess).all():
        return None
    error = float(excess.std(ddof=1)) / math.sqrt(n)
    if groups is not None:
        error = max(error, error_over_groups(excess, groups))
    return GapOnTest(100 * float(excess.mean()), 100 * NORMAL_95 * error, n)


def error_over_groups(excess: np.ndarray, groups: np.ndarray) -> float:
    """Return the standard error of a mean over groups of rows, linearized: groups differ in size.

    It is 0 if that is not finite.
    """
    sums = np.bincount(groups, excess - excess.mean())
    count = len(sums)
    error = math.sqrt(count / (count - 1) * float(sums @ sums)) / len(excess)
    return error if math.isfinite(error) else 0.0
