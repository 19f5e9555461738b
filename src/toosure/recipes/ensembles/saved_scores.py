"""Saved scores of runs and mixtures in `scores.jsonl`, which outlives the run folders.

A line holds the data set, the row of the table, the name of the run or of the members of a mixture,
and the scores. A run with a line is not trained again.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from toosure.recipes.benchmark.score_files import SCORES_FILE
from toosure.recipes.json_lines import append_lines, read_json_lines
from toosure.recipes.recipe import Setting

Scores = dict[str, float]
ScoresByName = dict[str, Scores]  # of a run, or of the members of a mixture


def read_scores(setting: Setting) -> dict[str, ScoresByName]:
    """Return the saved scores of this data set, by row of the table."""
    rows: dict[str, ScoresByName] = {}
    if setting.scores:
        for line in read_json_lines(Path(setting.scores) / SCORES_FILE):
            if line and line.get("data") == setting.data:
                rows.setdefault(line["row"], {})[line["name"]] = line["scores"]
    return rows


def save_scores(setting: Setting, rows: Mapping[str, ScoresByName]) -> None:
    """Append the scores that the folder does not have yet."""
    if not setting.scores:
        return
    known = read_scores(setting)
    lines = [
        json.dumps({"data": setting.data, "row": row, "name": name, "scores": scores})
        for row, by_name in rows.items()
        for name, scores in by_name.items()
        if name not in known.get(row, {})
    ]
    if not lines:
        return

    folder = Path(setting.scores)
    folder.mkdir(parents=True, exist_ok=True)
    append_lines(folder / SCORES_FILE, lines)
