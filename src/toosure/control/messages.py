"""What a controller warns of."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from toosure.control.guard import DirectionGuard
from toosure.runs.row_warnings import far_outside, is_far_outside

if TYPE_CHECKING:
    from toosure.control.radius import RadiusControl

INFINITE_LOGITS = (
    "control is blind: some logits of the control split are infinite or NaN. Nothing moves while "
    "they are; see whether the loss is finite (this is said once)"
)


def extra_steps(steps: int) -> str:
    """Say that a loop takes more steps than the controller was made for."""
    return (
        f"control stops looking: it was made for {steps} steps, but the loop goes on; give all of "
        "them, steps=epochs * len(loader)"
    )


def other_changes(changed: Mapping[str, tuple[float, float]]) -> str:
    """Say which values of the actuator are not as the controller has set them."""
    values = " and ".join(
        f"{name} is {now:.3g}, not {own:.3g}" for name, (now, own) in changed.items()
    )
    return (
        f"something else changes what control moves ({values}): a second controller, a schedule, "
        "or an optimizer that was restored without its controller. Control sets its own value "
        "again; let only one of them change it (this is said once)"
    )


def gave_up(
    before: Mapping[str, float], after: Mapping[str, float], sensor: str, guard: DirectionGuard
) -> str:
    """Say that moves did not help, with the path of the actuator and of the error."""
    moves = " and ".join(
        f"{name} went from {after[name]:.3g} to {before[name]:.3g}" for name in after
    )
    became = "surer" if guard.way > 0 else "less sure"
    return (
        f"control gives up: {moves}, and the network became {became} ({sensor} "
        f"{guard.level_then:+.2f} to {guard.level:+.2f}). Here it works the wrong way round, or "
        "too little. It is set back, and stays there: docs/control.md, When it cannot work"
    )


def error_at_bound(actuator: Mapping[str, float], sensor: str, error: float) -> str:
    """Say that a run ends with the actuator at its bound, and an error is left."""
    values = " and ".join(f"{name} {value:.3g}" for name, value in actuator.items())
    return (
        f"control ended at its bound ({values}), and {sensor} is {error:+.2f}: fit a temperature "
        "on held-out data: docs/control.md, When it cannot work"
    )


def error_at_end(control: "RadiusControl") -> str:
    """Say which error the last look of a run found, if it is one that should not be left.

    At a bound that is any error: without one, a radius at its bound is the right one. Elsewhere it
    is far outside the dead band. That the controller gave up was said when it did.
    """
    reading, integrator = control.reading, control.integrator
    if reading is None or integrator.gave_up:
        return ""

    numbers = reading.error, reading.standard_error, integrator.band
    if integrator.at_bound:
        if abs(reading.error) <= integrator.band * reading.standard_error:
            return ""
        return error_at_bound(control.actuator.values(), control.settings.sensor, reading.error)
    return far_outside("control", *numbers) if is_far_outside(*numbers) else ""
