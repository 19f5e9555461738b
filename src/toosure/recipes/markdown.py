"""The markdown of RESULTS.md: claims, then each part with its command, runs and tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from toosure.recipes.commits import short_commit
from toosure.recipes.recipe import Drawing
from toosure.recipes.reproduce import Outcome
from toosure.recipes.results import CLAIM_HEADER, claim_cells, provenance, read_sweeps, score
from toosure.runs import Run

LISTED_PROBLEMS = 20


def markdown(outcome: Outcome, figures: Path | None = None) -> str:
    """Return the text of RESULTS.md.

    `figures` is a folder beside the page. Figures that have a picture in it are shown, others are
    left out (`recipes/pictures.py` makes the pictures from the HTML page).
    """
    recipe = outcome.recipe
    source = "run folders, or the scores kept of them," if recipe.keeps_scores else "run folders"
    blocks = [
        f"# {recipe.title}: what we measured",
        f"Made by `toosure reproduce {recipe.name}` ({recipe.reference}); every number below comes "
        f"from {source} by the command named above it.",
        f"{score(outcome)}.",
    ]
    if outcome.claims:
        rows = [claim_cells(claim) for claim in outcome.claims]
        blocks += ["## Claims", pipe_table(CLAIM_HEADER, rows)]

    for name in outcome.findings:
        blocks += part_blocks(outcome, name)
        if figures:
            blocks += picture_blocks(outcome.drawings[name], figures)

    if outcome.problems:
        blocks += ["## Runs that are missing or ended early", problem_table(outcome.problems)]

    if read_sweeps(outcome.out):
        blocks += ["## Time and place", sweep_table(outcome)]
    return "\n\n".join(blocks) + "\n"


def problem_table(problems: Mapping[str, str]) -> str:
    """List the runs that cannot be used; of many that are missing, say how many more there are."""
    rows = sorted(problems.items())
    text = pipe_table(("run", "why"), rows[:LISTED_PROBLEMS])
    more = len(rows) - LISTED_PROBLEMS
    return f"{text}\n\n... and {more} more." if more > 0 else text


def picture_blocks(drawings: Sequence[Drawing], folder: Path) -> list[str]:
    """Return the figures whose picture lies in the folder, each with what to see in it."""
    return [
        f"![{drawing.title}]({folder.name}/{drawing.name}.png)\n\n"
        f"*{as_sentence(drawing.title)}* {drawing.note}"
        for drawing in drawings
        if (folder / f"{drawing.name}.png").is_file()
    ]


def as_sentence(title: str) -> str:
    """Return a title with a full stop, unless it asks a question."""
    return title if title.endswith("?") else f"{title}."


def part_blocks(outcome: Outcome, name: str) -> list[str]:
    """Return a part: its title, its command, where its runs come from, and its tables."""
    blocks = [
        f"## {name}: {outcome.recipe.part(name).says}",
        f"`{command_of(outcome, name)}`",
        run_summary(outcome.runs[name]),
    ]
    for table in outcome.findings[name].tables:
        blocks.append(f"### {table.title}")
        if table.note:
            blocks.append(table.note)
        blocks.append(pipe_table(table.header, table.rows))
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
    if setting.shifts:
        words += ["--shift", "all"]
    if setting.quick:
        words.append("--quick")
    if setting.full:
        words.append("--full")
    return " ".join(words)


def run_summary(runs: Sequence[Run]) -> str:
    """Say in a line how many runs there are, where they ran, by which commit, for how long."""
    if not runs:
        return "The run folders are not here: the scores of their runs were kept."
    records = [provenance(run) for run in runs]
    seconds = sum(record["seconds"] or 0 for record in records)
    rows = sum(record["rows"] for record in records)
    devices = "; ".join(sorted({f"{r['device']}, torch {r['torch']}" for r in records}))
    commits = ", ".join(sorted({short_commit(r["commit"]) for r in records}))
    return (
        f"{len(runs)} runs, {rows:,} rows, {seconds:,.0f} s of running added up "
        f"(runs side by side share a device); {devices}; commit {commits}."
    )


def sweep_table(outcome: Outcome) -> str:
    """List the sweeps that trained the runs: parts, wall time, workers, device, commit, command."""
    rows = [
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
        for record in read_sweeps(outcome.out)
    ]

    header = ("parts", "runs", "wall seconds", "workers", "graph", "device", "commit", "command")
    return pipe_table(header, rows)


def typed_command(command: str) -> str:
    """Return a recorded command as it would be typed.

    >>> typed_command("__main__.py reproduce too-sharp")
    'python -m toosure reproduce too-sharp'
    """
    return command.replace("__main__.py", "python -m toosure", 1)


def pipe_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a markdown table.

    >>> print(pipe_table(("a", "b"), [("1", "x|y")]))
    | a | b |
    |---|---|
    | 1 | x\\|y |
    """

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rule = "|" + "---|" * len(header)
    return "\n".join([line(header), rule, *map(line, rows)])
