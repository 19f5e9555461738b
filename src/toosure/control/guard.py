"""The guards of a controller: it notices where its moves cost accuracy, or make matters worse."""

import math
from dataclasses import asdict, dataclass

from toosure.control.sensor import Reading

WEIGHT = 0.3  # of a new look in the smoothed accuracy, and in the smoothed error
SPREAD_WEIGHT = 0.1  # in the spread of the accuracy, so that a fall does not soon count as usual
FAR = math.log(4)  # how far an actuator has gone when it is asked whether that helped


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


@dataclass
class DirectionGuard:
    """Say whether moves one way made the error larger: here the actuator works the wrong way round.

    A larger radius makes most networks less sure, and some surer. There every move calls for the
    next, up to the bound. The error is smoothed, m <- .7 m + .3 e. The guard speaks where the
    actuator went one way by a factor of 4, and m has grown beyond the error at which that way
    began, by more than `limit` and by more than two standard errors. `limit=inf` never speaks. It
    cannot tell a radius that works, but too little against what else makes the network surer
    meanwhile.

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
    turn: float = 0.0  # where the actuator stood when it took this way
    level_then: float = math.nan  # and the error there
    last: float = math.nan  # the error of the last look

    def update(self, reading: Reading, position: float) -> bool:
        """Take in a look, and return whether the way to this position was the wrong one."""
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
        """How much the smoothed error has grown since the moves took this way; nan before."""
        return self.way * (self.level - self.level_then)

    def follow(self, before: float, after: float) -> None:
        """Take in a move; one the other way begins a new way."""
        way = int(after > before) - int(after < before)
        if way and way != self.way:
            self.way = way
            self.turn = before
            # Smoothed, the error lags: at a turn it would still be that of the other side.
            self.level = self.last
            self.level_then = self.last

    def forget(self) -> None:
        """Begin anew, without a way and without an error."""
        self.level = math.nan
        self.way = 0

    def state_dict(self) -> dict[str, float]:
        """Return what changes from look to look."""
        state = asdict(self)
        del state["limit"]
        return state

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Restore what `state_dict` returned."""
        for name in self.state_dict():
            setattr(self, name, state[name])
