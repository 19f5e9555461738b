"""The report as Markdown: tables with the numbers of the page, pictures beside it."""

import xml.etree.ElementTree as ET

from made_runs import HOSTILE
from typer.testing import CliRunner

from toosure.cli import app
from toosure.page.page_runs import PageRuns
from toosure.page.pictures import gap_picture, line_picture
from toosure.runs import find_runs


def test_report_as_markdown_has_tables_and_pictures(runs_folder, tmp_path):
    file = tmp_path / "new" / "report.md"
    done = CliRunner().invoke(app, ["report", str(runs_folder), "--format", "md", "-o", str(file)])
    assert done.exit_code == 0, done.output
    text = file.read_text()
    assert text.startswith("# Take ") and "## Ranking" in text
    assert "| adamw:lr=0.001 | 1 | 0.500 | 70.0 | 5.00 |" in text
    assert "| sgd:lr=0.1,momentum=0.9 | 2 | 0.500 | 80.0 | 11.00 ± 1.41 |" in text
    assert HOSTILE not in text and "&lt;script&gt;" in text
    for name in ("gap", "ece", "accuracy"):
        assert f"](report_pictures/{name}.svg)" in text
        root = ET.parse(file.parent / "report_pictures" / f"{name}.svg").getroot()
        assert root.tag.endswith("svg") and len(root) > 3


def test_pictures_hold_the_settings_in_order(runs_folder):
    page = PageRuns(find_runs(runs_folder))
    gap = gap_picture(page)
    labels = [setting.label for setting in page.ranked_settings if setting.verdict.kind != "none"]
    places = [gap.index(label.replace("<", "&lt;").replace(">", "&gt;")) for label in labels]
    assert places == sorted(places) and "diverged" not in gap
    assert line_picture(page, "no_such_number") == ""
