"""Read the text of options as values: numbers, ranges, lists and steps."""

import re
from collections.abc import Callable
from typing import TypeVar

from toosure.cli.app import fail

T = TypeVar("T")
Texts = list[str] | None


def in_list(value: T | None) -> list[T] | None:
    """Return the value of an option as a list of values to try; None if it was not given."""
    return None if value is None else [value]


def read_each(texts: Texts, read: Callable[[str], T], none: str) -> list[T | None] | None:
    """Read each text; the word `none` stands for None."""
    return [None if text == none else read(text) for text in texts] if texts else None


def integers(texts: list[str]) -> list[int]:
    """Write out 0..2 and 5 as 0, 1, 2, 5."""
    from toosure.words import expand

    try:
        return [n for text in texts for n in expand(text)]
    except ValueError as error:
        fail(str(error))


def number(name: str, text: str) -> float:
    """Read a number; `name` is the option that an error names."""
    try:
        return float(text)
    except ValueError:
        fail(f"{name} must be a number or none; got {text!r}")


def whole_number(name: str, text: str) -> int:
    """Read a whole number; `name` is the option that an error names."""
    if not re.fullmatch(r"\d+", text):
        fail(f"{name} must be a whole number or full; got {text!r}")
    return int(text)


def comma_separated(texts: list[str]) -> list[str]:
    """Return the names in several texts, each a list separated by commas."""
    return [name for text in texts for name in text.split(",") if name]


def steps_at(text: str, steps: int) -> list[int]:
    """Read steps such as 0,5,10; dots continue a product or a sum up to the last step.

    >>> steps_at("1,2,4,...", 20), steps_at("0,5,...", 20), steps_at("1,2,4,...", 3)
    ([1, 2, 4, 8, 16], [0, 5, 10, 15, 20], [1, 2])
    """
    pieces = [piece.strip() for piece in text.split(",")]
    goes_on = pieces[-1] == "..."
    numbers = pieces[:-1] if goes_on else pieces
    if not numbers or not all(re.fullmatch(r"\d+", piece) for piece in numbers):
        raise ValueError(f"--at takes steps such as 0,10,100 or 1,2,4,...; got {text!r}")

    at = [int(piece) for piece in numbers]
    if not goes_on:
        return at
    if len(at) < 2 or at[-1] <= at[-2]:
        raise ValueError(f"--at needs two or more rising steps before the dots; got {text!r}")

    # Three steps of equal ratio are a product; anything else continues by the last difference.
    is_product = len(at) > 2 and at[-2] > 0 and at[-2] * at[-2] == at[-1] * at[-3]
    ratio = at[-1] / at[-2] if is_product else 1.0
    gap = at[-1] - at[-2]
    while (step := round(at[-1] * ratio) if is_product else at[-1] + gap) <= steps:
        at.append(step)
    return [step for step in at if step <= steps]
