"""`toosure runs`: list run folders, filter them, export their rows."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from toosure.cli.app import app, fail
from toosure.cli.tables import PIPED, console, terminal_table

if TYPE_CHECKING:
    from rich.table import Table

    from toosure.runs import Run


class RunsCommand(TyperGroup):
    """The table and its `export`; a folder, which `report` and `live` take as it is, is named."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        folder = args[0]
        if folder not in self.commands and ("/" in folder or Path(folder).is_dir()):
            fail(f"name the folder of the runs by its option: toosure runs --out {folder}")
        return super().resolve_command(ctx, args)


runs_app = typer.Typer(
    cls=RunsCommand,
    help="List runs, filter them, export their rows.",
    rich_markup_mode=None,
    invoke_without_command=True,
)
app.add_typer(runs_app, name="runs")

MAX_OWN = 200  # numbers of the user's own that are listed
MAX_CELL = 40  # characters of a text among the figures
MIN_NAME = 28  # characters of a name that are kept at the cost of figures
FIXED = ("status", "step", "data")  # columns that every table has
Folder = Annotated[
    Path, typer.Option("--out", help="Where run folders are; may be a URL such as s3://...")
]
Where = Annotated[
    list[str] | None,
    typer.Option(help='Keep runs where this holds: "val/ece<0.05", "seed=0".'),
]


@runs_app.callback()
def runs(context: typer.Context, out: Folder = Path("runs"), where: Where = None) -> None:
    """List runs: status, steps and the last row, on validation if there is one."""
    if context.invoked_subcommand is not None:
        return
    from toosure.runs.regular_files import printable
    from toosure.runs.storage import as_given

    chosen = selected(out, where)
    if not chosen:
        typer.echo(f"no such runs in {as_given(out)}")
        return

    terminal = console()
    terminal.print(table_of(chosen, terminal.width))
    for run in chosen:
        for warning in run.warnings:
            typer.echo(f"{run.name}: {printable(warning)}")


@runs_app.command()
def export(
    context: typer.Context,
    to: Annotated[
        Literal["tensorboard", "wandb", "mlflow", "parquet", "csv"] | None,
        typer.Option(help="The format or the tracker."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="A folder for tensorboard [tensorboard], a project of wandb [toosure], the URI of "
            "mlflow [sqlite:///mlflow.db], a file [runs.parquet, runs.csv]."
        ),
    ] = None,
    parquet: Annotated[
        Path | None, typer.Option(help="The same as --to parquet --target FILE.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="The same as --to csv --target FILE.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where run folders are. [runs]")] = None,
    where: Where = None,
) -> None:
    """Write every row of the runs to one file, or to a tracker.

    Each row has the settings of its run beside it.
    """
    kind, place = destination(to, target, parquet, csv)
    before = context.parent.params if context.parent else {}  # options before `export`
    chosen = selected(out or before["out"], [*(before["where"] or ()), *(where or ())])
    try:
        count, place = write_rows(chosen, kind, place)
    except ValueError as error:
        fail(str(error))
    typer.echo(f"{count} rows of {len(chosen)} runs: {place}")


def destination(
    to: str | None, target: str | None, parquet: Path | None, csv: Path | None
) -> tuple[str, str]:
    """Return the kind of export, and its folder, project, URI or file."""
    files = {"parquet": parquet, "csv": csv}
    given = [(kind, str(file)) for kind, file in files.items() if file is not None]
    if to is not None:
        given.append((to, target or ""))
    if len(given) != 1:
        fail("name one file or tracker: --to tensorboard, wandb, mlflow, parquet or csv")
    if to is None and target is not None:
        fail("--target needs --to: give both")

    kind, place = given[0]
    if kind == "csv" and place and Path(place).suffix != ".csv":
        fail(f"--csv {place}: the name must end in .csv")
    return kind, place


def write_rows(runs: "Sequence[Run]", kind: str, place: str) -> tuple[int, str]:
    """Write the rows of runs; return how many, and where to."""
    from toosure.runs import export as write

    if kind in ("parquet", "csv"):
        file = Path(place or f"runs.{kind}")
        return write(runs, file), str(file)

    from toosure.integrations.export import EXPORTS

    if not any(run.count for run in runs):
        raise ValueError("there are no rows to export")
    return EXPORTS[kind](runs, place), " ".join(filter(None, [kind, place]))


def selected(out: Path, where: Sequence[str] | None) -> "list[Run]":
    """Return the runs of a folder for which all conditions of `--where` hold."""
    from toosure.runs import find_runs, select

    try:
        return select(find_runs(out), where or ())
    except ValueError as error:
        fail(str(error))


def table_of(runs: "Sequence[Run]", width: int = PIPED) -> "Table":
    """Lay runs out side by side: one row per run, figures of the last measurement.

    Names identify runs, so on a narrow terminal figures are left out, and names are folded.
    """
    from rich.text import Text

    lines = [figures_of(run) for run in runs]
    names = dict.fromkeys(name for line in lines for name in line)
    columns = {name: [line.get(name, "") for line in lines] for name in names}
    shown, room = fitting(columns, width, max((len(run.name) for run in runs), default=0))

    table = terminal_table("run")
    for name in shown:
        side: Literal["left", "right"] = "left" if name in ("status", "data") else "right"
        table.add_column(Text(name), justify=side, no_wrap=True)
    for run, line in zip(runs, lines, strict=True):
        cells = [folded(run.name, room), *(line.get(name, "") for name in shown)]
        table.add_row(*map(Text, cells))  # as text: names may look like markup
    return table


def figures_of(run: "Run") -> dict[str, str]:
    """Return the figures of a run for a table: the last value of each quantity.

    They are of validation data, or else of training data, and `data` says which. A quantity that
    the screen shows of training data while a run goes on is of training data here, too, under its
    key with the split. Numbers that the table of quantities does not know come last.
    """
    from toosure.quantities import own_keys, shown_in
    from toosure.runs.regular_files import printable

    row = run.last
    split = "val" if "val/ece" in row else "train"
    figures = {}
    for q in shown_in("table"):
        name = f"{q.terminal_split}/{q.key}" if q.terminal_split else q.key
        figures[name] = cell(row.get(f"{q.terminal_split or split}/{q.key}"))

    own = {printable(key): cell(row[key]) for key in own_keys(list(row))[:MAX_OWN]}
    measured = any(key.startswith(f"{split}/") for key in row)
    data = {"val": "val", "train": "training data"}[split] if measured else ""
    step = str(row.get("step", 0))
    return {"status": run.status, "step": step, "data": data, **figures, **own}


def fitting(columns: dict[str, list[str]], width: int, longest: int) -> tuple[list[str], int]:
    """Return the columns that fit beside names of up to `longest`, and the width left for names.

    The quantities that their table ranks lowest are left out first.
    """
    from toosure.quantities import described, find

    def importance(name: str) -> int:
        return (find(name) or described(name)).importance

    shown = list(columns)
    wide = {name: 2 + max(map(len, [name, *cells])) for name, cells in columns.items()}
    figures = [name for name in shown if name not in FIXED]
    for name in sorted(figures, key=importance):
        if width - sum(wide[each] for each in shown) < min(longest, MIN_NAME):
            shown.remove(name)
    return shown, max(8, width - sum(wide[name] for name in shown))


def folded(name: str, width: int) -> str:
    """Break a name at its dashes into lines of a width, so that its id stays in one piece.

    >>> folded("digits-mlp-sgd-lr0.1-s0-65eeefe4", 16).split("\\n")
    ['digits-mlp-sgd-', 'lr0.1-s0-', '65eeefe4']
    """
    lines = [""]
    for piece in name.replace("-", "-\n").split("\n"):
        if lines[-1] and len(lines[-1]) + len(piece) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(lines)


def cell(value: object) -> str:
    """Return a number to four digits, or the beginning of a text."""
    from toosure.runs.regular_files import printable

    if isinstance(value, int | float):
        return f"{value:.4g}"
    return printable(str(value or ""))[:MAX_CELL]
