"""Find the run folders below a folder."""

import os
from pathlib import Path

from toosure.runs.run import Run
from toosure.runs.storage import as_given
from toosure.runs.stored_folder import fetched_folder


def find_runs(folder: str | Path, follow_links: bool = True) -> list[Run]:
    """Find the run folders in a folder, at any depth, sorted by path; the folder may be one.

    Links to folders are skipped. A folder is a run if it holds rows or a status, readable or not:
    the run reports damage. The runs of a URL are fetched first.
    """
    root = fetched_folder(folder)
    if not root.is_dir():
        raise ValueError(f"{as_given(folder)} is not a folder: name the folder that holds the runs")

    folders = []
    waiting = [root]  # no recursion: thousands of folders may lie in each other
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                inner = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        except OSError:
            continue  # gone, or without permission
        if "metrics.jsonl" in inner or "status.json" in inner:
            folders.append(folder)
        else:
            waiting += [folder / name for name, is_folder in inner.items() if is_folder]
    return [Run(path, root, follow_links) for path in sorted(folders) if path.is_dir()]
