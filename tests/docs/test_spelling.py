"""No word stands twice in a row on a page, and none of those that are easily misspelt is.

`make docs` also runs codespell over everything. This test needs nothing installed.
"""

import re

import pytest
from test_links import ROOT, SITE

PAGES = [*SITE, ROOT / "CITATION.cff", *sorted((ROOT / "docs" / "notebooks").glob("*.py"))]
DOUBLED = re.compile(r"\b([A-Za-z]{2,})(?:[ \t]+|[ \t]*\n[ \t]*)\1\b")  # within a paragraph
ALLOWED_TWICE = {"that", "had"}  # "says that that row is right" may be what is meant
WORDS = (ROOT / "tests" / "docs" / "misspellings.txt").read_text(encoding="utf-8")
MISSPELT = dict(line.split(" -> ") for line in WORDS.splitlines() if " -> " in line)


def prose_of(text):
    """Return a page without code, links and tables, where words may stand twice."""
    text = re.sub(r"(?ms)^```.*?^```|<!--.*?-->", "\n\n", text)
    text = re.sub(r"(?m)^(?:\||    ).*$", "\n", text)
    return re.sub(r"`[^`]*`|\]\([^)]*\)|https?://\S+", " . ", text)


def mistakes_in(text):
    """Return what is wrong with the words of a page, one sentence each."""
    prose = prose_of(text)
    found = [
        f"{word!r} stands twice"
        for word in (match[1] for match in DOUBLED.finditer(prose))
        if word.lower() not in ALLOWED_TWICE
    ]
    # Tables have words, too.
    words = set(re.findall(r"[a-z]+", re.sub(r"`[^`]*`|\]\([^)]*\)", " ", text.lower())))
    return found + [f"{word}: write {MISSPELT[word]}" for word in sorted(words & set(MISSPELT))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_words_are_spelt_and_stand_once(page):
    assert not mistakes_in(page.read_text(encoding="utf-8"))


def test_a_mistake_would_be_found():
    assert mistakes_in("This is is a page.\n") == ["'is' stands twice"]
    assert mistakes_in("On the\nthe next line.") == ["'the' stands twice"]
    assert mistakes_in("They recieve it.") == ["recieve: write receive"]
    assert mistakes_in("| a table | seperate |") == ["seperate: write separate"]
    assert not mistakes_in("```python\nx = is is\n```\n`the the` code, that that is.")


def test_the_list_is_sorted_and_has_no_right_word():
    assert list(MISSPELT) == sorted(MISSPELT) and len(MISSPELT) > 100
    assert not set(MISSPELT) & set(MISSPELT.values())


def test_the_pages_are_found():
    assert len(PAGES) > 60 and ROOT / "docs" / "index.md" in PAGES
