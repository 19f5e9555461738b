"""What to do about runs without validation data, in the words of their own data."""

import re
from collections.abc import Sequence

from toosure.runs import Run
from toosure.runs.regular_files import printable
from toosure.words import TABLES

EXAMPLES = 200  # of a validation split that is advised
WHY = "on its training data every network looks honest."
WHY_TEST = "settings are chosen, and a temperature is fitted, on these and not on test data."
NO_VALIDATION = f"Measure validation data, as with `--data digits:val={EXAMPLES}`: {WHY}"


def validation_hint(runs: Sequence[Run], on_test: bool = False) -> str:
    """Return how runs get validation data; `on_test` says that test data judge them already."""
    why = WHY_TEST if on_test else WHY
    if any(run.examples for run in runs):  # of a loop of one's own
        return f"Give `Watch` validation data (`val=`) that are not trained on: {why}"

    words = dict.fromkeys(with_validation(str(run.config.get("data") or "")) for run in runs)
    word = next(filter(None, words), "")
    if word:
        return f"Measure validation data, as with `--data {printable(word)}`: {why}"
    return NO_VALIDATION.replace(WHY, why)


def with_validation(word: str) -> str:
    """Return a word of `--data` with a validation split; empty if it takes no such setting.

    >>> with_validation("imagefolder:imgs,size=16,val=0"), with_validation("my_data:load")
    ('imagefolder:imgs,size=16,val=200', '')
    """
    name, _, settings = word.partition(":")
    if name not in TABLES["data"]:
        return ""
    kept = re.sub(r"(^|,)val=0?(?=,|$)", "", settings).lstrip(",")
    return f"{name}:{kept},val={EXAMPLES}" if kept else f"{name}:val={EXAMPLES}"
