"""The words that say how a run stands."""

from pathlib import Path
from typing import Any

from toosure.runs.regular_files import printable

USUAL = ("complete", "running", "ended")  # what needs no warning; "ended" is a loop of one's own
STATUSES = (*USUAL, "diverged", "stopped", "failed", "interrupted")


def check_outcome(outcome: dict[str, Any], file: Path) -> None:
    """Raise where a status is none that a run can have."""
    status = outcome.get("status", "running")
    if status not in STATUSES:
        raise ValueError(
            f"{printable(str(file))} must hold a status such as complete; got {str(status)[:40]!r}"
        )
