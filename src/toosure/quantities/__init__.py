"""The table of quantities: every number that a row may hold or an evaluation may state.

One entry says what a number is called, what it means, how it is computed and where it is shown.
The watch, `--measure`, `toosure runs`, the report, the live page, `toosure evaluate` and the docs
ask this table; there is no other list of keys. To add a number, write its function and one entry.

>>> QUANTITIES["ece"].heading, QUANTITIES["ece"].better
('ECE, points', 'lower')
"""

from toosure.quantities.measured import MEASURED
from toosure.quantities.of_evaluation import OF_EVALUATION
from toosure.quantities.of_logits import OF_LOGITS
from toosure.quantities.of_row import OF_ROW
from toosure.quantities.of_sam import OF_SAM
from toosure.quantities.of_shifts import OF_SHIFTS
from toosure.quantities.quantity import (
    COMPANIONS,
    QUANTITIES,
    Place,
    Quantity,
    described,
    evaluation_groups,
    find,
    in_row,
    markdown,
    measures,
    own_keys,
    register,
    shown_in,
)

register(*OF_ROW, *OF_LOGITS, *OF_EVALUATION, *OF_SHIFTS, *MEASURED, *OF_SAM)

__all__ = [
    "COMPANIONS",
    "QUANTITIES",
    "Place",
    "Quantity",
    "described",
    "evaluation_groups",
    "find",
    "in_row",
    "markdown",
    "measures",
    "own_keys",
    "register",
    "shown_in",
]
