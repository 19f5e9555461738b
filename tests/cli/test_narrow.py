"""Tables on a terminal of 80 characters: names are whole, and what is read first is one line."""

import re
from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from toosure.cli import data, evaluation_tables, tables
from toosure.cli.recipe_tables import recipe_table
from toosure.evaluate.estimates import Estimate
from toosure.page.number_text import printed
from toosure.recipes.recipe import Claim, Table
from toosure.recipes.results import claims_laid_out

LONG = "digits-train400-noise0.3-mlp-csam-rho1-gamma4-lr0.1-momentum0.9-s{}-adfaca05"


def set_width(monkeypatch, width):
    """Let the commands believe that the terminal has this width."""

    def fixed(piped=None):
        return Console(width=width)

    for module in (tables, evaluation_tables, data):
        monkeypatch.setattr(module, "console", fixed)


def test_names_are_folded_and_not_cut():
    table = tables.numbers_table("file", *"abcdef")
    for seed in range(2):
        table.add_row(LONG.format(seed), *(printed(0.5, ".4f") for _ in "abcdef"))
    out = StringIO()
    Console(width=80, file=out).print(table)
    text = "".join(out.getvalue().split())
    assert "…" not in text and out.getvalue().count("0.5000") == 12
    names = "".join(re.split(r"\s{2,}", line)[0] for line in out.getvalue().splitlines()[1:])
    assert names == LONG.format(0) + LONG.format(1)


@pytest.mark.parametrize("width", [80, 120])
def test_verdicts_on_groups_are_lines_where_there_is_no_room(monkeypatch, capsys, width):
    set_width(monkeypatch, width)
    gap = Estimate(0.1, 0.05, 0.15)
    sentence = "Over-confident by 10.0 ± 5.0 points"
    group = SimpleNamespace(name="a", n=50, frequency=0.5, confidence=0.6, gap=gap, ece=gap)
    group.sentence = sentence
    evaluation_tables.print_subgroups(
        SimpleNamespace(class_one=False, column="site", groups=[group], sentence="1 of 1 is off.")
    )
    out = capsys.readouterr().out
    assert out.count(sentence) == 1
    assert (f"a: {sentence}." in out) is (width == 80)


@pytest.mark.parametrize("width", [80, 180])
def test_addresses_of_data_are_whole_or_left_out(monkeypatch, capsys, tmp_path, width):
    set_width(monkeypatch, width)
    data.data(data_root=tmp_path)
    out = capsys.readouterr().out
    assert "…" not in out and "cifar10" in out
    assert ("https://www.cs.toronto.edu/~kriz/cifar.html" in out) is (width == 180)
    assert ("says where one comes from" in out) is (width == 80)


def test_a_wide_table_of_a_recipe_shows_whole_columns_and_names_the_rest():
    header = ("row", *(f"column {place}" for place in range(12)))
    rows = [
        (f"a rather long name of a row (`sam:rho=0.{k}`)", *["74.04 ± 0.35"] * 12) for k in "12"
    ]
    table = Table("All rivals", header, tuple(rows))
    for width, shown in ((80, 3), (1000, 12)):
        out = StringIO()
        Console(width=width, file=out).print(recipe_table(table, width))
        text = out.getvalue()
        assert text.count("74.04 ± 0.35") == 2 * shown and "…" not in text
        assert ("no room for: column 3, column 4" in text) is (width == 80)


def test_words_of_a_recipe_take_several_lines_so_that_numbers_have_room():
    rows = [(f"SAM (`sam:rho=0.{k}`)", "ResNet-18, 30 epochs", *["7.44 ± 0.35"] * 9) for k in "12"]
    header = ("row", "network, epochs", *(f"column {place}" for place in range(9)))
    out = StringIO()
    Console(width=80, file=out).print(recipe_table(Table("All", header, tuple(rows)), 80))
    assert out.getvalue().count("7.44 ± 0.35") == 6 and "no room for: column 3" in out.getvalue()

    rule = Table("Rules", ("", "rule"), (("ECE", "below 0 at each seed"),))
    out = StringIO()
    Console(width=80, file=out).print(recipe_table(rule, 80))
    assert "ECE  below 0 at each seed" in out.getvalue()


def test_claims_that_no_paper_made_have_no_column_of_the_paper():
    ours = Claim("ECE is lower", "0.5 : 0.7", passed=True)
    paper = Claim("ECE is lower", "0.5 : 0.7", "yes", passed=True)
    assert "paper" not in claims_laid_out([ours])[0]
    header, rows = claims_laid_out([ours, paper])
    assert [row[header.index("paper")] for row in rows][1] == "yes"
