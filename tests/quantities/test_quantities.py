"""The table of quantities: complete, consistent, and what the docs print."""

from pathlib import Path

import pytest

from toosure import metrics
from toosure.curvature import CurvatureTracker
from toosure.quantities import QUANTITIES, find, in_row, markdown, measures, own_keys, shown_in
from toosure.runs import find_runs

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("key", [key for key, q in QUANTITIES.items() if q.compute])
def test_every_function_that_is_named_exists(key):
    assert callable(QUANTITIES[key].function)


def test_every_metric_of_an_evaluation_is_a_function_or_a_part_of_a_score():
    for key, quantity in QUANTITIES.items():
        if quantity.group and not key.endswith(("_calibration", "_refinement")):
            assert callable(getattr(metrics, key))


def test_every_entry_says_what_it_is():
    for key, quantity in QUANTITIES.items():
        assert key == quantity.key and quantity.name and quantity.says, key
        assert not quantity.says.endswith("."), key
        assert quantity.cost != "logits" or quantity.compute or quantity.group or key == "loss", key


def test_places_are_in_order_without_ties():
    for place in ("table", "panel", "progress", "notebook", "tile"):
        positions = [q.shown[place] for q in shown_in(place)]
        assert len(set(positions)) == len(positions) > 2


def test_the_order_of_measures_is_part_of_a_runs_id():
    assert measures() == (
        *("gn_sharpness", "hessian_sharpness", "kappa_min", "batch_sharpness", "gni"),
        *("jacobian_norm", "trace", "temperature", "certificate", "best"),
        *("critical_sharpness", "sam_theory"),
    )


def test_the_tracker_knows_every_curvature_quantity():
    import torch

    data = torch.randn(8, 3), torch.arange(8) % 2
    keys = [q.key for q in in_row("train") if q.cost == "curvature"]
    assert len(keys) == 7
    CurvatureTracker(torch.nn.Linear(3, 2), data, quantities=keys, batch=4)


def test_golden_rows_hold_no_key_that_is_unknown_but_those_of_objectives():
    for run in find_runs(ROOT / "tests" / "golden" / "runs"):
        assert all(key.startswith("objective/") for key in own_keys(list(run.columns))), run.name
    assert find("val/ece") is QUANTITIES["ece"] and find("ece") is None


def test_the_docs_print_the_table():
    text = (ROOT / "docs" / "training.md").read_text()
    printed = text.split("<!-- keys -->\n")[1].split("\n<!-- end of keys -->")[0]
    assert printed == markdown(), "docs/training.md: paste what toosure.quantities.markdown() gives"
