"""`toosure report` and `toosure live` as typed: paths, and one line for what is wrong."""

import builtins

import pytest
from typer.testing import CliRunner

from toosure.cli import app


def typed(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_report_writes_one_file_and_says_where(runs_folder, tmp_path):
    page = tmp_path / "new" / "r.html"
    done = typed("report", runs_folder, "-o", page)
    assert done.exit_code == 0 and done.stdout == f"report: {page}\n"
    assert [file.name for file in page.parent.iterdir()] == ["r.html"]


@pytest.mark.parametrize("form", ["html", "md"])
def test_folders_are_made(runs_folder, tmp_path, form):
    page = tmp_path / "no" / "such" / f"r.{form}"
    assert typed("report", runs_folder, "--format", form, "-o", page).exit_code == 0
    assert page.is_file()


@pytest.mark.parametrize(
    ("name", "form", "start"),
    [
        ("r.md", None, "# Take"),
        ("r.HTM", None, "<!doctype"),
        ("r", None, "<!doctype"),
        ("r.txt", "md", "# Take"),
    ],
)
def test_the_name_of_the_file_says_its_format(runs_folder, tmp_path, name, form, start):
    more = ["--format", form] if form else []
    assert typed("report", runs_folder, "-o", tmp_path / name, *more).exit_code == 0
    assert (tmp_path / name).read_text().startswith(start)


@pytest.mark.parametrize(
    ("name", "form", "said"),
    [
        ("r.md", "html", "is named as md and --format is html: make them agree"),
        ("r.html", "md", "is named as html and --format is md"),
        ("r.pdf", None, "a report is .html or .md"),
    ],
)
def test_a_format_that_the_name_contradicts_is_refused(runs_folder, tmp_path, name, form, said):
    more = ["--format", form] if form else []
    done = typed("report", runs_folder, "-o", tmp_path / name, *more)
    assert done.exit_code == 2 and said in done.stderr and not list(tmp_path.iterdir())


def test_one_run_is_enough(runs_folder, tmp_path):
    page = tmp_path / "r.html"
    assert typed("report", runs_folder / "a0", "-o", page).exit_code == 0
    assert "Over-&NoBreak;confident by" in page.read_text()


@pytest.mark.parametrize("folder", ["no", "empty"])
def test_nothing_to_report_is_said(tmp_path, folder):
    (tmp_path / "empty").mkdir()
    done = typed("report", tmp_path / folder)
    assert done.exit_code == 2 and done.stderr.startswith("toosure: ")
    assert "folder" in done.stderr or "no runs" in done.stderr


def test_a_page_that_cannot_be_written_is_said(runs_folder, tmp_path):
    done = typed("report", runs_folder, "-o", tmp_path)
    assert done.exit_code == 2 and "is a folder: name a file in it" in done.stderr


def test_live_says_what_is_missing(runs_folder, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.split(".")[0] in ("starlette", "uvicorn"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    done = typed("live", runs_folder)
    assert done.exit_code == 2 and "pip install 'toosure[live]'" in done.stderr


def test_live_says_that_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").touch()
    done = typed("live", tmp_path / "file")
    assert done.exit_code == 2 and "is not a folder" in done.stderr
