"""Methods of one's own, package.module:name: a hash of their source, to tell when it changed."""

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

from toosure.config import WORDS, RunConfig
from toosure.runs.files import read_json
from toosure.words import Word


def own_words(config: RunConfig) -> Iterator[Word]:
    """List the words of a run that name somebody's own methods."""
    words = [config.word(kind) for kind in WORDS if getattr(config, kind) is not None]
    for word in words:
        inner = [value for value in word.settings.values() if isinstance(value, Word)]
        yield from (each for each in (word, *inner) if ":" in each.name)


def sources(config: RunConfig) -> dict[str, str]:
    """Return a hash of the module's file for each such word; what it imports is not followed."""
    found = {}
    for word in own_words(config):
        named = word.method.place.partition(":")[0]
        module = getattr(word.method.target, "__module__", named)  # where it is written
        file = getattr(sys.modules.get(module), "__file__", None)
        if file and Path(file).is_file():
            found[word.name] = hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]
    return found


def changes(config: RunConfig, folder: Path) -> Iterator[str]:
    """Say of each method of one's own that it is no longer what a run folder was trained with."""
    try:
        noted = read_json(folder / "environment.json")
    except ValueError:  # damaged: nothing is known
        return
    now = sources(config) if noted.get("sources") else {}
    before = dict(noted.get("sources", {}))
    for place in noted.get("resumed", []):
        before |= place.get("sources", {})
    for name, known in before.items():
        if now.get(name, known) != known:
            yield (
                f"the source of {name} has changed since {folder.name} was trained with it: "
                "move the folder away to train it again"
            )
