"""Where the numbers come from: settings, versions, hardware, time, warnings, certificates."""

import json
import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

from toosure.figures import Group
from toosure.figures.groups import name_of
from toosure.report.compare import last_of
from toosure.report.follow import FollowedRun
from toosure.report.page import Cell, Shown, printed, prose, section, table


def provenance(groups: Sequence[Group]) -> str:
    """Return what all runs share, a row for what each has of its own, and the whole on demand."""
    runs = [run for group in groups for run in group.runs]
    shared = common([run.config for run in runs])
    where = common([flat(run.environment) for run in runs])
    rows = [row_of(name_of(run, group), run) for group in groups for run in group.runs]
    header = ("run", "status", "steps", "rows", "seconds", "device")
    blocks = [
        table(header, rows, ("", "", ",", ",", "", ""), sortable=True),
        pairs("Asked of every run" if len(runs) > 1 else "Asked", shared),
        pairs("Where", where),
        folded(
            "".join(details(name_of(run, group), run) for group in groups for run in group.runs)
        ),
    ]
    return section("Where this comes from", "", warned(groups), *blocks, name="provenance")


def row_of(name: str, run: FollowedRun) -> list[Cell]:
    """Return the row of a run: how it stands and what it took."""
    seconds, spent = last_of(run, "seconds"), run.columns.get("seconds_measuring")
    cost = ""
    if seconds and spent is not None:
        cost = f"{100 * float(np.nansum(spent)) / seconds:.0f} % measuring"
    took = Shown(seconds, printed(seconds, ",.1f"), cost)
    steps = int(run.columns["step"][-1]) if run.count else 0
    status = (name, run.id) if run.id != name else name
    return [status, run.status, steps, run.count, took, device_of(run)]


def device_of(run: FollowedRun) -> str:
    return str(run.environment.get("device", "–"))


def warned(groups: Sequence[Group]) -> str:
    """Return the warnings of all runs, or that there are none."""
    found = [
        f"<li><strong>{escape(name_of(run, group))}</strong> {prose(warning)}</li>"
        for group in groups
        for run in group.runs
        for warning in run.warnings
    ]
    if not found:
        runs = [run for group in groups for run in group.runs]
        curved = any(key.endswith(("sharpness", "_error")) for run in runs for key in run.last)
        values = ", every eigenvalue converged" if curved else ""
        return f"<p>No warnings: every run ended as it should{values}.</p>"
    return f'<ul class="warnings">{"".join(found)}</ul>'


def common(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the entries that all records share."""
    first = records[0] if records else {}
    return {k: v for k, v in first.items() if all(k in r and r[k] == v for r in records)}


def flat(environment: dict[str, Any]) -> dict[str, Any]:
    """Return an environment with its versions side by side."""
    rest = {k: v for k, v in environment.items() if k != "versions"}
    versions = environment.get("versions")
    return {**(versions if isinstance(versions, dict) else {}), **rest}


def pairs(title: str, record: dict[str, Any]) -> str:
    """Return names and values in columns; empty ones are left out."""
    kept = {k: said(v) for k, v in record.items() if v not in (None, [], "")}
    if not kept:
        return ""
    items = "".join(
        f'<div class="{"long" * (len(v) > 60)}"><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>'
        for k, v in sorted(kept.items(), key=lambda item: len(item[1]) > 60)
    )
    return f'<h3>{escape(title)}</h3><dl class="pairs">{items}</dl>'


def said(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def details(name: str, run: FollowedRun) -> str:
    """Return the whole config and environment of a run, folded away."""
    whole = {"config": run.config, "environment": run.environment}
    text = json.dumps(whole, indent=2, ensure_ascii=False)
    return f"<details><summary>{escape(name)}</summary><pre>{escape(text)}</pre></details>"


def folded(inner: str) -> str:
    return f"<details><summary>every setting of each run</summary>{inner}</details>"


CLAIMS = {
    "4.1 (i)": "calibration error is capped by the tail of small margins",
    "4.1 (ii)": "the same tail caps the sharpness",
    "4.2 (i)": "with every sample right, calibration error and margin tail go together",
    "4.2 (ii)": "sharpness forces calibration error",
    "4.2 (iii)": "sharpness forces calibration error",
    "4.2 (iv)": "the same holds for margins at the given radius",
    "4.2 (v)": "bins do not matter: the error is the mean doubt",
    "B.1": "calibration error is at most the mean distance between being right and being sure",
    "B.2": "that distance is at most the probability not given to the label",
    "B.3": "that probability is held between multiples of exp(-margin)",
    "B.4": "softmax is flat where the model is sure",
    "B.5": "moving the input lowers the margin by no more than its slope allows",
    "B.6": "how sure the model is caps its sharpness",
    "B.7": "what an attack finds lies below what is proved",
    "B.8": "test error is bounded by the training margins",
}


def certificates(groups: Sequence[Group]) -> str:
    """Return the certificate of each run in words; nothing where none was asked for."""
    named = [(name_of(run, group), run) for group in groups for run in group.runs]
    blocks = [
        certificate(name, run) for name, run in named if "train/certificate_failed" in run.last
    ]
    if not blocks:
        return ""
    note = (
        "Inequalities between calibration, margins and sharpness that are theorems, checked on the "
        "training data of the last row. Slack is how far a side may still move; a failure would be "
        "a broken assumption or a bug of ours."
    )
    return section("Certificate", note, *blocks, name="certificate")


def certificate(name: str, run: FollowedRun) -> str:
    """Say how many statements hold in a run, and which is the tightest."""
    failed = int(run.last.get("train/certificate_failed") or 0)
    slacks = {
        k.split("slack ", 1)[1]: v for k, v in run.last.items() if k.startswith("train/slack ")
    }
    held = f"All {len(slacks)} statements that apply hold"
    if failed:
        held = f"{failed} of {len(slacks)} statements that apply FAIL"
    rows = [
        ((key, claim_of(key)), Shown(number(v), f"{number(v):.4g}")) for key, v in slacks.items()
    ]
    tone = "over" if failed else "fine"
    return (
        f'<h3>{escape(name)}: <span class="{tone}">{escape(held)}</span></h3>'
        f"<details><summary>each statement and its slack</summary>"
        f"{table(('statement', 'slack'), rows, sortable=True)}</details>"
    )


def number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def claim_of(name: str) -> str:
    """Return a statement in plain words: that of the longest name which begins it."""
    fitting: Iterable[str] = (key for key in CLAIMS if name.startswith(key))
    return CLAIMS.get(max(fitting, key=len, default=""), "")
