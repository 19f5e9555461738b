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


SUFFIXES = {".html": Format.HTML, ".htm": Format.HTML, ".md": Format.MD, ".markdown": Format.MD}


def format_of(output: Path | None, form: Format | None) -> Format:
    """Return the format that was asked for, or that the name of the file says; HTML without both.

    >>> format_of(Path("a.md"), None).value, format_of(None, None).value
    ('md', 'html')
    """
    suffix = output.suffix if output else ""
    named = SUFFIXES.get(suffix.lower())
    if form and named and form is not named:
        raise ValueError(
            f"{output} is named as {named.value} and --format is {form.value}: make them agree"
        )
    if suffix and not (form or named):
        raise ValueError(
            f"{output}: a report is .html or .md; name such a file, or give --format html or md"
        )
    return form or named or Format.HTML


@app.command()
def report(
    runs: Runs = Path("runs"),
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to write. [report.html, report.md]"),
    ] = None,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="html: one page; md: tables and pictures, for a paper. [by the name of the file]",
        ),
    ] = None,
) -> None:
    """Write one page on all runs: which one, how honest, what next. Opens offline."""
    from toosure.page.markdown import write_markdown
    from toosure.page.report import html_of, runs_of_page
    from toosure.runs.files import check_target

    try:
        form = format_of(output, form)
        output = output or Path(f"report.{form.value}")
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
