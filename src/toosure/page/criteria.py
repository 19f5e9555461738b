"""Which loss the runs of a page minimise, and what of it does not compare between them."""

from collections.abc import Iterable, Sequence

from toosure.quantities import QUANTITIES
from toosure.runs import Run

CRITERION = ("loss", "objective")  # settings that decide what the loss is
LOSSES_DIFFER = "Settings differ in what they minimise: compare their NLL in the tables, not their "
CURVATURE = (
    "sharpness, which is of the loss that each one trains with (`--curvature-loss ce`, or "
    "`curvature_loss=` of `Watch`, measures all with one)"
)


def criterion_note(runs: Sequence[Run], keys: Iterable[str]) -> str:
    """Return what of these quantities does not compare, as the runs differ in their loss; or ""."""
    if len({criterion_of(run) for run in runs}) < 2:
        return ""
    keys = list(keys)
    parts = ["loss"] if "loss" in keys else []
    if any(is_curvature(key) for key in keys) and not have_one_curvature_loss(runs):
        parts.append(CURVATURE)
    return f"{LOSSES_DIFFER}{', nor their '.join(parts)}." if parts else ""


def criterion_of(run: Run) -> tuple[str, ...]:
    """Return what a run minimises: by its config and, of a loop of one's own, as its watch noted.

    Without either it is unknown, and counts as one loss.
    """
    named = [str(run.config.get(key)) for key in CRITERION]
    return (*named, str(run.environment.get("loss")))


def is_curvature(key: str) -> bool:
    """Whether a quantity is of the curvature of a loss."""
    return key in QUANTITIES and QUANTITIES[key].cost in ("curvature", "forwards")


def have_one_curvature_loss(runs: Sequence[Run]) -> bool:
    """Whether all runs measured the curvature of one loss, whatever they train with."""
    measured = {
        str(run.config.get("curvature_loss") or run.environment.get("curvature_loss") or "")
        for run in runs
    }
    return len(measured) == 1 and measured != {""}
