"""A study of several goals: its complete runs by the first two, and the Pareto front."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from toosure.figures.pareto import pareto_figure, pareto_front
from toosure.finite import is_finite_number
from toosure.page.html import FIGURE_TOOLS, plot, section
from toosure.page.page_runs import PageRuns
from toosure.page.tables import Cell, Heading, table
from toosure.quantities import Quantity, find
from toosure.runs import Run
from toosure.runs.json_text import read_json


@dataclass(frozen=True)
class StudyRuns:
    """The complete runs of a study, and their last values of its first two goals."""

    keys: tuple[str, str]
    goals: tuple[Quantity, Quantity]
    labels: list[str]
    values: np.ndarray  # (N, 2), in the units of the goals
    front: np.ndarray  # (N,) whether no other run beats it


def pareto(page: PageRuns) -> str:
    """Return the figure and the table of each study; empty if no run belongs to one."""
    blocks = [block_of(study) for study in studies(page)]
    if not blocks:
        return ""
    note = (
        "Complete runs of a study (toosure tune), last row. Beside a run of the front no other is "
        "as good in all goals and better in one; which of them to take is your choice. They were "
        "chosen on these data: judge the one you take on test data."
    )
    return section("Pareto front", note, *blocks, name="pareto")


def studies(page: PageRuns) -> list[StudyRuns]:
    """Return the studies with several goals that runs of the page belong to."""
    members: dict[Path, list[tuple[str, Run]]] = {}
    for name, run in page.named:
        members.setdefault(run.path.parent, []).append((name, run))
    candidates = (study_of(folder, named) for folder, named in members.items())
    return [study for study in candidates if study is not None]


def study_of(folder: Path, named: Sequence[tuple[str, Run]]) -> StudyRuns | None:
    """Return the study of a folder, if it is one and has two complete runs or more."""
    keys = goals_in(folder, follow_links=named[0][1].follow_links)
    quantities = [quantity for key in keys if (quantity := find(key)) is not None]
    if len(quantities) < 2 or len(quantities) < len(keys):
        return None

    labels: list[str] = []
    rows: list[list[float]] = []
    for name, run in named:
        values = [run.last.get(key) for key in keys]
        numbers = [v for v in values if is_finite_number(v)]
        if run.status == "complete" and len(numbers) == len(keys):
            labels.append(name)
            rows.append([q.scale * v for q, v in zip(quantities, numbers, strict=True)])
    if len(rows) < 2:
        return None

    signs = [1.0 if quantity.better == "higher" else -1.0 for quantity in quantities]
    front = pareto_front(np.array(rows), signs)
    first, second = quantities[:2]
    return StudyRuns((keys[0], keys[1]), (first, second), labels, np.array(rows)[:, :2], front)


def goals_in(folder: Path, follow_links: bool) -> list[str]:
    """Return the goals of the study in a folder, as keys of rows; none if there is no study."""
    try:
        goals = read_json(folder / "tuning.json", follow_links).get("goals")
    except ValueError:
        return []
    return [key for key in goals if isinstance(key, str)] if isinstance(goals, list) else []


def block_of(study: StudyRuns) -> str:
    """Return the figure of a study and the table of its front, the best in the first goal first."""
    drawing = pareto_figure(study.values, study.front, study.labels, study.goals)
    title = f"{study.goals[0].short} against {study.goals[1].short}"

    best_first = -1 if study.goals[0].better == "higher" else 1
    order = np.argsort(best_first * study.values[:, 0], kind="stable")
    rows: list[list[Cell]] = [
        [study.labels[i], *map(float, study.values[i])] for i in order if study.front[i]
    ]
    header: list[Heading] = ["run", *study.goals]
    forms = ("", *(goal.form for goal in study.goals))
    figure = f"<figure>{plot(drawing, title)}{FIGURE_TOOLS}</figure>"
    return f'<div class="pair">{figure}{table(header, rows, forms, sortable=True)}</div>'
