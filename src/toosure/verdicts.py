"""The verdict on a gap between confidence and accuracy, in words: for predictions and for runs."""

import math
from typing import NamedTuple

MAX_ASYMMETRY = 0.25  # distance of an interval's middle from its value, over half its width
MAX_HALF_WIDTH = 0.01  # a gap known to one point or better may be called none


class GapVerdict(NamedTuple):
    """The class of a gap and the sentence that says it."""

    kind: str  # "over", "under", "uneven", "fine" or "unclear"
    sentence: str


class Verdict(NamedTuple):
    """A sentence, its class, and the sentences that back it."""

    kind: str  # "over", "under", "uneven", "fine" or "unclear"
    sentence: str
    reasons: tuple[str, ...]


def judge_gap(gap: float, low: float, high: float, n: int, uneven: bool = False) -> GapVerdict:
    """Judge mean confidence minus accuracy, a share with its interval, on n samples.

    Over- or under-confident if the interval leaves out 0. If not: uneven if the ECE is beyond
    chance; well calibrated if the gap is known to a point or better; otherwise unclear. Without an
    interval (NaN) the sign decides.

    >>> judge_gap(0.163, 0.124, 0.206, 500)
    GapVerdict(kind='over', sentence='Over-confident by 16.3 ± 4.1 points')
    >>> judge_gap(0.002, -0.03, 0.034, 500).sentence
    'Cannot tell with 500 samples'
    """
    half = (high - low) / 2
    known = math.isfinite(half)
    size = size_of(gap, low, high)

    if (low > 0) if known else (gap > 0):
        return GapVerdict("over", f"Over-confident by {size}")
    if (high < 0) if known else (gap < 0):
        return GapVerdict("under", f"Under-confident by {size}")
    if uneven:
        return GapVerdict("uneven", "Right on average, but not at every confidence")
    if half <= MAX_HALF_WIDTH:
        return GapVerdict("fine", "Well calibrated, as far as these samples can tell")
    return GapVerdict("unclear", f"Cannot tell with {n:,} {plural(n, 'sample')}")


def size_of(gap: float, low: float, high: float) -> str:
    """Return the size of a gap as text, in points: with ±, or with its interval if lopsided.

    A ± cannot show ends at different distances from the value. And a ± that reaches over 0 would
    contradict an interval on one side of 0.

    >>> size_of(-0.163, -0.206, -0.124), size_of(0.007, 0.0002, 0.037)
    ('16.3 ± 4.1 points', '0.7 points (0.02 to 3.7)')
    """
    half = (high - low) / 2
    size = points(abs(gap), half)
    if not math.isfinite(half):
        return f"{size} points"
    lopsided = abs((low + high) / 2 - gap) > MAX_ASYMMETRY * half
    if lopsided or abs(gap) <= half:
        near, far = sorted((abs(low), abs(high)))
        return f"{size} points ({points(near, min(near, half))} to {points(far, half)})"
    return f"{size} ± {points(half, half)} points"


def points(value: float, half: float) -> str:
    """Return a share in points, to the first digit of its uncertainty and at least one decimal.

    >>> points(0.0472, 0.0049), points(0.00472, 0.00049)
    ('4.7', '0.47')
    """
    decimals = 1 if not 0 < half < 1 else max(1, -math.floor(math.log10(100 * half)))
    return f"{100 * value:.{decimals}f}"


def signed(value: float) -> str:
    """Return a share in points as text, with its sign; without one if it rounds to 0.

    >>> signed(-0.067), signed(-0.0001)
    ('−6.7', '0.0')
    """
    text = f"{100 * value:+.1f}".replace("-", "−")
    return "0.0" if text[1:] == "0.0" else text


def plural(count: int, noun: str) -> str:
    return noun if count == 1 else f"{noun}s"
