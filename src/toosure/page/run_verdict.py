"""The verdict on a run in one sentence, with an interval, and since when it holds."""

import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from toosure.figures import Bins, bins_of
from toosure.figures.trajectory import values_of
from toosure.page.gap_on_test import error_over_groups, gap_on_test
from toosure.page.half_intervals import PlusMinus
from toosure.page.replicas import example_scores, groups_in
from toosure.quantiles import NORMAL_95
from toosure.runs import Run
from toosure.runs.array_file import READ_ERRORS, array_names, read_arrays
from toosure.runs.regular_files import Signature, signature
from toosure.runs.row_units import unit_in
from toosure.verdicts import judge_gap, plural, signed

NOTHING = "Nothing measured yet"
TRAINING = " (training data)"
TEST = " (test data)"
USUAL = ("complete", "running", "ended", "unreadable")
WORDS = {
    "over": "over-confident",
    "under": "under-confident",
    "fine": "well calibrated",
    "unclear": "too close to tell",
    "none": "without a verdict",
}


class RunVerdict(NamedTuple):
    """A sentence, its kind, and the gap behind it (confidence minus accuracy, points)."""

    kind: str  # "over", "under", "fine", "unclear" or "none"
    sentence: str
    gap: float = math.nan
    half_width: float = math.nan
    training_only: bool = False  # of data that the run was fitted to
    n: int = 0  # examples that it rests on
    seeds: int = 1
    seeds_half: float = 0.0  # the part of the half width from seeds
    on_test: bool = False  # of test predictions, as there is no validation data

    @property
    def estimate(self) -> PlusMinus:
        """The gap with its interval."""
        return PlusMinus(self.gap, self.half_width, self.seeds_half)

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the interval, in points; NaN if it is not known."""
        return self.estimate.ends(100)


def judge(run: Run) -> RunVerdict:
    """Judge a run by the gap of its last row and the 95 % interval of that gap.

    A run without validation data is judged by its test predictions, where it kept some.
    """
    gap = gaps(run)
    known = np.flatnonzero(np.isfinite(gap))
    end = ending(run)
    if not len(known):
        return RunVerdict("none", end or NOTHING)
    if run.status == "diverged":
        return RunVerdict("none", end)

    if run.training_only and (tested := gap_on_test(run)) is not None:
        return judge_on_test(*tested)

    now = float(gap[known[-1]])
    half, n = gap_half_width(run)
    kind, sentence = judge_gap(now / 100, (now - half) / 100, (now + half) / 100, n)
    if run.training_only:
        sentence += TRAINING
    if kind in ("over", "under"):
        since = int(run.columns["step"][known[since_when(gap[known], half, now)]])
        sentence += f", since step {since:,}" if since else ", from the start"
    if kind == "unclear":
        sentence += f": a gap of {signed(now / 100)} ± {half:.1f} points"
    if end:
        sentence += f"; {end[:1].lower()}{end[1:]}"
    return RunVerdict(kind, sentence, now, half, run.training_only, n)


def judge_on_test(gap: float, half: float, n: int) -> RunVerdict:
    """Judge a run by the gap of its test predictions."""
    kind, sentence = judge_gap(gap / 100, (gap - half) / 100, (gap + half) / 100, n)
    sentence += TEST
    if kind == "unclear":
        sentence += f": a gap of {signed(gap / 100)} ± {half:.1f} points"
    return RunVerdict(kind, sentence, gap, half, n=n, on_test=True)


def gaps(run: Run) -> np.ndarray:
    """Return mean confidence minus accuracy of each row, in points."""
    gap = values_of(run, run.split, "gap")
    return np.full(run.count, np.nan) if gap is None else gap


def gap_half_width(run: Run) -> tuple[float, int]:
    """Return half the 95 % interval of the gap and the samples behind it, from the last snapshot.

    Without a snapshot it is unknown: NaN, of 0 samples. A snapshot does not know which rows are of
    one sequence or image; the last predictions do.
    """
    for step in reversed(run.snapshots):
        snapshot = run.snapshot_if_whole(step)
        if f"{run.split}_counts" in snapshot:
            bins = bins_of(snapshot, run.split)
            error = max(standard_error(bins), grouped_error(run))  # rows in groups say no more
            return 100 * NORMAL_95 * error, int(bins.counts.sum())
    return math.nan, 0


def grouped_error(run: Run) -> float:
    """Return the standard error of mean (confidence - hit) over groups of rows; 0 without."""
    if run.status not in ("complete", "ended"):
        return 0.0
    file = run.last_predictions
    return grouped_error_in(file, signature(file), run.follow_links, run.split)


@lru_cache(maxsize=2048)
def grouped_error_in(file: Path, _: Signature | None, follow_links: bool, split: str) -> float:
    """Return the standard error over the groups of rows in a file of predictions."""
    try:
        if unit_in(array_names(file, follow_links), split) is None:
            return 0.0  # as most files: their arrays need not be read
        arrays = read_arrays(file, follow_links)
        groups = groups_in(arrays, split)
        if groups is None:
            return 0.0
        scores = example_scores(arrays[f"{split}_logits"], arrays[f"{split}_labels"].astype(int))
        return error_over_groups(scores.confidence - scores.correct, groups)
    except READ_ERRORS:
        return 0.0


def standard_error(bins: Bins) -> float:
    """Return the standard error of mean (confidence - hit), from a reliability table.

    Var(c - y) = E[a_b (1 - a_b)] + Var(c_b - a_b) over bins b of accuracy a_b and confidence c_b.
    The variance of confidences inside a bin is neglected: at most a quarter of its width squared.
    """
    filled = bins.counts > 0
    counts, a, c = (part[filled] for part in (bins.counts, bins.accuracy, bins.confidence))
    n = counts.sum()
    share = counts / n
    gap = c - a
    variance = share @ (a * (1 - a)) + share @ (gap - share @ gap) ** 2
    return math.sqrt(variance / max(1, n - 1))


def since_when(gap: np.ndarray, half: float, now: float) -> int:
    """Return the first row after which the gap never came back inside the last interval."""
    limit = half if math.isfinite(half) else 0
    inside = np.flatnonzero(gap * np.sign(now) <= limit)
    return int(inside[-1]) + 1 if len(inside) else 0


def ending(run: Run) -> str:
    """Return how a run ended, if not properly; else an empty text."""
    if run.status in USUAL:
        return ""
    step = run.step_reached
    where = f" at step {step:,}" if isinstance(step, int) else ""
    return f"{run.status.capitalize()}{where}"


def headline(verdicts: Sequence[RunVerdict]) -> tuple[str, str]:
    """Return the verdict on all runs together: its class and a sentence.

    Runs that were measured on training data only are counted separately.
    """
    judged = [verdict for verdict in verdicts if verdict.kind != "none"]
    total = len(verdicts)
    if total == 1:
        return verdicts[0].kind, verdicts[0].sentence
    if not judged:
        waiting = all(verdict.sentence == NOTHING for verdict in verdicts)
        return "none", NOTHING if waiting else f"None of {total} runs can be judged"

    trained = sum(verdict.training_only for verdict in judged)
    if trained == len(judged):
        kind, sentence = headline([verdict._replace(training_only=False) for verdict in verdicts])
        return kind, sentence + TRAINING
    if trained:
        kind, sentence = headline([verdict for verdict in verdicts if not verdict.training_only])
        return kind, f"{sentence}; {trained} more {plural(trained, 'run')} on training data only"

    if all(verdict.on_test for verdict in judged):
        kind, sentence = headline([verdict._replace(on_test=False) for verdict in verdicts])
        return kind, sentence + TEST

    # If most runs have the same verdict, state it with the range of their gaps.
    for kind in ("over", "under"):
        sizes = [abs(verdict.gap) for verdict in judged if verdict.kind == kind]
        if 2 * len(sizes) > len(judged):
            count = f"All {total}" if len(sizes) == total else f"{len(sizes)} of {total}"
            low, high = f"{min(sizes):.1f}", f"{max(sizes):.1f}"
            span = low if low == high else f"{low} to {high}"
            verb = "is" if len(sizes) == 1 else "are"
            return kind, f"{count} runs {verb} {WORDS[kind]}, by {span} points"

    counts = {word: sum(v.kind == kind for v in verdicts) for kind, word in WORDS.items()}
    listed = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return "unclear", f"Of {total} runs, {listed}"
