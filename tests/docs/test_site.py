"""The site builds without a warning, opens from disk and asks nothing of any other machine."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOADED = re.compile(r"<(?:script|img|link|iframe|source)\b[^>]*\b(?:src|href)=\"(?:https?:)?//")


@pytest.mark.slow
def test_the_site_builds_and_loads_nothing_from_outside(tmp_path):
    for package in ("sphinx", "furo", "myst_nb", "jupytext"):
        pytest.importorskip(package, reason="the site needs the extra docs: make docs installs it")
    site = tmp_path / "site"
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", ROOT / "docs"]
    done = subprocess.run(
        [*command, "-d", tmp_path / "doctrees", ROOT, site], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

    pages = list(site.rglob("*.html"))
    assert len(pages) > 100
    assert not [page.name for page in pages if LOADED.search(page.read_text(encoding="utf-8"))]
    assert 'url=docs/index.html"' in (site / "index.html").read_text()
    assert "smece" in (site / "searchindex.js").read_text()
