"""Hashes of the files that hold a user's own methods (package.module:name), to notice changes."""

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

from toosure.config import WORDS, RunConfig
from toosure.runs.json_text import read_json
from toosure.words import Word


def user_words(config: RunConfig) -> Iterator[Word]:
    """Yield the words of a run that name methods of the user."""
    words = [config.word(kind) for kind in WORDS if getattr(config, kind) is not None]
    for word in words:
        inner = [value for value in word.settings.values() if isinstance(value, Word)]
        yield from (each for each in (word, *inner) if ":" in each.name)


def code_hashes(config: RunConfig) -> dict[str, str]:
    """Return a hash of the module's file for each such word, without what the module imports."""
    hashes = {}
    for word in user_words(config):
        # A method may be written in another module than the one that the word names.
        named = word.method.place.partition(":")[0]
        module = getattr(word.method.target, "__module__", named)
        file = getattr(sys.modules.get(module), "__file__", None)

        if file and Path(file).is_file():
            hashes[word.name] = hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]
    return hashes


def code_changes(config: RunConfig, folder: Path) -> Iterator[str]:
    """Yield a sentence for each user method whose file changed since the run was trained."""
    try:
        environment = read_json(folder / "environment.json")
    except ValueError:  # damaged: nothing is known
        return

    # A run that was resumed elsewhere noted there what had changed.
    before = dict(environment.get("sources", {}))
    for place in environment.get("resumed", []):
        before |= place.get("sources", {})

    now = code_hashes(config) if environment.get("sources") else {}
    for name, known_hash in before.items():
        if now.get(name, known_hash) != known_hash:
            yield (
                f"the source of {name} has changed since {folder.name} was trained with it: "
                "move the folder away to train it again"
            )
