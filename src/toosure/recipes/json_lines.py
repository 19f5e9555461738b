"""Read files of JSON lines. A power cut may have torn the last line."""

import json
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
