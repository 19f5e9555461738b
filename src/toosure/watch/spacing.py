"""When to measure: every so many steps, at given steps, or within a share of the time."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from toosure.processes import Processes


class TimeSpent(NamedTuple):
    """Seconds of a run, for a budget."""

    seconds: float  # since the start
    measuring: float  # of these, with measuring
    cost: float  # of the last measurement
    since_last: float  # since the last measurement


@dataclass
class Spacing:
    """Say which steps are measured: by one of `every`, `at` and `budget`.

    A budget depends on times, so two such runs are measured at different steps.

    >>> [step for step in range(50) if Spacing(every=20).due(step)]
    [0, 20, 40]
    >>> spent = [TimeSpent(t, measuring=0.5, cost=0.5, since_last=t - 0.5) for t in (9, 10)]
    >>> [Spacing(budget=0.1).due(7, each) for each in spent]
    [False, True]
    """

    every: int = 20
    at: Iterable[int] = ()
    budget: float | None = None

    def __post_init__(self) -> None:
        self.at = frozenset(self.at)
        if (self.every != type(self).every) + bool(self.at) + (self.budget is not None) > 1:
            raise ValueError("every, at or budget: give one of them")
        if self.every < 1:
            raise ValueError(f"every must be at least 1 step; got {self.every}")
        if self.budget is not None and not 0 < self.budget < 1:
            raise ValueError(f"budget is a share of the time in (0, 1); got {self.budget}")

    def due(self, step: int, spent: TimeSpent | None = None) -> bool:
        """Whether to measure at a step; under a budget, after the time `spent`.

        Under a budget b two things must hold. After one more measurement that costs as much as the
        last, the share measuring / seconds is still at most b. And the time since the last pays
        for it alone, cost (1 - b) / b, so that time saved up is not spent on steps in a row.
        """
        if self.at:
            return step in self.at
        if self.budget is None:
            return step % self.every == 0

        assert spent is not None, "a budget needs the time spent"
        seconds, measuring, cost, since_last = spent
        spare = self.budget * (seconds + cost) - (measuring + cost)
        return spare >= 0 and self.budget * (since_last + cost) >= cost


def is_due(
    spacing: Spacing, step: int, spent: Callable[[], TimeSpent], processes: Processes
) -> bool:
    """Whether a step is measured; under a budget the first process decides for all."""
    if spacing.budget is None:
        return spacing.due(step)
    due = spacing.due(step, spent())
    return processes.any(due and processes.first)[0]


def next_snapshot(step: int) -> int:
    """Return the earliest step for the next snapshot after one at `step`: log-spaced, by 1.25.

    >>> steps = [0]
    >>> while steps[-1] < 10_000:
    ...     steps.append(next_snapshot(steps[-1]))
    >>> len(steps), steps[:8]
    (39, [0, 1, 2, 3, 4, 5, 7, 9])
    """
    return max(step + 1, -(-step * 5 // 4))
