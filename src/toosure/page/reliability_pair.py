"""Two reliability diagrams side by side: before and after, or of two models."""

from typing import TYPE_CHECKING

from toosure.figures import TOP_LABEL, probability_wording, reliability_diagram
from toosure.page.html import figure

if TYPE_CHECKING:
    from toosure.metrics import Reliability

NamedTable = tuple[str, "Reliability"]


def reliability_pair(
    first: NamedTable, second: NamedTable, bins: int, level: float, class_one: bool
) -> str:
    """Return the diagrams of two tables, each under its name.

    With `class_one` they are of P(class 1), else of the confidence of the predicted class.
    """
    wording = probability_wording("class 1") if class_one else TOP_LABEL
    below = "P(class 1) is too high" if class_one else "the model is too sure"
    note = f"{marks_note(bins, level)}. Below the dashed line {below}."

    diagrams = [
        figure(
            reliability_diagram(table, level, wording),
            f"{name}: {wording.true} over {wording.claimed}",
            note,
        )
        for name, table in (first, second)
    ]
    return f'<div class="pair">{"".join(diagrams)}</div>'


def marks_note(bins: int, level: float) -> str:
    """Explain the marks and whiskers of a reliability diagram; without a full stop."""
    return (
        f"A mark for each of {bins} bins, larger where more samples lie; whiskers are "
        f"{100 * level:g} % intervals"
    )
