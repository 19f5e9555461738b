"""`toosure data`: which data sets are here, where from, how large, under what licence."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toosure.cli.app import app, fail
from toosure.cli.run_options import DataRoot
from toosure.cli.tables import console, print_table, terminal_table
from toosure.sentences import did_you_mean, size_text

if TYPE_CHECKING:
    from toosure.data.download import Progress

NARROW = 140  # characters of a line, below which addresses would be cut
Description = dict[str, Any]  # of a data set, as `--json` prints it


@app.command()
def data(
    name: Annotated[str | None, typer.Argument(help="One data set, in detail.")] = None,
    data_root: DataRoot = Path("data"),
    download: Annotated[bool, typer.Option(help="Fetch what NAME lacks.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List data sets: which are here, where others come from.

    Nothing is fetched unless asked; what broke off goes on where it was.
    """
    from toosure.data.catalogue import SOURCES
    from toosure.data.locate import obtain

    if name is not None and name not in SOURCES:
        hint = did_you_mean(name, SOURCES, ".")
        fail(
            f"no data set is called {name!r}{hint} Known: {', '.join(SOURCES)}; "
            "`train --data imagefolder:PATH` reads any folder of images"
        )
    if download and name is None:
        fail("name the data set to download: toosure data NAME --download")

    try:
        if download and name is not None:
            for each in (name, *SOURCES[name].also_needs):
                obtain(each, data_root, None if as_json else progress())
    except (ValueError, OSError) as error:
        fail(str(error))

    descriptions = [describe(each, data_root) for each in ([name] if name else SOURCES)]
    if as_json:
        print(json.dumps(descriptions[0] if name else descriptions))
    elif name:
        print_one(descriptions[0])
    else:
        print_all(descriptions, data_root)


def describe(name: str, root: Path) -> Description:
    """Describe a data set and how much of it is here."""
    from toosure.data.catalogue import SOURCES
    from toosure.data.download import partial_path

    source = SOURCES[name]
    root = root.expanduser()
    missing = [lack for each in (name, *source.also_needs) for lack in SOURCES[each].missing(root)]
    parts = [d.target for d in source.downloads if partial_path(root / d.target).is_file()]
    status = "here"
    if missing:
        status = "broken off" if parts else "missing"

    return {
        "name": name,
        "status": status,
        "missing": missing,
        "bytes": source.bytes,
        "about": source.about,
        "licence": source.licence,
        "page": source.page,
        "downloads": [
            {"url": d.url, "file": str(root / d.target), "bytes": d.size, "checksum": d.digest}
            for d in source.downloads
        ],
        "by_hand": source.manual,
        "also_needs": list(source.also_needs),
    }


def print_all(descriptions: list[Description], root: Path) -> None:
    """Print a table of all data sets."""
    table = terminal_table("data", "status")
    table.add_column("size", justify="right", no_wrap=True)
    narrow = console().width < NARROW
    for heading in ("licence", "what", *(() if narrow else ("from",))):
        table.add_column(heading)

    for each in descriptions:
        size = size_text(each["bytes"]) if each["bytes"] else ""
        cells = (each["name"], each["status"], size)
        where = () if narrow else (each["page"],)
        table.add_row(*cells, each["licence"], each["about"], *where)
    print_table(table)
    if narrow:
        typer.echo("\n`toosure data NAME` says where one comes from.", nl=False)
    typer.echo(
        f"\nlooked for below {root}/; imagefolder:PATH reads any folder of images, "
        "shards:PATH tar files of them, arrays:FILE.npz inputs and labels of your own"
    )


def print_one(description: Description) -> None:
    """Print everything about a data set, one line each."""
    missing = ", ".join(description["missing"])
    lines = {
        "status": description["status"] + (f": no {missing}" if missing else ""),
        "what": description["about"],
        "size": size_text(description["bytes"]) if description["bytes"] else "",
        "licence": description["licence"],
        "from": description["page"],
        "by hand": description["by_hand"],
        "also needs": ", ".join(description["also_needs"]),
    }

    typer.echo(description["name"])
    for heading, text in lines.items():
        if text:
            typer.echo(f"  {heading:<10} {text}")
    for each in description["downloads"]:
        typer.echo(f"  {'file':<10} {each['url']}\n  {'':<10} {each['checksum']}")
    if missing and description["downloads"]:
        typer.echo(f"  {'to get it':<10} toosure data {description['name']} --download")


def progress() -> "Callable[[str], Progress] | None":
    """Return a function that makes a file's counter of bytes, a moving line on a terminal."""
    if not sys.stderr.isatty():
        return None

    def counter(name: str) -> "Progress":
        def show(here: int, total: int | None) -> None:
            share = f" of {size_text(total)}, {100 * here // total} %" if total else ""
            end = "\n" if here == total else ""
            sys.stderr.write(f"\r{name}: {size_text(here)}{share}  {end}")

        return show

    return counter
