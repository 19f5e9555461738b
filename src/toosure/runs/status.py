"""The status of a run."""

from pathlib import Path
from typing import Any

from toosure.runs.json_text import read_json
from toosure.runs.regular_files import printable

ENDED = ("complete", "ended")  # as it should: "ended" is a loop of your own
USUAL = ("complete", "running", "ended")  # without a warning
STATUSES = (*USUAL, "diverged", "stopped", "failed", "interrupted")


def check_outcome(outcome: dict[str, Any], file: Path) -> None:
    """Raise if a status is not one that a run can have."""
    status = outcome.get("status", "running")
    if status not in STATUSES:
        raise ValueError(
            f"{printable(str(file))} must hold a status such as complete; got {str(status)[:40]!r}"
        )


def damaged_files(folder: Path, follow_links: bool = True) -> list[str]:
    """Return which of a run's own JSON files cannot be read, a sentence each."""
    problems = []
    for name in ("config", "environment", "status"):
        file = folder / f"{name}.json"
        try:
            content = read_json(file, follow_links)
            if name == "status":
                check_outcome(content, file)
        except ValueError as error:
            problems.append(str(error))
    return problems
