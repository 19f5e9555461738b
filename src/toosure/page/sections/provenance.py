"""Where the numbers come from: settings, versions, hardware, time, warnings."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from toosure.figures import Group
from toosure.page.html import breakable, prose, section
from toosure.page.number_text import printed
from toosure.page.page_runs import PageRuns
from toosure.page.ranking import last_of
from toosure.page.sections.progress import command
from toosure.page.tables import Cell, NumberCell, table
from toosure.runs import Run

MAX_UNFOLDED = 6  # runs


def provenance(page: PageRuns) -> str:
    """Return what all runs share, a row for each run, and all details on demand."""
    shared = common([run.config for run in page.runs])
    where = common([flat(run.environment) for run in page.runs])
    rows = [row_of(name, run) for name, run in page.named]
    header = ("run", "status", "steps", "rows", "seconds", "device", "command")

    folded = "every setting of each run" if len(page.runs) > 1 else "every setting"
    every = "".join(details(name, run) for name, run in page.named)
    runs = table(header, rows, ("", "", ",", ",", "", "", ""), sortable=True)
    if len(rows) > MAX_UNFOLDED:
        runs = f"<details><summary>the {len(rows)} runs: status, time, command</summary>{runs}"
        runs += "</details>"
    blocks = [
        runs,
        pairs("Asked of every run" if len(page.runs) > 1 else "Asked", shared),
        pairs("Where", where),
        f"<details><summary>{folded}</summary>{every}</details>",
    ]
    return section(
        "Where this comes from", "", warnings(page), *blocks, name="provenance", short="Origin"
    )


def row_of(name: str, run: Run) -> list[Cell]:
    """Return the row of a run: its status and what it took."""
    seconds = last_of(run, "seconds")
    spent = run.columns.get("seconds_measuring")
    cost = ""
    if seconds and spent is not None:
        cost = f"{100 * float(np.nansum(spent)) / seconds:.0f} % measuring"
    took = NumberCell(seconds, printed(seconds, ",.1f"), cost)
    steps = int(run.columns["step"][-1]) if run.count else 0
    status = (name, run.id) if run.id != name else name
    return [status, run.status, steps, run.count, took, device_of(run), command(run)]


def device_of(run: Run) -> str:
    return str(run.environment.get("device", "–"))


def warnings(page: PageRuns) -> str:
    """Return the warnings of all runs, or that there are none."""
    items = [f"<li>{prose(text)}</li>" for text in page.cautions]
    items += [item for group in page.groups for item in warning_items(group)]
    if items:
        return f'<ul class="warnings">{"".join(items)}</ul>'

    curved = any(key.endswith(("sharpness", "_error")) for run in page.runs for key in run.last)
    values = ", every eigenvalue converged" if curved else ""
    return f"<p>No warnings: every run ended as it should{values}.</p>"


def warning_items(group: Group) -> list[str]:
    """Return the warnings of a setting; one that several seeds share appears once."""
    warned: dict[str, list[str]] = {}
    for name, run in zip(group.names, group.runs, strict=True):
        for warning in [*run.warnings, *([] if run.count else ["no rows yet"])]:
            warned.setdefault(warning, []).append(name)

    items = []
    for warning, names in warned.items():
        who = f"<strong>{escape(names[0])}</strong>"
        if len(names) > 1:
            seeds = f"{len(names)} of {len(group.runs)} seeds"
            who = f"<strong>{escape(group.label)}</strong>, {seeds}:"
        items.append(f"<li>{who} {prose(warning)}</li>")
    return items


def common(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the entries that all records share."""
    first = records[0] if records else {}
    return {
        key: value
        for key, value in first.items()
        if all(key in record and record[key] == value for record in records)
    }


def flat(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return an environment with its versions side by side."""
    rest = {k: v for k, v in environment.items() if k != "versions"}
    versions = environment.get("versions")
    return {**(versions if isinstance(versions, dict) else {}), **rest}


def pairs(title: str, record: Mapping[str, Any]) -> str:
    """Return names and values in columns; empty ones are left out."""
    texts = {k: as_text(v) for k, v in record.items() if v not in (None, [], "")}
    if not texts:
        return ""
    items = "".join(
        f'<div class="{"long" * (len(v) > 60)}"><dt>{escape(k)}</dt><dd>{breakable(v)}</dd></div>'
        for k, v in sorted(texts.items(), key=lambda item: len(item[1]) > 60)
    )
    return f'<h3>{escape(title)}</h3><dl class="pairs">{items}</dl>'


def as_text(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def details(name: str, run: Run) -> str:
    """Return the whole config and environment of a run, folded away."""
    whole = {"config": run.config, "environment": run.environment}
    text = json.dumps(whole, indent=2, ensure_ascii=False)
    return f"<details><summary>{escape(name)}</summary><pre>{escape(text)}</pre></details>"
