"""The outcome of a recipe: claims as rows, the summary, and one JSON object."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toosure.finite import json_ready
from toosure.recipes.json_lines import read_json_lines
from toosure.recipes.recipe import Claim
from toosure.recipes.reproduce import LOG, Outcome
from toosure.runs import Run
from toosure.runs.environment import torch_version

CLAIM_HEADER = ("claim", "found", "paper", "verdict", "note")


def claim_cells(claim: Claim) -> tuple[str, ...]:
    """Return a claim as a row under `CLAIM_HEADER`."""
    return claim.statement, claim.found, claim.paper, claim.verdict, claim.note


def claims_laid_out(claims: Sequence[Claim]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of claims, without the paper where none names one."""
    rows = [dict(zip(CLAIM_HEADER, claim_cells(claim), strict=True)) for claim in claims]
    has_paper = any(row["paper"] not in ("", "–") for row in rows)
    header = [name for name in CLAIM_HEADER if name != "paper" or has_paper]
    return header, [[row[name] for name in header] for row in rows]


def claims_summary(outcome: Outcome) -> str:
    """Return how many judged claims hold, how many are not judged, and the missing parts."""
    verdicts = [claim.passed for claim in outcome.claims]
    return summary_text(outcome, verdicts, list(outcome.findings))


def summary_text(outcome: Outcome, verdicts: Sequence[bool | None], present: Sequence[str]) -> str:
    """Return the summary of some verdicts, with the default parts that are not in `present`."""
    judged = [verdict for verdict in verdicts if verdict is not None]
    unjudged = len(verdicts) - len(judged)
    holding = f"{sum(judged)} of {len(judged)} judged claims hold"
    text = holding if judged else "no claim is judged"
    if unjudged:
        text += f"; {unjudged} {'is' if unjudged == 1 else 'are'} reported without a verdict"
    if outcome.setting.quick:
        text += " (quick: small runs, not on the paper's data)"

    expected = (part.name for part in outcome.recipe.chosen(()))
    missing = [name for name in expected if name not in present]
    return f"{text}; not here: {', '.join(missing)}" if missing else text


# -- JSON -----------------------------------------------------------------------------------


def as_json(outcome: Outcome) -> dict[str, object]:
    """Return the whole outcome, unrounded, as one object; NaN and infinity become null."""
    parts = {
        name: {
            "values": findings.values,
            "tables": [vars(table) for table in findings.tables],
            "runs": [provenance(run) for run in outcome.runs[name]],
        }
        for name, findings in outcome.findings.items()
    }
    record = {
        "recipe": outcome.recipe.name,
        "setting": {**vars(outcome.setting)},
        "claims": [{**vars(claim), "verdict": claim.verdict} for claim in outcome.claims],
        "parts": parts,
        "problems": outcome.problems,
        "sweeps": read_sweeps(outcome.out),
    }

    # Through text and back: tuples become lists, keys become strings.
    plain: dict[str, Any] = json_ready(json.loads(json.dumps(record)))
    return plain


def read_sweeps(out: Path) -> list[dict[str, Any]]:
    """Read the records of the sweeps that trained the runs in a folder."""
    return [record for record in read_json_lines(out / LOG) if record is not None]


def provenance(run: Run) -> dict[str, Any]:
    """Return the origin of a run: device, versions, commit, command and length."""
    environment = run.environment
    return {
        "run": run.name,
        "status": run.status,
        "rows": len(run.rows),
        "steps": run.last.get("step"),
        "seconds": run.last.get("seconds"),
        "device": environment.get("device"),
        "torch": torch_version(environment),
        "commit": environment.get("commit"),
        "command": environment.get("command"),
    }
