"""Text to typed values and back: 0.1, 8/255, true, none, 0.9:0.999, "a, b"; and 0..2 for seeds.

`kind` is everywhere the annotation of an argument: a type, a union of types, a Literal, a tuple.
"""

import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from toosure.sentences import did_you_mean

TRUE = {"true", "yes", "on", "1"}
FALSE = {"false", "no", "off", "0"}
QUOTED = re.compile(r'[,=()"\s]')  # text that contains one of these is written in quotes
SEPARATOR = r"[:|]"  # between the values of a sequence
MAX_EXPANDED = 100_000


def parts_of(kind: object) -> list[object]:
    """Split a union into the types that can be written as text, the strictest first."""
    union = get_origin(kind) in (Union, UnionType)
    parts = get_args(kind) if union else (kind,)
    ranked = [(rank(part), part) for part in parts]
    readable = [(order, part) for order, part in ranked if order is not None]
    return [part for _, part in sorted(readable, key=lambda pair: pair[0])]


def rank(kind: object) -> int | None:
    """Return when to try a type: 1 is read as a number before it is read as text.

    A type that cannot be written as text has no rank.
    """
    if is_sequence(kind):
        elements = element_types(kind)
        return 5 if elements and all(map(parts_of, elements)) else None
    if get_origin(kind) is Literal:
        return 1

    order: dict[object, int] = {
        None: 0,
        NoneType: 0,
        int: 2,
        float: 3,
        bool: 4,
        Path: 6,
        str: 7,
    }
    try:
        return order.get(kind)
    except TypeError:  # an annotation that cannot be hashed is not one of these
        return None


def is_sequence(kind: object) -> bool:
    return get_origin(kind) in (tuple, Sequence)


def element_types(kind: object) -> list[object]:
    return [element for element in get_args(kind) if element is not Ellipsis]


def fixed_length(kind: object) -> bool:
    """Whether a sequence has one type per element, as in tuple[float, float]."""
    return get_origin(kind) is tuple and Ellipsis not in get_args(kind)


def is_writable(kind: object) -> bool:
    """Whether a setting of this type can be written in a word."""
    return any(part not in (None, NoneType) for part in parts_of(kind))


def describe(kind: object) -> str:
    """Name a type as the help shows it.

    >>> describe(float | None), describe(Literal["a", "b"]), describe(tuple[float, float])
    ('float or none', 'a|b', 'float:float')
    """
    return " or ".join(sorted(map(describe_part, parts_of(kind)), key=lambda name: name == "none"))


def describe_part(kind: object) -> str:
    """Name one type, not a union."""
    if get_origin(kind) is Literal:
        return "|".join(write(choice) for choice in get_args(kind))
    if is_sequence(kind):
        names = [describe(element) for element in element_types(kind)]
        return ":".join(names if fixed_length(kind) else [names[0], "..."])

    names_of_types: dict[object, str] = {
        None: "none",
        NoneType: "none",
        int: "int",
        float: "float",
        bool: "bool",
        Path: "path",
        str: "text",
    }
    return names_of_types[kind]


def read(text: str, kind: object) -> Any:
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
    raise ValueError(f"must be {describe(kind)}; got {text!r}{suggestion(text, kind)}")


def suggestion(text: str, kind: object) -> str:
    """Return a hint on the choice of a Literal that a typo may have meant."""
    kinds = [each for part in parts_of(kind) for each in (part, *get_args(part))]
    literals = [each for each in kinds if get_origin(each) is Literal]
    choices = [c for literal in literals for c in get_args(literal) if isinstance(c, str)]

    for piece in re.split(SEPARATOR, text):
        if piece not in choices and (hint := did_you_mean(piece, choices)):
            return hint
    return ""


def read_part(text: str, kind: object) -> object:
    """Read text as one type, not a union; raise ValueError if it does not fit."""
    if is_sequence(kind):
        return read_sequence(text, kind)
    if get_origin(kind) is Literal:
        return read_choice(text, get_args(kind))

    readers: dict[object, Callable[[str], object]] = {
        None: read_none,
        NoneType: read_none,
        int: int,
        float: read_float,
        bool: read_bool,
        Path: Path,
        str: str,
    }
    return readers[kind](text)


def read_none(text: str) -> None:
    if text.lower() != "none":
        raise ValueError("expected none")


def read_bool(text: str) -> bool:
    if text.lower() not in TRUE | FALSE:
        raise ValueError("expected true or false")
    return text.lower() in TRUE


def read_float(text: str) -> float:
    """Read a number or a fraction such as 8/255; NaN is refused."""
    numerator, slash, denominator = text.partition("/")
    value = float(numerator) / float(denominator) if slash else float(text)
    if math.isnan(value):
        raise ValueError("NaN is not a setting")
    return value


def read_choice(text: str, choices: tuple[object, ...]) -> object:
    for choice in choices:
        if text in (choice, write(choice)):
            return choice
    raise ValueError("expected one of the choices")


def read_sequence(text: str, kind: object) -> tuple[object, ...]:
    """Read 0.9:0.999 (or 0.9|0.999); () is empty, and one value may end with the colon."""
    pieces = [] if text == "()" else re.split(SEPARATOR, re.sub(f"{SEPARATOR}$", "", text))
    elements = element_types(kind)
    if not fixed_length(kind):
        elements = elements[:1] * len(pieces)
    return tuple(read(piece, element) for piece, element in zip(pieces, elements, strict=True))


def write(value: object, kind: object = None) -> str:
    """Write a value so that `read` returns it, the same way for equal values.

    >>> write(0.5), write(1.0), write(None), write((0.9, 0.999)), write("a, b"), write(False)
    ('0.5', '1', 'none', '0.9:0.999', '"a, b"', 'false')
    """
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value).removesuffix(".0")

    if isinstance(value, tuple | list):
        text = ":".join(write(item) for item in value) or "()"
        # A single value could be read as a number: a colon marks the sequence.
        ambiguous = len(value) == 1 and kind and read(text, kind) != tuple(value)
        return f"{text}:" if ambiguous else text

    if isinstance(value, str | Path):
        return write_text(str(value), kind)
    return str(value)


def write_text(text: str, kind: object) -> str:
    """Write text, in quotes if it would otherwise be read as something else."""
    bare = bool(text) and not QUOTED.search(text)
    if bare and kind and get_origin(kind) is not Literal:
        value = read(text, kind)
        bare = str(value) == text and isinstance(value, str | Path)
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

        first = int(match[1])
        last = int(match[2] or match[1])
        if not 0 <= last - first < MAX_EXPANDED:
            raise ValueError(f"{piece.strip()} must count up, to at most {MAX_EXPANDED:,} numbers")
        numbers += range(first, last + 1)
    return numbers
