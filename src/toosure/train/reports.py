"""What parts of a run add to its rows and to its checkpoints."""

from collections.abc import Callable
from typing import Any

from toosure.control import RadiusControl
from toosure.train.averages import Averages

Report = Callable[[], dict[str, float]]  # numbers for a row


def joined_reports(first: Report | None, *parts: Averages | RadiusControl | None) -> Report | None:
    """Return what reports the numbers of an objective and of other parts, of those there are."""
    reports = [part.report for part in parts if part is not None]
    if first is not None:
        reports.insert(0, first)
    return (lambda: {k: v for each in reports for k, v in each().items()}) if reports else None


def state_of(part: object) -> dict[str, Any]:
    """Return the state of a part that has one."""
    return part.state_dict() if hasattr(part, "state_dict") else {}
