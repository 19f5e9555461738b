"""Read untrusted JSON, with limits on depth and on the size of numbers and texts."""

import json
import math
import re
from json import JSONDecoder
from pathlib import Path
from typing import Any

from toosure.runs.regular_files import open_regular, printable

MAX_JSON = 4 << 20  # bytes of a file that people may read
MAX_DEPTH = 32  # lists in lists; ours have five
MAX_DIGITS = 30  # of an integer; 2^64 has 20


def parse_integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"an integer of {len(text)} digits: at most {MAX_DIGITS} are read")
    return int(text)


def no_number(_: str) -> None:
    """Read NaN and Infinity, which are not JSON, as null."""


FLAT = {int, float, str, bool, type(None)}
LONG_INTEGER = re.compile(rf"[0-9]{{{MAX_DIGITS + 1}}}")
DECODER = JSONDecoder(parse_constant=no_number)
CAREFUL_DECODER = JSONDecoder(parse_int=parse_integer, parse_constant=no_number)  # slower


def read_json(
    path: Path, follow_links: bool = True, if_damaged: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Read a JSON object; return {} if the file does not exist.

    For anything else (a pipe, a device, gigabytes, deeply nested lists) raise ValueError, or return
    `if_damaged` if given.
    """
    problem = "it is a link to nowhere"
    try:
        with open_regular(path, follow_links, MAX_JSON) as file:
            content = parse_json(file.read(MAX_JSON))
        if isinstance(content, dict):
            return content
        problem = f"it must hold a JSON object; got {type(content).__name__}"
    except FileNotFoundError:
        if not path.is_symlink():
            return {}
    except (OSError, ValueError, MemoryError) as error:
        problem = str(error)

    if if_damaged is not None:
        return if_damaged
    raise ValueError(f"{printable(str(path))} cannot be read: {problem}")


def parse_json(text: str | bytes, max_depth: int = MAX_DEPTH) -> Any:
    """Read JSON, or raise ValueError with the reason.

    Nesting deeper than `max_depth`, integers of more than 30 digits, numbers beyond floating point
    (1e400) and texts that UTF-8 cannot encode are refused.

    >>> parse_json('{"a": [1, 2.5, NaN]}')
    {'a': [1, 2.5, None]}
    >>> parse_json("1e400")
    Traceback (most recent call last):
    ValueError: a number is too large for floating point
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        decoder = CAREFUL_DECODER if LONG_INTEGER.search(text) else DECODER
        value = decoder.decode(text)
    except RecursionError:
        raise ValueError(f"lists or objects in each other, more than {max_depth} deep") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from None

    # A row is a flat object of finite values: then this quick look is enough.
    has_escapes = "\\u" in text
    inner = value.values() if isinstance(value, dict) else ()
    flat = inner and FLAT.issuperset(map(type, inner))
    if has_escapes or not flat or math.inf in inner or -math.inf in inner:
        check(value, max_depth, has_escapes)
    return value


def check(value: object, max_depth: int = MAX_DEPTH, has_escapes: bool = True) -> None:
    """Raise if a value that was read is too deep, too large or cannot be written."""
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
