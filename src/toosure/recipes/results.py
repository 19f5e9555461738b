"""An outcome on paper: rich tables, one JSON object, and the markdown of RESULTS.md."""

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toosure.recipes.recipe import Claim, Drawing, Table
from toosure.recipes.reproduce import LOG, Outcome
from toosure.runs import Run

if TYPE_CHECKING:
    from rich.table import Table as RichTable

CLAIM_HEADER = ("claim", "found", "paper", "verdict", "note")


def cells(claim: Claim) -> tuple[str, ...]:
    return claim.says, claim.found, claim.paper, claim.verdict, claim.note


def claims_table(claims: Sequence[Claim]) -> "RichTable":
    """Lay the claims out for the terminal."""
    from rich.table import Table as RichTable

    table = RichTable(*CLAIM_HEADER, box=None, pad_edge=False, header_style="dim")
    colours = {True: "green", False: "bold red", None: "dim"}
    for claim in claims:
        table.add_row(*cells(claim), style=None if claim.passed else colours[claim.passed])
    return table


def rich_table(table: Table) -> "RichTable":
    """Lay a table out for the terminal."""
    from rich.table import Table as RichTable

    made = RichTable(box=None, pad_edge=False, header_style="dim", title=table.title)
    for number, name in enumerate(table.header):
        made.add_column(name, justify="right" if number and name else "left")
    for row in table.rows:
        made.add_row(*row)
    return made


def as_json(outcome: Outcome) -> dict[str, Any]:
    """Return everything, unrounded, as one object; what is not finite is null."""
    found = {
        "recipe": outcome.recipe.name,
        "setting": {**vars(outcome.setting)},
        "claims": [{**vars(c), "verdict": c.verdict} for c in outcome.claims],
        "parts": {
            name: {
                "values": part.values,
                "tables": [vars(table) for table in part.tables],
                "runs": [provenance(run) for run in outcome.runs[name]],
            }
            for name, part in outcome.findings.items()
        },
        "ill": outcome.ill,
        "sweeps": sweeps(outcome.out),
    }
    return finite(json.loads(json.dumps(found)))


def finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def sweeps(out: Path) -> list[dict[str, Any]]:
    """Read what was carried out in a folder: when several times, several records."""
    file = out / LOG
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    found = []
    for line in lines:
        with suppress(json.JSONDecodeError):  # torn by a power cut
            found.append(json.loads(line))
    return found


def provenance(run: Run) -> dict[str, Any]:
    """Return where a run comes from, in one record."""
    where = run.environment
    return {
        "run": run.name,
        "status": run.status,
        "rows": len(run.rows),
        "steps": run.last.get("step"),
        "seconds": run.last.get("seconds"),
        "device": where.get("device"),
        "torch": where.get("versions", {}).get("torch"),
        "commit": where.get("commit"),
        "command": where.get("command"),
    }


def score(outcome: Outcome) -> str:
    """Say how many claims were judged, how many of these hold, how many were not judged."""
    judged = [claim.passed for claim in outcome.claims if claim.passed is not None]
    rest = len(outcome.claims) - len(judged)
    said = (
        f"{sum(judged)} of {len(judged)} judged claims hold; {rest} are reported without a verdict"
    )
    left_out = [
        part.name for part in outcome.recipe.chosen(()) if part.name not in outcome.findings
    ]
    return f"{said}; not here: {', '.join(left_out)}" if left_out else said


# -- markdown -------------------------------------------------------------------------------


def markdown(outcome: Outcome, figures: Path | None = None) -> str:
    """Return RESULTS.md: claims, then each part with its command, runs, tables and pictures.

    `figures` is a folder beside the page: pictures in it are shown, those that are not there left
    out (`recipes/pictures.py` makes them from the page).
    """
    recipe = outcome.recipe
    blocks = [
        f"# {recipe.title}: what we measured",
        f"Made by `toosure reproduce {recipe.name}` ({recipe.reference}); every number below comes "
        "from run folders by the command named above it.",
        f"{score(outcome)}.",
        "## Claims",
        pipes(CLAIM_HEADER, [cells(claim) for claim in outcome.claims]),
    ]
    for name in outcome.findings:
        blocks += part_blocks(outcome, name)
        blocks += pictures(outcome.drawings[name], figures) if figures else []
    if outcome.ill:
        rows = sorted(outcome.ill.items())
        blocks += ["## Runs that are missing or ended early", pipes(("run", "why"), rows)]
    blocks += ["## Time and place", times(outcome)]
    return "\n\n".join(blocks) + "\n"


def pictures(drawings: Sequence[Drawing], folder: Path) -> list[str]:
    """Return the figures that lie in the folder, each with what to see in it."""
    return [
        f"![{each.title}]({folder.name}/{each.name}.png)\n\n*{stopped(each.title)}* {each.note}"
        for each in drawings
        if (folder / f"{each.name}.png").is_file()
    ]


def stopped(title: str) -> str:
    """Return a title as a sentence."""
    return title if title.endswith("?") else f"{title}."


def part_blocks(outcome: Outcome, name: str) -> list[str]:
    """Return a part: what it is, the command, its tables, and where its runs come from."""
    found, setting = outcome.findings[name], outcome.setting
    words = ["toosure reproduce", outcome.recipe.name, "--only", name]
    words += ["--seed", ",".join(map(str, setting.seeds))] if setting.seeds else []
    words += ["--data", setting.data] * (setting.data != "cifar10") + ["--quick"] * setting.quick
    blocks = [f"## {name}: {outcome.recipe.part(name).says}", f"`{' '.join(words)}`"]
    blocks.append(summary(outcome.runs[name]))
    for table in found.tables:
        blocks += [f"### {table.title}", *filter(None, [table.note])]
        blocks.append(pipes(table.header, table.rows))
    return blocks


def summary(runs: Sequence[Run]) -> str:
    """Say in a line how many runs there are, where they ran, by which commit, for how long."""
    records = [provenance(run) for run in runs]
    seconds = sum(record["seconds"] or 0 for record in records)
    rows = sum(record["rows"] for record in records)
    where = "; ".join(sorted({f"{r['device']}, torch {r['torch']}" for r in records}))
    commits = ", ".join(sorted({short(r["commit"]) for r in records}))
    return (
        f"{len(runs)} runs, {rows:,} rows, {seconds:,.0f} s of running added up "
        f"(runs side by side share a device); {where}; commit {commits}."
    )


def times(outcome: Outcome) -> str:
    """List the sweeps that made the runs: parts, wall time, workers, device, commit, command."""
    header = ("parts", "runs", "wall seconds", "workers", "graph", "device", "commit", "command")
    rows = [
        (
            " ".join(each["parts"]), str(each["trained"]), f"{each['seconds']:,.0f}",
            str(each["workers"]), "yes" if each["graph"] else "no", str(each["device"]),
            short(each["commit"]), f"`{told(each['command'])}`",
        )
        for each in sweeps(outcome.out)
    ]  # fmt: skip
    return pipes(header, rows)


def short(commit: str | None) -> str:
    """Return the first digits of a commit; "+" still says that files differed.

    >>> short("0123456789abcdef+"), short(None)
    ('0123456789ab+', 'no commit')
    """
    return "no commit" if not commit else commit[:12] + "+" * commit.endswith("+")


def told(command: str) -> str:
    """Return a command as it would be typed.

    >>> told("__main__.py reproduce too-sharp")
    'python -m toosure reproduce too-sharp'
    """
    return command.replace("__main__.py", "python -m toosure", 1)


def pipes(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a markdown table.

    >>> print(pipes(("a", "b"), [("1", "x|y")]))
    | a | b |
    |---|---|
    | 1 | x\\|y |
    """
    lines = [header, ["---"] * len(header), *rows]
    texts = ["| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in lines]
    texts[1] = "|" + "---|" * len(header)
    return "\n".join(texts)
