"""The controller: a multiplicative integrator that acts only on significant errors."""

import math
from dataclasses import dataclass, field
from typing import Any

from toosure.control.guard import AccuracyGuard, DirectionGuard
from toosure.control.sensor import Reading

REST_LOOKS = 5  # looks without a move after one was undone
PATIENCE = 3  # looks at a network no better than chance, before the actuator falls
MAX_STANDARD_ERROR = 0.5  # with a larger one, a network that is too sure may be one by chance


@dataclass
class Integrator:
    """Turn readings into the log of a factor for an actuator, one look at a time.

    Formula: u <- clip(u + clip(k e, -r, r), low, high) if |e| > dead_band * standard error, else u
    stays; k is `gain`, and rises linearly from the middle of the run to `final` times `gain` at its
    end; r is the log of `rate`, the largest factor of one look. With `final_band` the dead band
    changes linearly to that width in the same way: under a steady drift the error sits at the edge
    of the band, so a band that narrows to 0 leaves a smaller error.

    The state is u after clipping. So nothing accumulates at a bound, and the actuator leaves it at
    the first error of the other sign (anti-windup). If the accuracy falls (`guard`), the last move
    is undone and the controller rests for five looks. If the moves make the error larger
    (`direction`), it gives up: the actuator returns to where these moves began, and stays there. If
    the network is not better than chance at three looks in a row, as far as the split can tell,
    the actuator is too large for it to learn, and falls at the largest rate.

    >>> integrator = Integrator(gain=0.5, final=1.0)
    >>> integrator.update(Reading(0.2, 0.01, 0.9, 0.01), progress=0.0)
    0.1
    >>> integrator.update(Reading(0.01, 0.01, 0.9, 0.01), progress=0.0), integrator.acted
    (0.1, 0)
    """

    gain: float = 0.3
    dead_band: float = 2.0  # in standard errors
    rate: float = 1.5
    final: float = 2.0
    final_band: float | None = None  # at the end, in standard errors; None: as `dead_band`
    low: float = -math.inf
    high: float = math.inf
    guard: AccuracyGuard = field(default_factory=AccuracyGuard)
    direction: DirectionGuard = field(default_factory=DirectionGuard)

    position: float = 0.0  # u
    last_move: float = 0.0  # the move that could be undone
    acted: int = 0  # of the last look: 1 raised, -1 lowered, 0 left alone
    band: float = math.nan  # of the last look, in standard errors
    resting: int = 0  # looks to come without a move
    by_chance: int = 0  # looks in a row at a network that is no better than chance
    gave_up: bool = False  # nothing moves any more

    def update(self, reading: Reading, progress: float) -> float:
        """Return the log factor after a look, at a share `progress` of the run."""
        lost_accuracy = self.guard.update(reading.accuracy, reading.accuracy_error)
        before = self.position
        wrong_way = self.direction.update(reading, before)
        if may_be_chance(reading):
            self.by_chance += 1
        elif reading.standard_error < MAX_STANDARD_ERROR:
            self.by_chance = 0
        self.band = self.band_at(progress)

        if self.gave_up:
            pass
        elif wrong_way:
            self.position = self.direction.turn
            self.gave_up = True
        elif lost_accuracy and self.last_move:
            self.position -= self.last_move
            self.last_move = 0.0
            self.resting = REST_LOOKS
        elif self.resting:
            self.resting -= 1
        else:
            wanted = before + self.move(reading, progress)
            self.position = min(max(wanted, self.low), self.high)
            if self.by_chance >= PATIENCE:
                self.last_move = 0.0  # the guard undoes no fall at chance: no accuracy is lost
            else:
                self.last_move = (self.position - before) or self.last_move
            if self.by_chance:
                self.direction.forget()  # the network has learned nothing that a move could spoil
            else:
                self.direction.follow(before, self.position)

        self.acted = int(self.position > before) - int(self.position < before)
        return self.position

    def move(self, reading: Reading, progress: float) -> float:
        """Return the move that a reading asks for, before the bounds."""
        error = reading.error
        limit = math.log(self.rate)
        if self.by_chance >= PATIENCE:  # the network cannot learn with such a radius
            return -limit
        if may_be_chance(reading):
            return 0.0

        width = self.band_at(progress) * reading.standard_error
        if not abs(error) > width:  # also if the error is unknown (NaN)
            return 0.0
        return min(max(self.gain_at(progress) * error, -limit), limit)

    def gain_at(self, progress: float) -> float:
        """Return the gain at a share of the run; it rises at the end, where the error drifts."""
        return self.gain * (1 + (self.final - 1) * lateness(progress))

    def band_at(self, progress: float) -> float:
        """Return the dead band at a share of the run, in standard errors."""
        if self.final_band is None:
            return self.dead_band
        late = lateness(progress)
        return (1 - late) * self.dead_band + late * self.final_band

    @property
    def at_bound(self) -> bool:
        """Whether the actuator is at one of its bounds."""
        return self.position in (self.low, self.high)

    def state_dict(self) -> dict[str, Any]:
        """Return what changes from look to look."""
        return {
            "position": self.position,
            "last_move": self.last_move,
            "acted": self.acted,
            "band": self.band,
            "resting": self.resting,
            "by_chance": self.by_chance,
            "gave_up": self.gave_up,
            "guard": self.guard.state_dict(),
            "direction": self.direction.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        for name in ("position", "last_move", "acted", "resting", "band", "by_chance", "gave_up"):
            setattr(self, name, state[name])
        self.guard.load_state_dict(state["guard"])
        self.direction.load_state_dict(state["direction"])


def may_be_chance(reading: Reading) -> bool:
    """Whether a network is too sure, and the split cannot tell it from one no better than chance.

    A standard error of log T above 0.5 says that 1/T is less than two standard errors above 0,
    where the logits say nothing.

    >>> may_be_chance(Reading(4.0, 1.2, 0.1, 0.01)), may_be_chance(Reading(0.2, 0.02, 0.9, 0.01))
    (True, False)
    """
    return reading.error > 0 and reading.standard_error > MAX_STANDARD_ERROR


def lateness(progress: float) -> float:
    """Return 0 in the first half of a run, and from there up to 1 at its end.

    >>> lateness(0.25), lateness(0.75), lateness(1.0)
    (0.0, 0.5, 1.0)
    """
    return min(max(2 * progress - 1, 0.0), 1.0)
