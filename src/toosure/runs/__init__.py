"""A run is a folder: what was asked, where, what happened. Read without torch, one writer."""

from toosure.runs.read import Run, find_runs
from toosure.runs.table import export, select, summary
from toosure.runs.write import RunError, RunWriter

__all__ = ["Run", "RunError", "RunWriter", "export", "find_runs", "select", "summary"]
