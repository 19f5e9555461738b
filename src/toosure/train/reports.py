"""What parts of a run add to its rows."""

from collections.abc import Callable

from toosure.control import RadiusControl
from toosure.train.averages import Averages

Report = Callable[[], dict[str, float]]  # numbers for a row


def joined_reports(first: Report | None, *parts: Averages | RadiusControl | None) -> Report | None:
    """Return what reports the numbers of an objective and of other parts, of those there are."""
    reports = [part.report for part in parts if part is not None]
    if first is not None:
        reports.insert(0, first)
    return (lambda: {k: v for each in reports for k, v in each().items()}) if reports else None
