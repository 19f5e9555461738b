"""`toosure report` and `toosure live`: look at runs, finished or going on."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from toosure.cli.app import app, fail
from toosure.cli.file_options import write_text, writing

Runs = Annotated[
    Path,
    typer.Argument(help="The folder (or a URL, s3://...) that holds run folders, or one of them."),
]


class Format(StrEnum):
    """How a report is written."""

    HTML = "html"
    MD = "md"


@app.command()
def report(
    runs: Runs = Path("runs"),
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to write. [report.html, report.md]"),
    ] = None,
    form: Annotated[
        Format,
        typer.Option("--format", help="html: one page; md: tables and pictures, for a paper."),
    ] = Format.HTML,
) -> None:
    """Write one page on all runs: which one, how honest, what next. Opens offline."""
    from toosure.page.markdown import write_markdown
    from toosure.page.report import html_of, runs_of_page
    from toosure.runs.files import check_target

    output = output or Path(f"report.{form.value}")
    try:
        check_target(output)
        page_runs = runs_of_page(runs)
        if form is Format.MD:
            with writing(output):
                write_markdown(page_runs, output)
        else:
            write_text(output, html_of(page_runs))
    except ValueError as error:
        fail(str(error))
    typer.echo(f"report: {output}")


@app.command()
def live(
    runs: Runs = Path("runs"),
    host: Annotated[
        str, typer.Option(help="Where to listen; a token guards all but this machine.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to listen on.")] = 8765,
) -> None:
    """Show runs in the browser while they go on.

    Runs that are not there yet are waited for. Ctrl-C ends it.
    """
    from toosure.page.live import serve

    try:
        serve(runs, host, port, typer.echo)
    except ValueError as error:
        fail(str(error))
