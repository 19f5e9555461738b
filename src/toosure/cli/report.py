"""`toosure report` and `toosure live`: look at runs, finished or going on."""

from pathlib import Path
from typing import Annotated

import typer

from toosure.cli.app import app, fail

Runs = Annotated[Path, typer.Argument(help="The folder that holds run folders, or one of them.")]


@app.command()
def report(
    runs: Runs = Path("runs"),
    output: Annotated[Path, typer.Option("--output", "-o", help="Write the page here.")] = Path(
        "report.html"
    ),
) -> None:
    """Write one page on all runs: verdicts, comparison, trajectories. Opens offline."""
    from toosure.page.report import report as write

    try:
        html = write(runs)
        output.parent.mkdir(exist_ok=True)
        output.write_text(html, encoding="utf-8")
    except OSError as error:
        fail(f"{output}: cannot be written ({error.strerror})")
    except ValueError as error:
        fail(str(error))
    typer.echo(f"report: {output}")


@app.command()
def live(
    runs: Runs = Path("runs"),
    host: Annotated[
        str, typer.Option(help="Where to listen; a token guards all but this machine.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8765,
) -> None:
    """Show runs in the browser while they go on. Ctrl-C ends it."""
    from toosure.page.live import serve

    try:
        serve(runs, host, port, typer.echo)
    except ValueError as error:
        fail(str(error))
