"""`toosure data`: which data sets are here, where from, how large, under what licence."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from toosure.cli.app import app, fail


@app.command()
def data(
    name: Annotated[str | None, typer.Argument(help="One data set, in detail.")] = None,
    data_root: Annotated[Path, typer.Option(help="Where data sets lie.")] = Path("data"),
    download: Annotated[bool, typer.Option(help="Fetch what NAME lacks.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List data sets: what is here, what is missing, where from, how large, its licence.

    Nothing is fetched unless asked; what broke off goes on where it was.
    """
    from toosure.data.catalogue import SOURCES
    from toosure.data.locate import obtain
    from toosure.words.method import nearest

    if name is not None and name not in SOURCES:
        fail(
            f"no data set is called {name!r}{nearest(name, SOURCES)} Known: {', '.join(SOURCES)}; "
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
    found = [described(each, data_root) for each in ([name] if name else SOURCES)]
    if as_json:
        print(json.dumps(found[0] if name else found))
    elif name:
        print_one(found[0])
    else:
        print_all(found, data_root)


def described(name: str, root: Path) -> dict[str, Any]:
    """Say of a data set what `--json` prints."""
    from toosure.data.catalogue import SOURCES
    from toosure.data.download import partial_path

    source, root = SOURCES[name], root.expanduser()
    missing = [lack for each in (name, *source.also_needs) for lack in SOURCES[each].missing(root)]
    parts = [d.target for d in source.downloads if partial_path(root / d.target).is_file()]
    return {
        "name": name,
        "status": "here" if not missing else "broken off" if parts else "missing",
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


def size(count: int) -> str:
    if not count:
        return ""
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"


def print_all(found: list[dict[str, Any]], root: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("data", "status", box=None, pad_edge=False, header_style="dim")
    table.add_column("size", justify="right", no_wrap=True)
    for heading in ("licence", "what", "from"):
        table.add_column(heading)
    for each in found:
        table.add_row(
            each["name"], each["status"], size(each["bytes"]), each["licence"], each["about"],
            each["page"],
        )  # fmt: skip
    Console(width=None if sys.stdout.isatty() else 220).print(table)
    typer.echo(f"\nlooked for below {root}/; imagefolder:PATH reads any folder of images")


def print_one(found: dict[str, Any]) -> None:
    lines = {
        "status": found["status"]
        + (f": no {', '.join(found['missing'])}" if found["missing"] else ""),
        "what": found["about"],
        "size": size(found["bytes"]),
        "licence": found["licence"],
        "from": found["page"],
        "by hand": found["by_hand"],
        "also needs": ", ".join(found["also_needs"]),
    }
    typer.echo(found["name"])
    for heading, text in lines.items():
        if text:
            typer.echo(f"  {heading:<10} {text}")
    for each in found["downloads"]:
        typer.echo(f"  {'file':<10} {each['url']}\n  {'':<10} {each['checksum']}")
    if found["missing"] and found["downloads"]:
        typer.echo(f"  {'to get it':<10} toosure data {found['name']} --download")


def progress() -> Any:
    """Return what is told of each file's bytes: a line on a terminal that counts."""
    if not sys.stderr.isatty():
        return None

    def of(name: str) -> Any:
        def tell(here: int, total: int | None) -> None:
            share = f" of {size(total)}, {100 * here // total} %" if total else ""
            end = "\n" if here == total else ""
            sys.stderr.write(f"\r{name}: {size(here)}{share}  {end}")

        return tell

    return of
