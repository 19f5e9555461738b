"""Leave out copies of runs, which are no seeds of their own: same settings, same numbers."""

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from toosure.runs import Run
from toosure.runs.regular_files import Signature, open_regular, signature
from toosure.sentences import listed

COUNTERS = ("step", "epoch", "lr")  # which say nothing of the network
CHUNK = 1 << 20  # bytes read at once
MAX_NAMED = 5  # copies of one run


def without_copies(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """Return the runs without copies, and a sentence for every run of which copies are left out.

    Of a run and its copies the one with the most rows is kept.
    """
    alike: dict[str, list[Run]] = {}
    for run in runs:
        known = json.dumps([run.config, run.examples], sort_keys=True)
        alike.setdefault(known, []).append(run)

    copies: dict[Run, list[Run]] = {}  # of the run that is kept
    for candidates in alike.values():
        kept: list[Run] = []
        for run in sorted(candidates, key=fullness):
            original = next((each for each in kept if is_copy(run, each)), None)
            if original is None:
                kept.append(run)
            else:
                copies.setdefault(original, []).append(run)

    left_out = {run for found in copies.values() for run in found}
    sentences = [sentence_on(original, found) for original, found in copies.items()]
    return [run for run in runs if run not in left_out], sentences


def fullness(run: Run) -> tuple[int, bool, int, float]:
    """Return a key that sorts the fullest run first, and of equal ones the one written first.

    The fullest has the most rows, has predictions, and lies in few folders.
    """
    rows = run.path / "metrics.jsonl"
    written = rows.stat().st_mtime if rows.is_file() else 0.0
    return -run.count, not run.last_predictions.is_file(), run.id.count("/"), written


def sentence_on(original: Run, copies: Sequence[Run]) -> str:
    names = listed([f"`{run.id}`" for run in copies], MAX_NAMED)
    verb, noun = ("is", "a copy") if len(copies) == 1 else ("are", "copies")
    return f"{names} {verb} left out: {noun} of `{original.id}`, of the same settings and numbers."


def is_copy(run: Run, original: Run) -> bool:
    """Whether a run of the same settings has the numbers of another, or began as its copy.

    The same numbers at the same seconds of the clock are those of one training.
    """
    predictions = same_predictions(run, original)
    if predictions is False:
        return False
    if not run.count:
        return predictions is True
    if not has_same_rows(run, original, timed=False):
        return False
    return run.count == original.count or has_same_rows(run, original, timed=True)


def has_same_rows(run: Run, original: Run, timed: bool) -> bool:
    """Whether the rows of a run are the first rows of another; seconds count if `timed`."""
    keys = {key for key in {*run.columns, *original.columns} if timed or "seconds" not in key}
    measured = {key for key in run.columns if key not in COUNTERS and "seconds" not in key}
    if not measured or (timed and "seconds" not in run.columns):
        return False
    unknown = np.full(run.count, np.nan)
    return all(
        np.array_equal(
            run.columns.get(key, unknown),
            original.columns.get(key, unknown)[: run.count],
            equal_nan=True,
        )
        for key in sorted(keys)
    )


def same_predictions(run: Run, original: Run) -> bool | None:
    """Whether two runs kept the same predictions; None if that of one cannot be read."""
    one, other = (
        digest_of(each.last_predictions, signature(each.last_predictions), each.follow_links)
        for each in (run, original)
    )
    return one == other if one and other else None


@lru_cache(maxsize=2048)
def digest_of(file: Path, _: Signature | None, follow_links: bool) -> str:
    """Return the hash of a file, read once for each of its versions; empty if there is none."""
    digest = hashlib.sha256()
    try:
        with open_regular(file, follow_links) as content:
            while piece := content.read(CHUNK):
                digest.update(piece)
    except (OSError, ValueError):
        return ""
    return digest.hexdigest()
