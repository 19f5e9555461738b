"""Which loss the runs of a page minimise, and what of it does not compare between them."""

from collections.abc import Iterable, Sequence

from toosure.quantities import QUANTITIES
from toosure.runs import Run

CRITERION = ("loss", "objective")  # settings that decide what the loss is
CLASSES = {"ce": "CrossEntropyLoss()"}  # of words of `--loss`, as a watch notes them
LOSSES_DIFFER = "Settings differ in what they minimise: compare their NLL in the tables, not their "
CURVATURE = (
    "sharpness, which is of the loss that each one trains with (`--curvature-loss ce`, or "
    "`curvature_loss=` of `Watch`, measures all with one)"
)


def criterion_note(runs: Sequence[Run], keys: Iterable[str]) -> str:
    """Return what of these quantities does not compare, as the runs differ in their loss; or ""."""
    if not differ_in_criterion(runs):
        return ""
    keys = list(keys)
    parts = ["loss"] if "loss" in keys else []
    if any(is_curvature(key) for key in keys) and not have_one_curvature_loss(runs):
        parts.append(CURVATURE)
    return f"{LOSSES_DIFFER}{', nor their '.join(parts)}." if parts else ""


def differ_in_criterion(runs: Sequence[Run]) -> bool:
    """Whether runs are known to minimise different losses, by their config or as noted by a watch.

    A loop of one's own that names neither may have any loss, and differs from none.
    """
    named = [{str(run.config[key]) for run in runs if key in run.config} for key in CRITERION]
    noted = {noted_loss(run) for run in runs} - {""}
    return any(len(losses) > 1 for losses in (*named, noted))


def noted_loss(run: Run) -> str:
    """Return the loss that the watch noted, else that of the config; empty if neither is known."""
    word = str(run.config.get("loss") or "")
    return str(run.environment.get("loss") or CLASSES.get(word, word))


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
