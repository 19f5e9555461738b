"""`--best refinement`: the weights of the best row are kept, and a run may end after it."""

import json

import numpy as np
import pytest
import torch
from test_resume import interrupted, same_run

from toosure.config import RunConfig
from toosure.data import digits
from toosure.models import mlp
from toosure.posthoc import split_temperature
from toosure.runs import RunWriter
from toosure.train import Runtime, train
from toosure.train.best import BestWeights
from toosure.watch.split import logits_of

SMALL = {
    "data": "digits:train=60,val=60,noise=0.3",
    "model": "mlp:width=32",
    "optimizer": "sgd:lr=0.3,momentum=0.9",
    "batch": 20,
    "measure": (),
    "every": 5,
    "steps": 100,
}
CPU = Runtime("cpu", threads=1)


@pytest.mark.parametrize("by", ["refinement", "nll"])
def test_the_best_weights_are_those_of_the_least_value(by, tmp_path):
    run = train(RunConfig(**SMALL, best=by), tmp_path, CPU)
    rows = run.rows[1:]
    values = [row[f"val/{by}"] for row in rows]
    least = rows[int(np.argmin(values))]
    assert least["step"] < 100  # it over-fits: the end is not the best

    best = np.load(run.path / "best.npz")
    assert int(best["step"]) == least["step"]
    assert float(best[f"val_{by}"]) == min(values)
    logits, labels = torch.tensor(best["val_logits"]), torch.tensor(best["val_labels"])
    if by == "refinement":
        refinement = split_temperature(logits, labels).refinement
        assert refinement == pytest.approx(least["val/refinement"])
    nll = torch.nn.functional.cross_entropy(logits, labels).item()
    assert nll == pytest.approx(least["val/nll"], rel=1e-5)
    assert best["test_logits"].shape == (500, 10)

    weights = torch.load(run.path / "best.pt", weights_only=True)
    assert weights["step"] == least["step"]


def test_patience_ends_the_run_and_a_stopped_one_ends_alike(tmp_path):
    config = RunConfig(**SMALL, best="refinement", patience=4)
    whole = train(config, tmp_path / "whole", CPU)
    steps = [row["step"] for row in whole.rows]
    best = int(np.load(whole.path / "best.npz")["step"])
    assert steps[-1] == best + 4 * 5 < 100
    assert whole.status == "complete"
    assert json.loads((whole.path / "status.json").read_text())["step"] == steps[-1]

    resumed = interrupted(config, tmp_path / "cut", best, best + 10)
    same_run(whole, resumed)
    files = [(run.path / "best.npz") for run in (whole, resumed)]
    one, two = map(np.load, files)
    assert all(np.array_equal(one[name], two[name]) for name in one.files)
    assert train(config, tmp_path / "whole", CPU).rows == whole.rows  # over is over


def test_small_gains_are_kept_but_not_waited_for():
    data = digits(train=20, val=20)
    config = RunConfig(best="nll", patience=2, min_delta=0.1)
    best = BestWeights(config, data)
    found = []
    for step, value in enumerate((2.0, 1.95, 1.85, 1.80, 1.79, 1.9)):
        kept = best.compare({"step": step, "val/nll": value})
        found.append((kept, best.rows_since, best.exhausted))
        resumed = BestWeights(config, data)
        resumed.load_state_dict(best.state_dict())
        best = resumed

    assert found == [
        (True, 0, False),
        (True, 1, False),
        (True, 0, False),  # 0.15 less than the first
        (True, 1, False),
        (True, 2, True),
        (False, 3, True),
    ]
    assert (best.step, best.value) == (4, 1.79)


def test_predictions_and_step_are_those_of_the_kept_weights_after_a_kill(tmp_path):
    data = digits(train=20, val=20)
    earlier, later = (mlp((1, 8, 8), width=4) for _ in range(2))
    best = BestWeights(RunConfig(best="nll"), data)
    with RunWriter(tmp_path / "run", {}) as writer:
        best.compare({"step": 5, "val/nll": 2.0})
        best.write(writer, earlier, {})
        checkpoint = best.state_dict()
        best.compare({"step": 10, "val/nll": 1.0})
        best.write(writer, later, {})

        # Killed, and resumed from the checkpoint; with a budget other steps are measured then.
        resumed = BestWeights(RunConfig(best="nll"), data)
        resumed.load_state_dict(checkpoint)
        resumed.compare({"step": 12, "val/nll": 3.0})
        resumed.write_predictions(writer, earlier, None, data)

    kept = np.load(tmp_path / "run" / "best.npz")
    assert (int(kept["step"]), float(kept["val_nll"])) == (10, 1.0)
    assert np.array_equal(kept["val_logits"], logits_of(later, data.val.x).numpy())


def test_what_makes_no_sense_is_refused(tmp_path):
    assert RunConfig(best="refinement", measure=()).measure == ("temperature",)
    with pytest.raises(ValueError, match="by nll or refinement; got 'ece'"):
        RunConfig(best="ece")
    with pytest.raises(ValueError, match="say by what"):
        RunConfig(patience=3)
    with pytest.raises(ValueError, match="patience must be at least 1"):
        RunConfig(best="nll", patience=0)
    with pytest.raises(ValueError, match="min_delta must not be negative"):
        RunConfig(best="nll", patience=3, min_delta=-0.1)
    with pytest.raises(ValueError, match="what patience calls better"):
        RunConfig(best="nll", min_delta=0.1)
    with pytest.raises(ValueError, match="leave best out of measure"):
        RunConfig(best="nll", measure=("best",))
    with pytest.raises(ValueError, match="name a val size"):
        train(RunConfig(data="digits:train=60,val=0", best="nll", steps=1), tmp_path, CPU)


def test_one_validation_example_fits_no_temperature(tmp_path):
    """The run itself ends well; one that is to be judged by a temperature is refused."""
    few = SMALL | {"data": "digits:train=60,val=1", "steps": 5}
    run = train(RunConfig(**few, best="nll"), tmp_path, CPU)
    assert (run.path / "best.npz").is_file() and not (run.path / "temperature.json").exists()
    with pytest.raises(ValueError, match="a val size of at least 2, or take best=nll"):
        train(RunConfig(**few, best="refinement"), tmp_path, CPU)


@pytest.mark.parametrize("objective", ["gamma_net", "gamma_net:scope=full", "meta_smoothing"])
def test_objectives_that_differentiate_twice_keep_the_best_weights(objective, tmp_path):
    settings = SMALL | {"objective": objective, "steps": 10}
    run = train(RunConfig(**settings, best="nll"), tmp_path, CPU)
    assert run.status == "complete" and (run.path / "best.npz").is_file()
