"""The guard of a controller: notice where the accuracy on the control split has fallen."""

import math
from dataclasses import dataclass

WEIGHT = 0.3  # of a new look in the smoothed accuracy
SPREAD_WEIGHT = 0.1  # and in the spread, so that a fall does not soon count as usual


@dataclass
class AccuracyGuard:
    """Say whether the accuracy fell by more than `limit` times what chance moves it.

    At a large learning rate the accuracy jumps from look to look by more than the split's standard
    error. It is therefore smoothed, m <- .7 m + .3 a, and a fall is measured in the larger of the
    standard error and the spread of earlier looks around m. After a fall it starts again from
    the accuracy of that look, so that one fall is answered once. `limit=inf` never speaks.

    >>> guard = AccuracyGuard()
    >>> [guard.update(accuracy, 0.01) for accuracy in (0.9, 0.9, 0.85, 0.85, 0.85, 0.85, 0.85)]
    [False, False, False, False, False, False, True]
    """

    limit: float = 2.0
    level: float = math.nan  # the smoothed accuracy; nan before the first look
    variance: float = 0.0  # of looks around it
    best: float = -math.inf  # the highest level so far

    def update(self, accuracy: float, standard_error: float) -> bool:
        """Take in a look and return whether the accuracy has fallen."""
        if not math.isfinite(accuracy):
            return False
        if math.isnan(self.level):
            self.level = accuracy

        difference = accuracy - self.level
        spread = max(standard_error, math.sqrt(self.variance))
        self.level += WEIGHT * difference
        self.variance += SPREAD_WEIGHT * (difference**2 - self.variance)
        self.best = max(self.best, self.level)

        # Also False where there is no limit and no spread: inf times 0 is NaN.
        if not self.best - self.level > self.limit * spread:
            return False
        self.level = accuracy
        self.best = accuracy
        return True

    def state_dict(self) -> dict[str, float]:
        """Return what changes from look to look."""
        return {"level": self.level, "variance": self.variance, "best": self.best}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Restore what `state_dict` returned."""
        self.level = state["level"]
        self.variance = state["variance"]
        self.best = state["best"]
