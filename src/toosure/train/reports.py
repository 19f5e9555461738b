"""Join the numbers that parts of a run add to its rows."""

from collections.abc import Callable

from toosure.control import RadiusControl
from toosure.train.averages import Averages

Report = Callable[[], dict[str, float]]  # numbers for a row


def joined_reports(first: Report | None, *parts: Averages | RadiusControl | None) -> Report | None:
    """Return one report of an objective and of other parts of the run.

    None if there are none.
    """
    reports = [part.report for part in parts if part is not None]
    if first is not None:
        reports.insert(0, first)
    if not reports:
        return None

    def report() -> dict[str, float]:
        return {key: value for each in reports for key, value in each().items()}

    return report
