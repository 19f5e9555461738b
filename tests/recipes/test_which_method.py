"""docs/which_method.md: its tables are those of the kept scores, and its pictures can be redone."""

import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from toosure.recipes.benchmark.score_files import ScoreFiles

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "recipes" / "benchmark"


@pytest.fixture(scope="module")
def draw():
    sys.path.insert(0, str(KEPT))
    try:
        import draw
    finally:
        sys.path.remove(str(KEPT))
    return draw


@pytest.fixture(scope="module")
def kept():
    return ScoreFiles(KEPT)


@pytest.mark.parametrize("data", ["cifar10", "cifar100"])
def test_every_row_of_the_page_is_that_of_the_scores(draw, kept, data):
    text = (ROOT / "docs" / "which_method.md").read_text(encoding="utf-8")
    printed = text.split(f"<!-- {data} -->\n")[1].split(f"\n<!-- end of {data} -->")[0]
    known = draw.table_rows(kept, data)
    rows = printed.splitlines()[2:]  # without the head of the table
    assert len(rows) >= 5
    for line in rows:
        assert line in known, "paste what `recipes/benchmark/draw.py --table` prints"


def test_pictures_are_there_and_name_every_method(draw, kept):
    for name in draw.PICTURES:
        root = ET.parse(ROOT / "docs" / "images" / f"{name}.svg").getroot()
        assert root.tag.endswith("svg")
    texts = [e.text for e in ET.fromstring(draw.draw_errors(kept)).iter() if e.tag.endswith("text")]
    assert set(draw.chosen(kept, "cifar10")) <= set(texts)


def test_gaps_are_those_of_each_bin(draw, kept):
    """The gaps weighed by the images of their bins are mean confidence minus accuracy."""
    records = draw.chosen(kept, "cifar100")["SGD"][:1]
    confidence, gap = draw.gaps(kept, records)
    examples = kept.examples[records[0].name]
    counts = np.histogram(examples["confidence"], np.arange(16) / 15)[0]
    counts = counts[counts >= 50]
    expected = 100 * (examples["confidence"].mean() - examples["correct"].mean())
    assert len(counts) == len(gap) and np.all(np.diff(confidence) > 0)
    assert np.average(gap, weights=counts) == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize(("low", "high"), [(0, 4), (-0.06, 0.01), (0, 10.4), (-13, 18)])
def test_round_numbers_are_three_to_eight(draw, low, high):
    numbers = draw.round_numbers(low, high)
    assert 3 <= len(numbers) <= 8 and low <= numbers[0] <= numbers[-1] <= high
