"""JSON of unknown origin: limited in depth and in the size of its numbers and texts."""

import json
import math
from json import JSONDecoder
from typing import Any

MAX_DEPTH = 32  # lists in lists; ours have five
MAX_DIGITS = 30  # of an integer; 2^64 has 20


def parse_integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"an integer of {len(text)} digits: at most {MAX_DIGITS} are read")
    return int(text)


def no_number(_: str) -> None:
    """Read NaN and Infinity, which are no JSON, as null."""


FLAT = {int, float, str, bool, type(None)}
DECODER = JSONDecoder(parse_int=parse_integer, parse_constant=no_number)


def parse_json(text: str | bytes, max_depth: int = MAX_DEPTH) -> Any:
    """Read JSON, or raise ValueError with the reason.

    Refused are more than `max_depth` lists in lists, integers of more than 30 digits, numbers
    beyond floating point (1e400), and texts that cannot be written as UTF-8.

    >>> parse_json('{"a": [1, 2.5, NaN]}')
    {'a': [1, 2.5, None]}
    >>> parse_json("1e400")
    Traceback (most recent call last):
    ValueError: a number is too large for floating point
    """
    if isinstance(text, bytes):
        text = decode(text)
    try:
        value = DECODER.decode(text)
    except RecursionError:
        raise ValueError(f"lists or objects in each other, more than {max_depth} deep") from None
    has_escapes = "\\u" in text
    if has_escapes or not is_flat(value):
        check(value, max_depth, has_escapes)
    return value


def is_flat(value: object) -> bool:
    """Whether a value is an object of plain, finite values, as rows are: a quick look."""
    if not isinstance(value, dict):
        return False
    inner = value.values()
    return FLAT.issuperset(map(type, inner)) and math.inf not in inner and -math.inf not in inner


def decode(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from None


def check(value: object, max_depth: int = MAX_DEPTH, has_escapes: bool = True) -> None:
    """Raise where a value that was read is too deep, too large or cannot be written."""
    level = [value]
    for _ in range(max_depth + 1):
        inner: list[object] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
                inner += each.keys() if has_escapes else ()
            elif isinstance(each, list):
                inner += each
            elif isinstance(each, float) and math.isinf(each):
                raise ValueError("a number is too large for floating point")
            elif has_escapes and isinstance(each, str):
                check_text(each)
        level = inner
        if not level:
            return
    if any(isinstance(each, dict | list) for each in level):
        raise ValueError(f"lists or objects in each other, more than {max_depth} deep")


def check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"a text that is not Unicode: {json.dumps(text)[:60]}") from None
