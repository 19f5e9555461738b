"""A RESULTS.md gathered over several calls: parts that a call does not make are kept."""

import numpy as np
import pytest
from fake_runs import write_run
from typer.testing import CliRunner

from toosure.cli import app
from toosure.cli.reproduce import check_page
from toosure.recipes import Setting, recipe
from toosure.recipes.earlier_page import cells, read_page
from toosure.recipes.markdown import markdown
from toosure.recipes.reproduce import judge_parts
from toosure.recipes.too_sharp import rise_and_fall, sweeps

PAPER = Setting()
TOO_SHARP = recipe("too-sharp")


@pytest.fixture
def folder(tmp_path):
    """The runs of Figure 1, and the certified one."""
    hump = 0.02 + np.exp(-(((np.arange(81) - 30) / 8) ** 2))
    for config in rise_and_fall.configs(PAPER):
        write_run(tmp_path, config, train_ece=hump, train_gn_sharpness=hump)
    write_certified(tmp_path)
    return tmp_path


def write_certified(out, failed=0):
    series = {"train_margin_min": np.array([-1.0, -0.5, 0.5])}
    series |= {"train_slack 4.1 (i)": np.ones(3), "train_certificate_failed": np.full(3, failed)}
    write_run(out, sweeps.certified_run(PAPER), **series)


def page(folder, *names, earlier="", setting=PAPER):
    outcome = judge_parts(TOO_SHARP, TOO_SHARP.chosen(names), setting, folder)
    return markdown(outcome, None, earlier)


def test_a_part_that_is_not_made_stays_with_its_claims_and_its_commit(folder):
    first = page(folder, "fig1")
    both = page(folder, "certificates", earlier=first)
    assert first.split("\n## fig1: ")[1].split("\n## ")[0].strip() in both
    assert "Made last: certificates. Kept as earlier calls wrote them" in both
    assert "fig1 (c0ffee)" in both
    assert "4 of 4 judged claims hold" in both
    assert both.index("\n## fig1: ") < both.index("\n## certificates: ")  # the recipe's order
    claims = [cells(row)[0] for row in both.split("## Claims")[1].splitlines()[4:8]]
    assert claims == ["fig1", "fig1", "certificates", "certificates"]

    # In whatever order the parts were made, the page has the same claims and sections.
    other = page(folder, "fig1", earlier=page(folder, "certificates"))
    without = [line for line in other.splitlines() if not line.startswith("Made last")]
    assert without == [line for line in both.splitlines() if not line.startswith("Made last")]


def test_a_part_made_again_replaces_its_section_and_its_claims(folder):
    both = page(folder, "fig1", "certificates")
    assert "Made last" not in both
    again = page(folder, "fig1", earlier=both)
    assert again.count("\n## fig1: ") == 1 and again.count("| fig1 |") == 2
    kept = read_page(both, TOO_SHARP, PAPER, ["fig1"])
    assert list(kept.sections) == ["certificates"] and kept.verdicts == [True, True]


def test_kept_failures_count_in_the_headline(folder, tmp_path):
    failing = tmp_path / "failing"
    write_certified(failing, failed=1)
    text = page(folder, "fig1", earlier=page(failing, "certificates"))
    assert "3 of 4 judged claims hold" in text


def test_sweeps_of_both_calls_are_listed_once(folder):
    record = '{"parts": ["fig1"], "trained": 8, "seconds": 5, "workers": 1, "graph": false, '
    record += '"device": "cpu", "commit": "c0ffee", "command": "toosure x"}\n'
    (folder / "sweeps.jsonl").write_text(record)
    first = page(folder, "fig1")
    (folder / "sweeps.jsonl").write_text(record + record.replace("fig1", "certificates"))
    both = page(folder, "certificates", earlier=first)
    rows = both.split("## Time and place")[1].strip().splitlines()[2:]
    assert [cells(row)[0] for row in rows] == ["fig1", "certificates"]
    alone = page(folder, "fig1")
    assert "| fig1 |" in alone.split("## Time and place")[1]
    assert "| certificates |" not in alone.split("## Time and place")[1]


def test_pages_of_other_data_and_of_earlier_formats(folder):
    other = page(folder, "fig1").replace("--only fig1`", "--only fig1 --data cifar100`")
    problem = "fig1 of runs on cifar100, and this call makes runs on cifar10"
    with pytest.raises(ValueError, match=problem):
        page(folder, "certificates", earlier=other)
    assert page(folder, "fig1", earlier=other)  # made here: nothing of the page is kept

    quick = page(folder, "fig1").replace("--only fig1`", "--only fig1 --quick`")
    problem = "fig1 of quick runs on cifar10, and this call makes runs on"
    with pytest.raises(ValueError, match=problem):
        page(folder, "certificates", earlier=quick)

    old = page(folder, "fig1").replace("| part | claim", "| claim")
    assert page(folder, "certificates", earlier=old) == page(folder, "certificates")


def test_write_adds_to_a_page_and_refuses_one_of_other_data(folder, tmp_path):
    target = tmp_path / "RESULTS.md"
    words = ["reproduce", "too-sharp", "--from", str(folder), "--write", str(target), "--only"]
    assert CliRunner().invoke(app, [*words, "fig1"]).exit_code == 0
    assert CliRunner().invoke(app, [*words, "certificates"]).exit_code == 0
    text = target.read_text()
    assert "\n## fig1: " in text and "\n## certificates: " in text

    target.write_text(text.replace("--only fig1`", "--only fig1 --data cifar100`"))
    train = ["reproduce", "too-sharp", "--only", "certificates", "--write", str(target)]
    early = CliRunner().invoke(app, [*train, "--out", str(tmp_path / "runs")])
    assert early.exit_code == 2 and not (tmp_path / "runs").exists()  # before anything is trained
    refused = CliRunner().invoke(app, [*words, "certificates"])
    assert refused.exit_code != 0 and "write to another file" in refused.stderr
    assert "--data cifar100" in target.read_text()


def test_a_part_without_runs_on_the_data_stays_and_is_checked_early(folder, tmp_path):
    target = tmp_path / "RESULTS.md"
    target.write_text(page(folder, "certificates").replace("certificates", "calmo"))
    parts = TOO_SHARP.chosen(["fig1", "calmo"])  # there are runs of CalMO on CIFAR-10 only
    check_page(target, TOO_SHARP, parts, PAPER)
    with pytest.raises(ValueError, match="calmo of runs on cifar10, and this call makes runs on"):
        check_page(target, TOO_SHARP, parts, Setting(data="cifar100"))
