"""The table of an evaluation with one row per class."""

from toosure.evaluate import ClassGap, Evaluation
from toosure.page.html import section
from toosure.page.number_text import printed
from toosure.page.tables import NumberCell, table

HEADER = (
    "class",
    "predicted",
    "gap, points",
    "samples",
    "recall, %",
    "frequency, %",
    "mean probability, %",
    "difference, points",
    "ECE, points",
)
FORMATS = ("", ",", "", ",", ".1f", ".1f", ".1f", "+.2f", ".2f")


def class_table(result: Evaluation) -> str:
    """Return one row per class; a press on a heading sorts by it."""
    judged = () if result.class_gaps is None else result.class_gaps.classes
    by_number = {each.number: each for each in judged}
    rows = [
        (
            row.name,
            *predicted_cells(by_number.get(number)),
            row.samples,
            None if row.recall is None else 100 * row.recall,
            100 * row.frequency,
            100 * row.probability,
            100 * (row.probability - row.frequency),
            100 * row.ece,
        )
        for number, row in enumerate(result.per_class)
    ]

    note = (
        "First the rows that are predicted as a class: how many, and their gap, mean confidence "
        f"minus accuracy, above 0 where too sure, with {100 * result.level:g} % intervals that "
        "hold for all classes together. Then the class against the rest, over all rows: how often "
        "it is the label, how probable it is held on average, their difference, and its own "
        "calibration error. Press a heading to sort."
    )
    return section("Every class", note, table(HEADER, rows, FORMATS, True))


def predicted_cells(judged: ClassGap | None) -> tuple[int | None, NumberCell]:
    """Return how often a class is predicted, and the gap of these rows with its interval."""
    if judged is None:
        return None, NumberCell(None, "–")
    value, low, high = (printed(100 * (each or 0.0), "+.1f") for each in judged.gap)
    return judged.n, NumberCell(100 * judged.gap.value, value, f"{low} to {high}")
