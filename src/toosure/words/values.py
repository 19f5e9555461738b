"""Text to typed values and back: 0.1, 8/255, true, none, 0.9:0.999, "a, b"; and 0..2 for seeds."""

import json
import math
import re
import types
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

TRUE, FALSE = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}
SPECIAL = re.compile(r'[,=()"\s]')  # text with one of these is written in quotes
MOST = 100_000


def parts_of(kind: Any) -> list[Any]:
    """Split a union into the types that can be written as text, the strictest first."""
    union = get_origin(kind) in (Union, types.UnionType)
    parts = [part for part in (get_args(kind) if union else [kind]) if rank(part) is not None]
    return sorted(parts, key=lambda part: rank(part) or 0)


def rank(kind: Any) -> int | None:
    """Place a type in the order of trying, so that 1 is a number before it is text."""
    if is_sequence(kind):
        elements = [e for e in get_args(kind) if e is not Ellipsis]
        return 5 if elements and all(map(parts_of, elements)) else None
    if get_origin(kind) is Literal:
        return 1
    order = {None: 0, type(None): 0, int: 2, float: 3, bool: 4, Path: 6, str: 7}
    try:
        return order.get(kind)
    except TypeError:  # an annotation that cannot be hashed is none of these
        return None


def is_sequence(kind: Any) -> bool:
    return get_origin(kind) in (tuple, Sequence)


def can_say(kind: Any) -> bool:
    """Say whether a setting of this type can be written in a word."""
    return any(part not in (None, type(None)) for part in parts_of(kind))


def describe(kind: Any) -> str:
    """Name a type as the help shows it.

    >>> describe(float | None), describe(Literal["a", "b"]), describe(tuple[float, float])
    ('float or none', 'a|b', 'float:float')
    """
    return " or ".join(sorted(map(describe_part, parts_of(kind)), key=lambda name: name == "none"))


def describe_part(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "|".join(write(choice) for choice in get_args(kind))
    if is_sequence(kind):
        elements = [e for e in get_args(kind) if e is not Ellipsis]
        names = [describe(e) for e in elements]
        return ":".join(names if fixed_length(kind) else [names[0], "..."])
    return {type(None): "none", None: "none", str: "text", Path: "path"}.get(kind) or kind.__name__


def fixed_length(kind: Any) -> bool:
    return get_origin(kind) is tuple and Ellipsis not in get_args(kind)


def read(text: str, kind: Any) -> Any:
    """Read text as a type; of a union, as the strictest type that takes it.

    >>> read("8/255", float), read("no", bool), read("none", int | None)
    (0.03137254901960784, False, None)
    >>> read("150:250", tuple[int, ...])
    (150, 250)
    """
    text = text.strip()
    quoted = len(text) > 1 and text[0] == text[-1] == '"'
    for part in parts_of(kind):
        if quoted and part not in (str, Path) and get_origin(part) is not Literal:
            continue
        try:
            return read_part(json.loads(text) if quoted else text, part)
        except (ValueError, ZeroDivisionError):
            continue
    raise ValueError(f"must be {describe(kind)}; got {text!r}{meant(text, kind)}")


def meant(text: str, kind: Any) -> str:
    """Name the choice that a typo may have meant, be it one of several values."""
    kinds = [each for part in parts_of(kind) for each in (part, *get_args(part))]
    literal = [choice for each in kinds if get_origin(each) is Literal for choice in get_args(each)]
    choices = [choice for choice in literal if isinstance(choice, str)]
    for piece in re.split(r"[:|]", text):
        close = get_close_matches(piece, choices, 1)
        if close and piece not in choices:
            return f"; did you mean {close[0]!r}?"
    return ""


def read_part(text: str, kind: Any) -> Any:
    if is_sequence(kind):
        return read_sequence(text, kind)
    if get_origin(kind) is Literal:
        choices = [c for c in get_args(kind) if text in (c, write(c))]
        return choices[0] if choices else fail()
    if kind in (None, type(None)):
        return None if text.lower() == "none" else fail()
    if kind is bool:
        return text.lower() in TRUE or (text.lower() not in FALSE and fail())
    if kind is float:
        return read_float(text)
    return kind(text)


def fail() -> Any:
    raise ValueError


def read_float(text: str) -> float:
    above, slash, below = text.partition("/")
    value = float(above) / float(below) if slash else float(text)
    return fail() if math.isnan(value) else value


def read_sequence(text: str, kind: Any) -> tuple:
    """Read 0.9:0.999 (or 0.9|0.999); () is empty, and one value may end with the colon."""
    pieces = [] if text == "()" else re.split(r"[:|]", re.sub(r"[:|]$", "", text))
    elements = [e for e in get_args(kind) if e is not Ellipsis]
    if not fixed_length(kind):
        elements = elements[:1] * len(pieces)
    if len(elements) != len(pieces):
        fail()
    return tuple(read(piece, element) for piece, element in zip(pieces, elements, strict=True))


def write(value: Any, kind: Any = None) -> str:
    """Write a value so that `read` gives it back, the same way for equal values.

    >>> write(0.5), write(1.0), write(None), write((0.9, 0.999)), write("a, b"), write(False)
    ('0.5', '1', 'none', '0.9:0.999', '"a, b"', 'false')
    """
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    if isinstance(value, tuple | list):
        text = ":".join(write(item) for item in value) or "()"
        return f"{text}:" if len(value) == 1 and kind and read(text, kind) != tuple(value) else text
    if isinstance(value, str | Path):
        return write_text(str(value), kind)
    return str(value)


def write_text(text: str, kind: Any) -> str:
    bare = bool(text) and not SPECIAL.search(text)
    if bare and kind and get_origin(kind) is not Literal:
        bare = str(read(text, kind)) == text and isinstance(read(text, kind), str | Path)
    return text if bare else json.dumps(text, ensure_ascii=False)


def expand(text: str) -> list[int]:
    """Write out a list of integers such as seeds.

    >>> expand("0..2"), expand("7"), expand("0,5..7")
    ([0, 1, 2], [7], [0, 5, 6, 7])
    """
    numbers: list[int] = []
    for piece in str(text).split(","):
        match = re.fullmatch(r"\s*(-?\d{1,18})(?:\.\.(-?\d{1,18}))?\s*", piece)
        if not match:
            raise ValueError(f"expected integers such as 3, 0,1 or 0..2; got {text!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if not 0 <= last - first < MOST:
            raise ValueError(f"{piece.strip()} must count up, to at most {MOST:,} numbers")
        numbers += range(first, last + 1)
    return numbers
