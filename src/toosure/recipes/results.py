"""What came of a recipe: claims as rows, the score, and everything as one JSON object."""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from toosure.finite import json_ready
from toosure.recipes.recipe import Claim
from toosure.recipes.reproduce import LOG, Outcome
from toosure.runs import Run
from toosure.runs.environment import torch_version

CLAIM_HEADER = ("claim", "found", "paper", "verdict", "note")


def claim_cells(claim: Claim) -> tuple[str, ...]:
    """Return a claim as a row under `CLAIM_HEADER`."""
    return claim.says, claim.found, claim.paper, claim.verdict, claim.note


def score(outcome: Outcome) -> str:
    """Say how many judged claims hold, how many are not judged, and which parts are missing."""
    verdicts = [claim.passed for claim in outcome.claims]
    return score_text(outcome, verdicts, list(outcome.findings))


def score_text(outcome: Outcome, verdicts: Sequence[bool | None], present: Sequence[str]) -> str:
    """Say the same of any verdicts, where the parts named in `present` are there."""
    judged = [verdict for verdict in verdicts if verdict is not None]
    unjudged = len(verdicts) - len(judged)
    holding = f"{sum(judged)} of {len(judged)} judged claims hold"
    text = holding if judged else "no claim is judged"
    if unjudged:
        text += f"; {unjudged} {'is' if unjudged == 1 else 'are'} reported without a verdict"
    if outcome.setting.quick:
        text += " (quick: small runs, not on the paper's data)"

    usual = (part.name for part in outcome.recipe.chosen(()))
    absent = [name for name in usual if name not in present]
    return f"{text}; not here: {', '.join(absent)}" if absent else text


# -- JSON -----------------------------------------------------------------------------------


def as_json(outcome: Outcome) -> dict[str, object]:
    """Return everything, unrounded, as one object; numbers that are not finite become null."""
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
        "ill": outcome.problems,
        "sweeps": read_sweeps(outcome.out),
    }

    # Through text and back: tuples become lists, keys become strings.
    plain: dict[str, Any] = json_ready(json.loads(json.dumps(record)))
    return plain


def read_sweeps(out: Path) -> list[dict[str, Any]]:
    """Read the records of the sweeps that trained the runs in a folder."""
    file = out / LOG
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    records = []
    for line in lines:
        with suppress(json.JSONDecodeError):  # torn by a power cut
            records.append(json.loads(line))
    return records


def provenance(run: Run) -> dict[str, Any]:
    """Return where a run comes from: device, versions, commit and command, with its length."""
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
