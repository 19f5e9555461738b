"""When to measure: every so many steps, at given steps, or within a share of the time."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass
class Spacing:
    """Say which steps are measured: by one of `every`, `at` and `budget`.

    With a budget the times decide, so that two such runs are measured at different steps.

    >>> [step for step in range(50) if Spacing(every=20).due(step)]
    [0, 20, 40]
    >>> [Spacing(budget=0.1).due(7, t, measuring=0.5, cost=0.5, rested=t - 0.5) for t in (9, 10)]
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

    def due(
        self,
        step: int,
        seconds: float = 0.0,
        measuring: float = 0.0,
        cost: float = 0.0,
        rested: float = 0.0,
    ) -> bool:
        """Whether to measure now: after `seconds`, `measuring` of them spent so, `cost` the last.

        Under a budget b it is due when one more measurement as dear as the last would still leave
        the share measuring / seconds at b or below, and when the time since the last, `rested`,
        pays for it alone, cost (1 - b) / b: what was saved up is not spent on steps in a row.
        """
        if self.at:
            return step in self.at
        if self.budget is None:
            return step % self.every == 0
        spare = self.budget * (seconds + cost) - (measuring + cost)
        return spare >= 0 and self.budget * (rested + cost) >= cost


def next_snapshot(step: int) -> int:
    """Return the earliest step for the next snapshot after one at `step`: log-spaced, by 1.25.

    >>> steps = [0]
    >>> while steps[-1] < 10_000:
    ...     steps.append(next_snapshot(steps[-1]))
    >>> len(steps), steps[:8]
    (39, [0, 1, 2, 3, 4, 5, 7, 9])
    """
    return max(step + 1, -(-step * 5 // 4))
