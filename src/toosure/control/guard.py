"""The guards of a controller: notice moves that cost accuracy or increase the error."""

import math
from dataclasses import asdict, dataclass

from toosure.control.sensor import Reading

WEIGHT = 0.3  # of a new look in the smoothed accuracy, and in the smoothed error
# In the spread of the accuracy: small, so that a fall does not soon count as noise.
SPREAD_WEIGHT = 0.1
FAR = math.log(4)  # the distance after which an actuator's moves must have helped


@dataclass
class AccuracyGuard:
    """Notice a fall of the accuracy by more than `limit` times its noise.

    At a large learning rate the accuracy jumps from look to look by more than the split's standard
    error. So it is smoothed, m <- .7 m + .3 a, and the noise is the larger of the standard error
    and the spread of earlier looks around m. After a fall the guard starts again from the accuracy
    of that look, so that one fall is answered once. `limit=inf` turns it off.

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

        # Also False if there is no limit and no spread: inf times 0 is NaN.
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


@dataclass
class DirectionGuard:
    """Notice that moves in one direction made the error larger.

    A larger radius makes most networks less confident, but some more. Then every move calls for the
    next, up to the bound. The error is smoothed, m <- .7 m + .3 e. The guard fires if the actuator
    went one way by a factor of 4, and m has grown beyond the error at which that way began, by more
    than `limit` and by more than two standard errors. `limit=inf` turns it off. It also fires on a
    radius that works, but too weakly against other causes of over-confidence.

    >>> guard, position = DirectionGuard(limit=0.3), 0.0
    >>> for error in (0.4, 0.8, 1.2, 1.6):
    ...     print(guard.update(Reading(error, 0.1, 0.9, 0.01), position))
    ...     guard.follow(position, position := position + 0.6)
    False
    False
    False
    True
    """

    limit: float = math.inf
    level: float = math.nan  # the smoothed error; nan before the first look
    way: int = 0  # of the last moves: 1 up, -1 down
    turn: float = 0.0  # the position where this direction began
    level_then: float = math.nan  # and the error there
    last: float = math.nan  # the error of the last look

    def update(self, reading: Reading, position: float) -> bool:
        """Take in a look, and return whether the moves to this position were wrong."""
        error, standard_error = reading.error, reading.standard_error
        if not (math.isfinite(error) and math.isfinite(standard_error)):
            return False
        if math.isnan(self.level):
            self.level = error
        self.level += WEIGHT * (error - self.level)
        self.last = error

        went = self.way * (position - self.turn)
        return went >= FAR and self.grown > max(self.limit, 2 * standard_error)

    @property
    def grown(self) -> float:
        """How much the smoothed error has grown since this direction began; nan before."""
        return self.way * (self.level - self.level_then)

    def follow(self, before: float, after: float) -> None:
        """Take in a move; a move in the other direction starts again."""
        way = int(after > before) - int(after < before)
        if way and way != self.way:
            self.way = way
            self.turn = before
            # Smoothed, the error lags: at a turn it would still be that of the other side.
            self.level = self.last
            self.level_then = self.last

    def forget(self) -> None:
        """Forget the direction and the error."""
        self.level = math.nan
        self.way = 0

    def state_dict(self) -> dict[str, float]:
        """Return what the next look needs; it sets `last` itself."""
        state = asdict(self)
        del state["limit"], state["last"]
        return state

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Restore what `state_dict` returned."""
        for name in self.state_dict():
            setattr(self, name, state[name])
