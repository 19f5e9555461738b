"""Links lead somewhere, every page can be reached, and nothing is loaded from outside."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SITE = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "benchmarks" / "results").glob("*.md")),
    *sorted((ROOT / "recipes").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
]
SITE = [page for page in SITE if not {"api", "generated"} & set(page.parts)]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose_of(page):
    """Return a page without its blocks of code, where brackets are no links."""
    text = re.sub(r"(?ms)^```.*?^```", "", page.read_text(encoding="utf-8"))
    return re.sub(r"`[^`\n]*`", "", text)


def slugs_of(page):
    """Return the anchors of a page's headings, as GitHub and MyST make them."""
    heads = re.findall(r"(?m)^#+ (.+)$", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", SITE, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in LINK.findall(prose_of(page)):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor and target.suffix == ".md":
            assert anchor in slugs_of(target), f"{page.name}: no heading for {link}"


@pytest.mark.parametrize("page", SITE, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_comment_cuts_a_table_in_two(page):
    """Rows after a comment would be shown as a paragraph full of bars."""
    cut = re.search(r"(?m)^\|.*\|\n<!--.*-->\n\|", page.read_text(encoding="utf-8"))
    assert not cut, f"{page.name}: move the comment out of the table: {cut[0]}"


def listed(page):
    """Return what the toctrees of a page list, as files; an entry may have a title before it."""
    entries = []
    for block in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(), re.DOTALL):
        lines = [line for line in block.splitlines() if line and not line.startswith(":")]
        entries += [re.sub(r".*<(.+)>", r"\1", line) for line in lines]
    return {path for entry in entries for path in page.parent.resolve().glob(f"{entry}.md")}


def test_every_page_of_docs_can_be_reached():
    reached = set()
    waiting = [ROOT / "docs" / "index.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            waiting += [(page.parent / each).resolve() for each in listed(page)]

    pages = {page for page in SITE if page.is_relative_to(ROOT / "docs")}
    lost = sorted(page.name for page in pages - reached if page.parent != ROOT / "docs")
    assert not lost, "list these in a toctree"


def test_pictures_are_small_and_load_nothing():
    for picture in (ROOT / "docs" / "images" / "site").glob("*.svg"):
        text = picture.read_text(encoding="utf-8")
        assert len(text) < 40_000, picture.name
        assert not re.search(r"(?:href|src)=|<script|url\(http", text), picture.name
