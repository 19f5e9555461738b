"""Schedules of the learning rate: each returns the fraction of the rate to use at a step."""

import math
from dataclasses import dataclass


def warm(step: int, warmup: int) -> float:
    """Rise linearly to 1 over the first `warmup` steps, never from 0.

    >>> [warm(step, 4) for step in range(6)]
    [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    """
    return min(1.0, (step + 1) / warmup) if warmup else 1.0


def check_warmup(warmup: int) -> None:
    """Raise for a negative number of steps."""
    if warmup < 0:
        raise ValueError(f"warmup is a number of steps, at least 0; got {warmup}")


@dataclass(frozen=True)
class Constant:
    """Keep the learning rate, after `warmup` steps of a linear rise.

    >>> Constant()(10, steps=100)
    1.0
    """

    warmup: int = 0

    def __post_init__(self) -> None:
        check_warmup(self.warmup)

    def __call__(self, step: int, steps: int) -> float:
        return warm(step, self.warmup)


@dataclass(frozen=True)
class StepDecay:
    """Multiply the rate by `factor` at fractions `at` of the run: 0.5:0.75 is at 1/2 and 3/4.

    Reference: He et al. (2016), Deep Residual Learning, Sec. 4.2, arXiv 1512.03385.

    >>> [round(StepDecay()(step, steps=4), 4) for step in range(4)]
    [1.0, 1.0, 0.1, 0.01]
    """

    at: tuple[float, ...] = (0.5, 0.75)
    factor: float = 0.1
    warmup: int = 0

    def __post_init__(self) -> None:
        check_warmup(self.warmup)
        if not self.at or not all(0 < share < 1 for share in self.at):
            raise ValueError(
                f"at holds shares of the run, between 0 and 1; write 0.5:0.75; got {self.at}"
            )
        if not 0 < self.factor < 1:
            raise ValueError(f"factor makes the rate smaller, between 0 and 1; got {self.factor}")

    def __call__(self, step: int, steps: int) -> float:
        passed = sum(step >= share * steps for share in self.at)
        return warm(step, self.warmup) * self.factor**passed


@dataclass(frozen=True)
class Cosine:
    """Fall along half a cosine from 1 to `final`, after `warmup` steps of a linear rise.

    Formula: final + (1 - final) (1 + cos(pi t)) / 2, t the fraction of the steps after the warm-up.
    Reference: Loshchilov and Hutter (2017), SGDR, arXiv 1608.03983.

    >>> [round(Cosine()(step, steps=4), 4) for step in range(4)]
    [1.0, 0.8536, 0.5, 0.1464]
    """

    final: float = 0.0
    warmup: int = 0

    def __post_init__(self) -> None:
        check_warmup(self.warmup)
        if not 0 <= self.final < 1:
            raise ValueError(f"final is a share of the rate, from 0 to below 1; got {self.final}")

    def __call__(self, step: int, steps: int) -> float:
        if step < self.warmup:
            return warm(step, self.warmup)
        share = (step - self.warmup) / max(1, steps - self.warmup)
        return self.final + (1 - self.final) * (1 + math.cos(math.pi * share)) / 2


# To add a schedule: write its class above, and list it here by its name on the command line.
SCHEDULES: dict[str, type[Constant] | type[StepDecay] | type[Cosine]] = {
    "constant": Constant,
    "step": StepDecay,
    "cosine": Cosine,
}
