"""Sentences of the report fit the number of runs: one, several, several seeds of a setting."""

import json
import re

import pytest
from made_runs import make_run

from toosure.page.criteria import differ_in_criterion
from toosure.page.page_runs import PageRuns
from toosure.page.report import report
from toosure.page.sections.comparison import comparison
from toosure.page.sections.phase import phase
from toosure.page.sections.provenance import provenance
from toosure.page.sections.trajectories import trajectories
from toosure.runs import find_runs
from toosure.sentences import listed


def test_what_several_seeds_warn_of_is_said_once(tmp_path):
    for seed in range(3):
        config = {"optimizer": "sgd:lr=1", "seed": seed}
        make_run(tmp_path / f"r{seed}", config, status="diverged" if seed else "complete")
    warned = re.findall("<li><strong>(.*?)</li>", provenance(PageRuns(find_runs(tmp_path))))
    assert warned == ["sgd:lr=1</strong>, 2 of 3 seeds: diverged at step 90"]


def test_one_run_is_not_spoken_of_as_several(tmp_path):
    make_run(tmp_path / "r")
    html = re.sub(r"<script.*?</script>", "", report(tmp_path), flags=re.DOTALL)
    for words in ("Side by side", "each run", "all runs", "Each path", "Press a heading"):
        assert words not in html
    assert "Last row" in html and "The path of the run" in html


def test_names_that_hold_commas_are_told_apart():
    assert listed(["sgd, batch 64", "sam, batch 64"]) == "sgd, batch 64; sam, batch 64"


def test_a_spread_has_the_decimals_of_its_mean(tmp_path):
    for seed, sharpness in enumerate((2.0, 3.0)):
        make_run(tmp_path / f"r{seed}", {"optimizer": "sgd", "seed": seed}, sharpness=sharpness)
    assert "2.50<small>±&nbsp;0.71</small>" in comparison(PageRuns(find_runs(tmp_path)))


def test_loss_curves_of_different_criteria_are_said_not_to_compare(tmp_path):
    for loss in ("ce", "focal"):
        make_run(tmp_path / loss, {"optimizer": "sgd", "loss": loss})
        said = "not their loss" in trajectories(PageRuns(find_runs(tmp_path)))
        assert said is (loss == "focal")


def noted(path, environment, **config):
    """A run of an own loop, as its watch notes it."""
    make_run(path, config)
    (path / "environment.json").write_text(json.dumps(environment))


@pytest.mark.parametrize("section", [trajectories, comparison, phase])
def test_losses_that_a_watch_noted_are_told_with_their_sharpness(section, tmp_path):
    noted(tmp_path / "ce", {"loss": "CrossEntropyLoss()"}, optimizer="sgd")
    noted(tmp_path / "again", {"loss": "CrossEntropyLoss()"}, optimizer="sam")
    assert "what they minimise" not in section(PageRuns(find_runs(tmp_path)))
    noted(tmp_path / "focal", {"loss": "FocalLoss(gamma=2.0)"}, optimizer="csam")
    html = section(PageRuns(find_runs(tmp_path)))
    assert "sharpness, which is of the loss that each one trains with" in html
    assert ("not their loss, nor their sharpness" in html) is (section is trajectories)


def test_a_loss_that_is_not_known_differs_from_none(tmp_path):
    """As of a loop that was watched before losses were noted; `ce` is what a watch calls so."""
    noted(tmp_path / "new", {"loss": "CrossEntropyLoss()"}, optimizer="sgd")
    noted(tmp_path / "old", {}, optimizer="sam")
    noted(tmp_path / "trained", {}, optimizer="asam", loss="ce", objective=None)
    assert not differ_in_criterion(find_runs(tmp_path))
    noted(tmp_path / "focal", {}, optimizer="csam", loss="focal", objective=None)
    assert differ_in_criterion(find_runs(tmp_path))


@pytest.mark.parametrize("own_loop", [False, True])
def test_curvature_of_one_loss_compares(own_loop, tmp_path):
    for loss in ("ce", "focal"):
        losses = {"loss": loss, "curvature_loss": "ce"}
        noted(tmp_path / loss, losses if own_loop else {}, **({} if own_loop else losses))
    html = trajectories(PageRuns(find_runs(tmp_path)))
    assert "not their loss." in html and "each one trains with" not in html
