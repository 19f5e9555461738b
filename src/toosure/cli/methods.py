"""`toosure methods`: every word that `toosure train` understands."""

from typing import TYPE_CHECKING, Annotated

import typer

from toosure.cli.app import app, fail

if TYPE_CHECKING:
    from toosure.words import Method


@app.command()
def methods(
    kind: Annotated[
        str | None, typer.Argument(help="optimizer, loss, data, model, ... [all]")
    ] = None,
) -> None:
    """List the methods, their settings and papers.

    These are the words that `train` and `calibrate` understand.
    """
    from toosure.words import TABLES
    from toosure.words import methods as methods_of

    try:
        for each_kind in [kind] if kind else list(TABLES):
            descriptions = [describe(method) for method in methods_of(each_kind)]
            if descriptions:
                typer.echo(f"{each_kind}\n" + "\n".join(descriptions) + "\n")
    except ValueError as error:
        fail(str(error))


def describe(method: "Method") -> str:
    """Return a method's name, summary, settings and reference as indented lines."""
    lines = [f"  {method.name}  {method.summary}"]
    if method.settings:
        settings = ", ".join(map(str, method.settings.values()))
        more = f", and those of {method.passes_to}" if method.passes_to else ""
        lines.append(f"      {settings}{more}")
    if method.reference:
        lines.append(f"      {method.reference}")
    return "\n".join(lines)
