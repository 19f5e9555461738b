"""A loop of one's own: how its run ends, goes on, and what it says of mistakes."""

import gc
import os

import numpy as np
import pytest
import torch
from test_watch import CE, data, model
from torch import nn

from toosure import Run, Watch
from toosure.runs import RunError

# -- the end --------------------------------------------------------------------------------


def destroyed(net):
    with torch.no_grad():
        net.head.weight[0, 0] = float("nan")


@pytest.mark.parametrize("how", ["close", "gone"])
def test_a_loop_that_diverged_says_so_and_one_that_ended_gets_no_warning(how, tmp_path):
    for name in ("well", "ill"):
        net = model()
        watch = Watch(net, CE, data(), run=tmp_path / name, every=2, measure=())
        watch.step()
        if name == "ill":
            destroyed(net)
        watch.step()
        watch.step()
        if how == "close":
            watch.close()
        del watch
        gc.collect()
    run = Run(tmp_path / "ill")
    assert (run.status, run.outcome["step"]) == ("diverged", 2)
    assert run.warnings == [run.ending] and "not finite" in run.ending
    run = Run(tmp_path / "well")
    assert (run.status, run.outcome["step"], run.warnings) == ("ended", 2, [])


def test_a_with_block_measures_the_end(tmp_path):
    net, val = model(), data(40, seed=1)
    with Watch(net, CE, data(), val, run=tmp_path, measure=("best",)) as watch:
        for _ in range(3):
            with torch.no_grad():
                net.head.bias += torch.arange(4.0)  # worse and worse
            watch.step(lr=0.1)
    run = Run(tmp_path)
    assert [row["step"] for row in run.rows] == [0, 3] and run.snapshots == [0, 3]
    assert (run.status, run.outcome["step"]) == ("ended", 3)
    with np.load(tmp_path / "best.npz") as best:
        assert best["step"] == 0 and best["val_logits"].shape == (40, 4)
        assert float(best["val_nll"]) == pytest.approx(run.rows[0]["val/nll"])


def test_a_watch_that_is_garbage_collected_writes_best(tmp_path):
    watch = Watch(model(), CE, data(), data(40, seed=1), run=tmp_path, measure=("best",))
    del watch
    gc.collect()
    with np.load(tmp_path / "best.npz") as best:
        assert best["step"] == 0 and best["val_logits"].shape == (40, 4)


@pytest.mark.parametrize(
    ("error", "status"),
    [(ZeroDivisionError("by zero"), "failed"), (KeyboardInterrupt(), "stopped")],
)
def test_a_with_block_that_raises(error, status, tmp_path):
    def loop():
        with Watch(model(), CE, data(), run=tmp_path, measure=()) as watch:
            watch.step()
            raise error

    with pytest.raises(type(error)):
        loop()
    run = Run(tmp_path)
    assert run.status == status and [row["step"] for row in run.rows] == [0]
    assert run.outcome["message"] == (str(error) or "KeyboardInterrupt")


# -- going on -------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["a", None])
def test_the_latest_row_is_known_after_going_on(folder, tmp_path):
    run = folder and tmp_path / folder
    with Watch(model(), CE, data(), run=run, every=2) as watch:
        for _ in range(3):
            watch.step(lr=np.float32(0.5))
        state, row = watch.state_dict(), watch.last
    again = Watch(model(), CE, data(), run=run, every=2, resume=state)
    assert again.last == row | {"lr": 0.5} and again.last["step"] == 2
    if run:
        assert Run(run).status == "running" and Run(run).outcome["step"] == 3
        again.close()
        assert Run(run).outcome["step"] == 2 and [r["step"] for r in Run(run).rows] == [0, 2]


def test_going_on_with_another_watch_names_what_differs(tmp_path):
    with Watch(model(), CE, data(), data(40), run=tmp_path, measure=("gn_sharpness",)) as watch:
        state = watch.state_dict()
    before = {file.name: file.read_bytes() for file in tmp_path.glob("*.json*")}
    for measure in (("hessian_sharpness",), (), ("gn_sharpness", "trace")):
        with pytest.raises(ValueError, match=r"watch with measure \('gn_sharpness',\); got \("):
            Watch(model(), CE, data(), data(40), run=tmp_path, measure=measure, resume=state)
    with pytest.raises(ValueError, match=r"watch with splits \('train', 'val'\); got \('train',\)"):
        Watch(model(), CE, data(), run=tmp_path, resume=state)
    assert {file.name: file.read_bytes() for file in tmp_path.glob("*.json*")} == before
    Watch(model(), CE, data(), data(40), run=tmp_path, resume=state).close()


def test_nothing_is_added_after_close(tmp_path):
    watch = Watch(model(), CE, data(), run=tmp_path, every=1, measure=())
    watch.step()
    watch.close()
    watch.close()
    for go_on in (watch.step, watch.measure):
        with pytest.raises(ValueError, match=r"Watch\(\.\.\., resume=watch\.state_dict\(\)\)"):
            go_on()
    assert [row["step"] for row in Run(tmp_path).rows] == [0, 1]
    state = watch.state_dict()
    with Watch(model(), CE, data(), run=tmp_path, every=1, measure=(), resume=state) as again:
        again.step()
    assert [row["step"] for row in Run(tmp_path).rows] == [0, 1, 2]


# -- rows -----------------------------------------------------------------------------------


@pytest.mark.parametrize("defer", [False, True])
def test_a_step_has_one_row(defer):
    watch = Watch(model(), CE, data(), every=2, measure=(), defer=defer)
    assert watch.measure() is watch.last
    watch.step()
    once = watch.measure(lr=0.1)
    assert watch.measure(lr=0.2) is once
    watch.step()
    watch.measure()
    watch.finish()
    assert [row["step"] for row in watch.rows] == [0, 1, 2]


@pytest.mark.parametrize("name", ["step", "seconds", "diverged", "train/ece", "val/gn_sharpness"])
def test_a_number_cannot_have_the_name_of_the_rows_own(name):
    watch = Watch(model(), CE, data(), measure=())
    with pytest.raises(ValueError, match=f"a row has a {name} of its own"):
        watch.step(**{name: 99})
    assert watch.steps == 0
    watch.step(**{"train/batch_loss": 1.0})


# -- mistakes -------------------------------------------------------------------------------


def test_a_cell_that_is_run_again_is_told_of_its_own_watch(tmp_path):
    watch = Watch(model(), CE, data(), run=tmp_path, measure=())
    with pytest.raises(RunError, match=r"earlier Watch .* of this process: call its close\(\)"):
        Watch(model(), CE, data(), run=tmp_path, measure=())
    watch.close()


def test_a_watch_that_cannot_be_made_lets_go_of_the_folder(tmp_path, monkeypatch):
    class Fails(nn.Module):
        def forward(self, logits, labels):
            raise ZeroDivisionError(os.getpid())

    with pytest.raises(ZeroDivisionError) as kept:  # whose traceback holds on to the first watch
        Watch(model(), Fails(), data(), run=tmp_path, measure=())
    assert Run(tmp_path).status == "interrupted"
    Watch(model(), CE, data(), run=tmp_path, measure=()).close()
    assert kept.value and [row["step"] for row in Run(tmp_path).rows] == [0]


def test_what_is_no_network():
    net = model()
    with pytest.raises(ValueError, match=r"must be a torch\.nn\.Module; got function"):
        Watch(lambda x: net(x), CE, data())
    with pytest.raises(ValueError, match="Identity has no parameters"):
        Watch(nn.Identity(), CE, data())


def test_one_measure_may_be_bare():
    row = Watch(model(), CE, data(), measure="jacobian_norm").last
    assert "train/jacobian_norm" in row and "train/gn_sharpness" not in row


# -- outputs that are probabilities ---------------------------------------------------------


@pytest.mark.parametrize("defer", [False, True])
def test_a_model_that_ends_in_softmax_is_refused_with_the_remedy(defer, tmp_path):
    net = nn.Sequential(model(), nn.Softmax(1))
    remedy = (
        "outputs are probabilities.*remove the model's last Softmax, or replace it by LogSoftmax"
    )
    with pytest.raises(ValueError, match=remedy):
        Watch(net, CE, data(), data(40, seed=1), run=tmp_path, defer=defer)


def test_half_precision_and_uniform_probabilities_are_found():
    watched = data()
    net = nn.Sequential(model(), nn.Softmax(1)).bfloat16()
    inputs = watched[0].bfloat16()
    with pytest.raises(ValueError, match="are probabilities"):
        Watch(net, CE, (inputs, watched[1]), measure=())

    net = nn.Sequential(model(), nn.Softmax(1))
    for parameter in net.parameters():
        nn.init.zeros_(parameter)
    with pytest.raises(ValueError, match="are probabilities"):
        Watch(net, CE, watched, measure=())


def test_log_probabilities_and_zero_logits_are_logits():
    net = model()
    row = Watch(net, CE, data(), measure=()).last
    of_logs = Watch(nn.Sequential(net, nn.LogSoftmax(1)), CE, data(), measure=()).last
    assert of_logs["train/ece"] == pytest.approx(row["train/ece"], abs=1e-6)

    for parameter in net.parameters():
        nn.init.zeros_(parameter)
    assert Watch(net, CE, data(), measure=()).last["train/confidence"] == pytest.approx(0.25)


class Constant(nn.Module):
    """Give every input the same outputs, which a test may change."""

    def __init__(self, outputs):
        super().__init__()
        self.outputs = nn.Parameter(torch.tensor(outputs))

    def forward(self, x):
        return self.outputs.expand(len(x), -1)


def test_only_the_first_look_is_checked():
    net = Constant([2.0, 0.0, -1.0, 0.0])
    watch = Watch(net, CE, data(), every=1, measure=())
    with torch.no_grad():
        net.outputs.copy_(torch.tensor([0.1, 0.2, 0.3, 0.4]))  # logits of a step, by chance
    assert watch.step()["step"] == 1


# -- what was asked -------------------------------------------------------------------------


def test_a_config_may_be_the_arguments_of_a_script(tmp_path):
    arguments = {"out": tmp_path, "sizes": np.arange(3), "rates": torch.tensor([[0.1, np.inf]])}
    run = tmp_path / "run"
    Watch(model(), CE, data(), run=run, config=arguments, measure=()).close()
    assert Run(run).config == {
        "out": str(tmp_path),
        "sizes": [0, 1, 2],
        "rates": [[pytest.approx(0.1), None]],
    }
    with pytest.raises(RunError, match=r"config holds device\(type='cpu'\), which JSON cannot"):
        Watch(model(), CE, data(), run=tmp_path / "b", config={"on": torch.device("cpu")})
