"""Version, changelog, citation and templates agree with each other."""

import re
import tomllib
from pathlib import Path

import toosure

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_one_version():
    cited = re.search(r"(?m)^version: (\S+)$", (ROOT / "CITATION.cff").read_text())[1]
    assert PROJECT["project"]["version"] == toosure.__version__ == cited


def test_the_changelog_has_the_form_of_keep_a_changelog():
    text = (ROOT / "CHANGELOG.md").read_text()
    first, *releases = re.findall(r"(?m)^## (.+)$", text)
    assert first == "[Unreleased]"
    for release in releases:
        assert re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", release), release
    assert set(re.findall(r"(?m)^### (.+)$", text)) <= KINDS

    numbers = [tuple(map(int, re.findall(r"\d+", each)[:3])) for each in releases]
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[0] <= tuple(map(int, re.findall(r"\d+", toosure.__version__)))


def test_everything_that_builds_the_site_is_pinned():
    pins = {line.split("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}
    needed = PROJECT["project"]["optional-dependencies"]["docs"]
    assert {re.split(r"[>=]", each)[0] for each in needed} <= pins


def test_project_files_are_there():
    for name in ("SECURITY.md", "LICENSE", "CONTRIBUTING.md", ".github/pull_request_template.md"):
        assert (ROOT / name).is_file()
    for template in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.md"):
        assert re.match(r"---\nname: .+\nabout: .+\nlabels: .+\n---\n", template.read_text())


def test_make_bench_runs_what_needs_no_arguments():
    names = re.search(r"(?m)^BENCHMARKS := (.+)$", (ROOT / "Makefile").read_text())[1].split()
    for name in names:
        text = (ROOT / "benchmarks" / f"{name}.py").read_text()
        assert "required=True" not in text and "sys.argv[" not in text, name


def test_the_readme_is_a_screen_and_a_half():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 80
