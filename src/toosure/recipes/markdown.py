"""The markdown of RESULTS.md: claims, then each part with its command, runs and tables."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from toosure.page.markdown_table import markdown_table, table_line
from toosure.recipes.commits import commits_text, short_commit
from toosure.recipes.earlier_page import EarlierPage, cells, read_page
from toosure.recipes.recipe import Drawing
from toosure.recipes.reproduce import Outcome
from toosure.recipes.results import CLAIM_HEADER, claim_cells, provenance, read_sweeps, summary_text
from toosure.runs import Run

LISTED_PROBLEMS = 20


def markdown(outcome: Outcome, figures: Path | None = None, earlier: str = "") -> str:
    """Return the text of RESULTS.md.

    `figures` is a folder beside the page; only figures with a picture in it are shown
    (`recipes/pictures.py` makes them from the HTML page). `earlier` is the present text of the
    page: it keeps the parts that are not made here.
    """
    recipe = outcome.recipe
    kept = read_page(earlier, recipe, outcome.setting, outcome.findings)
    source = (
        "run folders, or the scores kept of them,"
        if "--scores" in recipe.options
        else "run folders"
    )
    blocks = [
        f"# {recipe.title}: what we measured",
        f"Made by `toosure reproduce {recipe.name}` ({recipe.reference}); every number below comes "
        f"from {source} by the command named above it.",
        f"{page_summary(outcome, kept)}.",
    ]
    if kept.sections:
        blocks.append(earlier_parts_text(outcome, kept))
    if rows := claim_rows(outcome, kept):
        blocks += [
            "## Claims",
            markdown_table(("part", *CLAIM_HEADER), []) + "\n" + "\n".join(rows),
        ]

    for part in recipe.parts:
        if part.name in kept.sections:
            blocks.append(kept.sections[part.name])
        elif part.name in outcome.findings:
            blocks += part_blocks(outcome, part.name)
            if figures:
                blocks += picture_blocks(outcome.drawings[part.name], figures)

    if outcome.problems:
        blocks += ["## Runs that are missing or ended early", problem_table(outcome.problems)]
    if sweeps := sweep_table(outcome, kept):
        blocks += ["## Time and place", sweeps]
    return "\n\n".join(blocks) + "\n"


def page_summary(outcome: Outcome, kept: EarlierPage) -> str:
    """Return how many claims of the whole page hold, made here or kept."""
    verdicts = [claim.passed for claim in outcome.claims] + kept.verdicts
    return summary_text(outcome, verdicts, [*outcome.findings, *kept.sections])


def earlier_parts_text(outcome: Outcome, kept: EarlierPage) -> str:
    """Name the parts that this call made, and the kept ones with the commits of their runs."""
    earlier = ", ".join(f"{name} ({kept.commits(name)})" for name in kept.sections)
    made = ", ".join(outcome.findings)
    return f"Made last: {made}. Kept as earlier calls wrote them, with their commits: {earlier}."


def claim_rows(outcome: Outcome, kept: EarlierPage) -> list[str]:
    """Return the claims of all parts in the recipe's order, as rows of a table."""
    rows = []
    for part in outcome.recipe.parts:
        rows += kept.claims.get(part.name, [])
        if part.name in outcome.findings:
            claims = outcome.findings[part.name].claims
            rows += [table_line((part.name, *claim_cells(claim))) for claim in claims]
    return rows


def problem_table(problems: Mapping[str, str]) -> str:
    """List the first runs that cannot be used, and the number of further ones."""
    return markdown_table(("run", "why"), sorted(problems.items()), show=LISTED_PROBLEMS)


def picture_blocks(drawings: Sequence[Drawing], folder: Path) -> list[str]:
    """Return the figures that have a picture in the folder, each with its note."""
    return [
        f"![{drawing.title}]({folder.name}/{drawing.name}.png)\n\n"
        f"*{as_sentence(drawing.title)}* {drawing.note}"
        for drawing in drawings
        if (folder / f"{drawing.name}.png").is_file()
    ]


def as_sentence(title: str) -> str:
    """Return a title with a full stop, unless it is a question."""
    return title if title.endswith("?") else f"{title}."


def part_blocks(outcome: Outcome, name: str) -> list[str]:
    """Return a part: title, command, origin of its runs, and tables."""
    blocks = [
        f"## {name}: {outcome.recipe.part(name).summary}",
        f"`{command_of(outcome, name)}`",
        run_summary(outcome.runs[name]),
    ]
    for table in outcome.findings[name].tables:
        blocks.append(f"### {table.title}")
        if table.note:
            blocks.append(table.note)
        blocks.append(markdown_table(table.header, table.rows))
    return blocks


def command_of(outcome: Outcome, name: str) -> str:
    """Return the command that makes one part of this outcome."""
    setting = outcome.setting
    words = ["toosure reproduce", outcome.recipe.name, "--only", name]

    if setting.seeds:
        words += ["--seed", ",".join(map(str, setting.seeds))]
    if setting.data != "cifar10":
        words += ["--data", setting.data]
    words += [f"--method {method}" for method in setting.methods]
    if setting.scores:
        words += ["--scores", setting.scores]
    if setting.steps and outcome.recipe.part(name).takes_steps:
        words += ["--steps", str(setting.steps)]
    if setting.shift:
        words += ["--shift", setting.shift]
    words += [f"--ood {shlex.quote(word)}" for word in setting.ood]
    if setting.quick:
        words.append("--quick")
    if setting.full:
        words.append("--full")

    return " ".join(words)


def run_summary(runs: Sequence[Run]) -> str:
    """Return a line with number, devices, commits and seconds of runs."""
    if not runs:
        return "The run folders are not here: the scores of their runs were kept."
    records = [provenance(run) for run in runs]
    seconds = sum(record["seconds"] or 0 for record in records)
    rows = sum(record["rows"] for record in records)
    devices = "; ".join(sorted({f"{r['device']}, torch {r['torch']}" for r in records}))
    commits = commits_text(record["commit"] for record in records)
    return (
        f"{len(runs)} runs, {rows:,} rows, {seconds:,.0f} s of running added up "
        f"(runs side by side share a device); {devices}; commit {commits}."
    )


def sweep_table(outcome: Outcome, kept: EarlierPage) -> str:
    """List the sweeps that trained the runs: parts, time, workers, device, commit, command.

    Sweeps on an earlier page come first, and those of parts that are not on this page are left
    out. The text is empty without sweeps.
    """
    shown = {*outcome.findings, *kept.sections}
    rows = [
        table_line(
            (
                " ".join(record["parts"]),
                str(record["trained"]),
                f"{record['seconds']:,.0f}",
                str(record["workers"]),
                "yes" if record["graph"] else "no",
                str(record["device"]),
                short_commit(record["commit"]),
                f"`{typed_command(record['command'])}`",
            )
        )
        for record in read_sweeps(outcome.out)
    ]

    rows = [
        row for row in dict.fromkeys([*kept.sweeps, *rows]) if shown & set(cells(row)[0].split())
    ]
    header = ("parts", "runs", "wall seconds", "workers", "graph", "device", "commit", "command")
    return markdown_table(header, []) + "\n" + "\n".join(rows) if rows else ""


def typed_command(command: str) -> str:
    """Return a recorded command as it would be typed.

    >>> typed_command("__main__.py reproduce too-sharp")
    'python -m toosure reproduce too-sharp'
    """
    return command.replace("__main__.py", "python -m toosure", 1)
