"""The status of a run."""

from pathlib import Path
from typing import Any

from toosure.runs.regular_files import printable

USUAL = ("complete", "running", "ended")  # without a warning; "ended" is a loop of your own
STATUSES = (*USUAL, "diverged", "stopped", "failed", "interrupted")


def check_outcome(outcome: dict[str, Any], file: Path) -> None:
    """Raise if a status is not one that a run can have."""
    status = outcome.get("status", "running")
    if status not in STATUSES:
        raise ValueError(
            f"{printable(str(file))} must hold a status such as complete; got {str(status)[:40]!r}"
        )
