"""The verdict on a run in one sentence, with an interval, and since when it holds."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from toosure.figures import Bins, bins_of
from toosure.runs import Run

NARROW = 1.0  # points: a gap known this well may be called none
LEVEL = 1.959964  # standard errors in 95 %


class RunVerdict(NamedTuple):
    """A sentence, its class, and the gap (confidence minus accuracy, points) it rests on."""

    kind: str  # "over", "under", "fine", "unclear" or "none"
    sentence: str
    gap: float = math.nan
    half: float = math.nan


def judge(run: Run) -> RunVerdict:
    """Judge a run by the gap of its last row: over- or under-confident where 0 is outside 95 %."""
    gap = gaps(run)
    known = np.flatnonzero(np.isfinite(gap))
    if not len(known):
        return RunVerdict("none", ending(run) or "Nothing measured yet")
    if run.status == "diverged":
        return RunVerdict("none", ending(run))
    now, (half, n) = float(gap[known[-1]]), half_width(run)
    kind, sentence = worded(now, half, n)
    if kind in ("over", "under"):
        since = int(run.columns["step"][known[since_when(gap[known], half, now)]])
        sentence += f", since step {since:,}" if since else ", from the start"
    end = ending(run)
    return RunVerdict(kind, f"{sentence}; {lower(end)}" if end else sentence, now, half)


def gaps(run: Run) -> np.ndarray:
    """Return mean confidence minus accuracy of each row, in points."""
    columns, split = run.columns, run.split
    if f"{split}/confidence" not in columns or f"{split}/accuracy" not in columns:
        return np.full(run.count, np.nan)
    return 100 * (columns[f"{split}/confidence"] - columns[f"{split}/accuracy"])


def half_width(run: Run) -> tuple[float, int]:
    """Return half the 95 % interval of the gap and the samples behind it, from the last snapshot.

    Without a snapshot it is not known: NaN of 0 samples.
    """
    for step in reversed(run.snapshots):
        snapshot = run.snapshot_if_whole(step)
        if f"{run.split}_counts" in snapshot:
            bins = bins_of(snapshot, run.split)
            return 100 * LEVEL * standard_error(bins), int(bins.counts.sum())
    return math.nan, 0


def standard_error(bins: Bins) -> float:
    """Return the standard error of mean (confidence - hit), from a reliability table.

    Var(c - y) = E[a_b (1 - a_b)] + Var(c_b - a_b) over bins, accuracy a_b and confidence c_b:
    what confidences vary inside a bin is left out, at most a quarter of its width squared.
    """
    filled = bins.counts > 0
    counts, a, c = (part[filled] for part in (bins.counts, bins.accuracy, bins.confidence))
    n = counts.sum()
    share, gap = counts / n, c - a
    variance = share @ (a * (1 - a)) + share @ (gap - share @ gap) ** 2
    return math.sqrt(variance / max(1, n - 1))


def worded(gap: float, half: float, n: int) -> tuple[str, str]:
    """Return the class of a gap and the sentence that says it."""
    size = f"{abs(gap):.1f}" + (f" ± {half:.1f}" if math.isfinite(half) else "") + " points"
    if abs(gap) > (half if math.isfinite(half) else 0):
        over = gap > 0
        return (
            ("over", f"Over-confident by {size}")
            if over
            else ("under", f"Under-confident by {size}")
        )
    if half <= NARROW:
        return "fine", f"Well calibrated on average, to ± {half:.1f} points"
    signed = f"{gap:+.1f}".replace("-", "−")
    return "unclear", f"Cannot tell from {n:,} samples: a gap of {signed} ± {half:.1f} points"


def since_when(gap: np.ndarray, half: float, now: float) -> int:
    """Return the first row after which the gap never came back inside the last interval."""
    limit = half if math.isfinite(half) else 0
    inside = np.flatnonzero(gap * np.sign(now) <= limit)
    return int(inside[-1]) + 1 if len(inside) else 0


def ending(run: Run) -> str:
    """Say how a run ended, if not as it should."""
    if run.status in ("complete", "running", "ended", "unreadable"):
        return ""
    step = run.outcome.get("step")
    return (
        f"{run.status.capitalize()} at step {step:,}"
        if isinstance(step, int)
        else run.status.capitalize()
    )


def lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def headline(verdicts: Sequence[RunVerdict]) -> tuple[str, str]:
    """Return the verdict on all runs together: its class and a sentence."""
    judged = [v for v in verdicts if v.kind != "none"]
    if len(verdicts) == 1:
        return verdicts[0].kind, verdicts[0].sentence
    if not judged:
        return "none", "Nothing measured yet"
    for kind, word in (("over", "over-confident"), ("under", "under-confident")):
        found = [abs(v.gap) for v in judged if v.kind == kind]
        if 2 * len(found) > len(judged):
            count = (
                f"All {len(found)}"
                if len(found) == len(verdicts)
                else f"{len(found)} of {len(verdicts)}"
            )
            low, high = f"{min(found):.1f}", f"{max(found):.1f}"
            span = f"{low} to {high}" if low != high else low
            return kind, f"{count} runs are {word}, by {span} points"
    words = {"over": "over-confident", "under": "under-confident", "fine": "well calibrated"}
    words |= {"unclear": "too close to tell", "none": "without a verdict"}
    counts = {word: sum(v.kind == kind for v in verdicts) for kind, word in words.items()}
    said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return "unclear", f"Of {len(verdicts)} runs, {said}"
