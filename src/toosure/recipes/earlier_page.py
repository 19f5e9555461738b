"""Read back a RESULTS.md, so that several calls can fill one page.

A call that makes some parts of a recipe keeps the others as they are on the page: their sections,
their claims and the sweeps that trained them. Kept parts are not computed again; the page names the
commits of their runs.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from toosure.recipes.recipe import Recipe, Setting

CLAIMS = "## Claims"
SWEEPS = "## Time and place"
VERDICTS = {"pass": True, "FAIL": False}
CELLS = re.compile(r"(?<!\\)\|")


@dataclass
class EarlierPage:
    """The parts of an earlier page that a call keeps."""

    sections: dict[str, str] = field(default_factory=dict)  # part name -> markdown
    claims: dict[str, list[str]] = field(default_factory=dict)  # part name -> rows of the table
    sweeps: list[str] = field(default_factory=list)  # rows of the table

    @property
    def verdicts(self) -> list[bool | None]:
        """The verdicts of the kept claims; None for a claim that is not judged."""
        rows = [row for own_rows in self.claims.values() for row in own_rows]
        return [VERDICTS.get(cells(row)[4]) for row in rows]

    def commits(self, name: str) -> str:
        """Return the commits of a kept part's runs, as its section names them."""
        match = re.search(r"; commit ([^\n]+?)\.(?:\n|$)", self.sections[name])
        return match.group(1) if match else "no commit"


def cells(row: str) -> list[str]:
    """Return the cells of a row of a markdown table.

    >>> cells("| a | b\\\\|c |")
    ['a', 'b\\\\|c']
    """
    return [cell.strip() for cell in CELLS.split(row.strip())[1:-1]]


def table_rows(text: str) -> list[str]:
    """Return the rows of the first table in a text, without its header."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return lines[2:]


def read_page(text: str, recipe: Recipe, setting: Setting, made: Collection[str]) -> EarlierPage:
    """Return the parts of a page that are not in `made`.

    Nothing is kept of a page in an older format, whose claims do not name their part. Raise
    ValueError if the page is for another data set or size: parts of both would be counted together.
    """
    sections = dict(split_sections(text))
    claims = sections.get(CLAIMS, "")
    if not re.search(r"^\| part \|", claims, re.MULTILINE):
        return EarlierPage()

    page = EarlierPage(sweeps=table_rows(sections.get(SWEEPS, "")))
    names = [part.name for part in recipe.parts]
    for title, body in sections.items():
        name = title.removeprefix("## ").partition(":")[0]
        if name in names and name not in made:
            check_same_setting(name, body, setting)
            page.sections[name] = body.strip()

    for row in table_rows(claims):
        name = cells(row)[0]
        if name in page.sections:
            page.claims.setdefault(name, []).append(row)
    return page


def split_sections(text: str) -> list[tuple[str, str]]:
    """Return the sections of a page: each title line, and the text from there on."""
    sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)[1:]
    return [(section.splitlines()[0], section) for section in sections]


def check_same_setting(name: str, section: str, setting: Setting) -> None:
    """Raise ValueError if a section was made on other data or in another size."""
    written = re.search(r"^`toosure reproduce [^`]*`", section, re.MULTILINE)
    words = written.group(0).strip("`").split() if written else []
    data = words[words.index("--data") + 1] if "--data" in words else "cifar10"
    made = size_and_data("--quick" in words, "--full" in words, data)
    asked = size_and_data(setting.quick, setting.full, setting.data)
    if made != asked:
        raise ValueError(
            f"the page to write has {name} of {made}, and this call makes {asked}: write to "
            "another file, or delete that one"
        )


def size_and_data(quick: bool, full: bool, data: str) -> str:
    """Return which runs a command makes, in words."""
    size = "full-size runs" if full else "runs"
    if quick:
        size = "quick runs"
    return f"{size} on {data}"
