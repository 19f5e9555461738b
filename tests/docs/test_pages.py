"""Every command and every snippet on the pages of the site runs, and prints what is shown."""

import gc
from pathlib import Path

import pytest
from page_runner import Page, difference

DOCS = Path(__file__).resolve().parents[2] / "docs"
SLOW = {"certificates", "data", "evaluate", "report", "training"}  # above four seconds
PAGES = [
    page
    for folder in (".", "start", "guides", "concepts")
    for page in sorted((DOCS / folder).glob("*.md"))
]
NEEDS = {"huggingface": "transformers", "lightning": "lightning", "skorch": "skorch"}


def case_of(page):
    marks = [pytest.mark.slow] if page.parent == DOCS and page.stem in SLOW else []
    return pytest.param(page, marks=marks, id=f"{page.parent.name}/{page.stem}")


@pytest.mark.parametrize("page", [case_of(page) for page in PAGES])
def test_what_stands_on_the_page_runs(page, tmp_path, monkeypatch):
    if page.stem in NEEDS:
        pytest.importorskip(NEEDS[page.stem])
    monkeypatch.chdir(tmp_path)
    Page(page).run()
    gc.collect()  # a file that the page left open is blamed on this page, not on a later test


def test_a_wrong_page_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1)\n```\n\n```text\n2\n```\n")
    with pytest.raises(AssertionError, match="shows '2', but '1' was printed"):
        Page(page).run()

    page.write_text("```sh\ntoosure evaluate nothing.csv\n```\n")
    with pytest.raises(AssertionError, match="no such file"):
        Page(page).run()
    page.write_text("```sh\nrm -r elsewhere\n```\n")
    with pytest.raises(AssertionError, match="unknown command"):
        Page(page).run()


def test_a_page_may_leave_out_lines_and_round():
    assert difference("a 1.00\n...", "a 1.01\nb") == ""
    assert "leaves out 'b'" in difference("a 1.00", "a 1.01\nb")
    assert "was printed" in difference("a 1.00", "a 1.2")
