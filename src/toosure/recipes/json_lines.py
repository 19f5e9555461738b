"""Read and extend files of JSON lines. A power cut may have torn the last line."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def read_json_lines(file: Path) -> list[dict[str, Any] | None]:
    """Return the object of each line, None for a damaged line; nothing if there is no file."""
    if not file.is_file():
        return []
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is damaged: it is no text in UTF-8") from error
    return [object_of(line) for line in lines]


def object_of(line: str) -> dict[str, Any] | None:
    """Return the JSON object of a line, or None if it holds anything else."""
    try:
        value = json.loads(line)
    except json.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def append_lines(file: Path, lines: Iterable[str]) -> None:
    """Append lines to a file; end a torn last line first, or the next would be lost with it."""
    text = "".join(f"{line}\n" for line in lines).encode()
    with file.open("a+b") as stream:  # writes at the end, wherever it read
        if stream.seek(0, os.SEEK_END):
            stream.seek(-1, os.SEEK_END)
            if stream.read(1) != b"\n":
                text = b"\n" + text
        stream.write(text)
