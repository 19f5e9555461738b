"""A run is a folder: what was asked, where, what happened. Read without torch, one writer."""

from toosure.runs.find import find_runs
from toosure.runs.folder import RunFolder
from toosure.runs.run import Run
from toosure.runs.table import export, select, summary
from toosure.runs.write import RunError, RunWriter

__all__ = ["Run", "RunError", "RunFolder", "RunWriter", "export", "find_runs", "select", "summary"]
