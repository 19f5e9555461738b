"""The watch: numbers that agree with their references, a model left as it was, spacing, budget."""

import copy
import gc
import math
import threading
import types

import numpy as np
import pytest
import torch
from torch import nn

from toosure import Run, Watch, margins, metrics
from toosure.curvature import gn_sharpness
from toosure.losses import FocalLoss, MSELoss
from toosure.models import mlp
from toosure.predictions import read_predictions
from toosure.processes import Processes
from toosure.quantities import in_row
from toosure.runs import RunError
from toosure.watch import rows as rows_module
from toosure.watch.outputs import quantile
from toosure.watch.snapshot import snapshot_of
from toosure.watch.spacing import Spacing
from toosure.watch.split import Observation

CE = nn.CrossEntropyLoss()
METRICS = [q.key for q in in_row("val") if q.cost == "logits"]


def data(n=60, classes=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=generator)
    return x, torch.randint(classes, (n,), generator=generator)


def model(seed=0):
    torch.manual_seed(seed)
    return mlp(inputs=6, classes=4, width=12)


def test_curvature_of_some_examples_and_metrics_of_all():
    net, (x, y) = model(), data()
    watch = Watch(net, CE, (x, y), data(40, seed=1), curvature_examples=20)
    all_rows = Watch(net, CE, (x, y), data(40, seed=1)).last
    split = watch.splits["train"]
    some_x, some_y = split.curvature_data

    assert len(some_y) == 20 and len({tuple(row.tolist()) for row in some_x}) == 20
    assert {tuple(row.tolist()) for row in some_x} < {tuple(row.tolist()) for row in x}
    # By class, in proportion.
    assert (some_y.bincount(minlength=4) - y.bincount(minlength=4) / 3).abs().max() < 1

    expected = gn_sharpness(net, (some_x, some_y)).value
    assert watch.last["train/gn_sharpness"] == pytest.approx(expected, rel=2e-3)
    assert watch.last["train/gn_sharpness"] != pytest.approx(
        all_rows["train/gn_sharpness"], rel=1e-2
    )
    for key in ("train/ece", "train/loss", "val/margin_mean"):
        assert watch.last[key] == pytest.approx(all_rows[key], rel=1e-6)


def test_curvature_may_be_of_another_loss_than_the_trained_one():
    net, train = model(), data()
    focal = Watch(net, FocalLoss(), train, curvature_loss=CE).last
    plain = Watch(net, CE, train).last
    assert focal["train/gn_sharpness"] == plain["train/gn_sharpness"]
    assert focal["train/loss"] < 0.8 * plain["train/loss"]
    assert Watch(net, FocalLoss(), train).last["train/gn_sharpness"] != plain["train/gn_sharpness"]


def test_curvature_may_be_of_binary_cross_entropy():
    """Of one output per example, and of several labels per example."""
    (x, y), bce, key = data(), nn.BCEWithLogitsLoss(), "train/gn_sharpness"
    torch.manual_seed(0)
    one, several = (nn.Sequential(nn.Flatten(), nn.Linear(x[0].numel(), k)) for k in (1, 3))
    yes, labels = y % 2, torch.stack([y % 2, y > 1, y > 2], 1).float()
    expected = Watch(one, bce, (x, yes)).last[key]
    assert Watch(one, FocalLoss(), (x, yes), curvature_loss=bce).last[key] == expected
    expected = Watch(several, bce, (x, labels)).last[key]
    assert Watch(several, bce, (x, labels), curvature_loss=bce).last[key] == expected
    with pytest.raises(ValueError, match=r"BCEWithLogitsLoss needs labels \(N, 3\)"):
        Watch(several, CE, (x, y % 3), curvature_loss=bce)


def test_curvature_examples_are_noted_where_they_are_fewer(tmp_path):
    train = data()
    with Watch(model(), CE, train, run=tmp_path / "a", curvature_examples=60) as watch:
        assert (
            watch.last["train/gn_sharpness"] == Watch(model(), CE, train).last["train/gn_sharpness"]
        )
    assert "curvature_examples" not in (tmp_path / "a" / "examples.json").read_text()

    Watch(model(), CE, train, run=tmp_path / "b", curvature_examples=12).finish()
    assert '"curvature_examples": 12' in (tmp_path / "b" / "examples.json").read_text()
    with pytest.raises(ValueError, match="curvature_examples must be a positive integer; got 0"):
        Watch(model(), CE, train, curvature_examples=0)


def test_processes_share_the_examples_of_curvature():
    split = Watch(model(), CE, data(), curvature_examples=21).splits["train"]
    drawn = [tuple(row.tolist()) for row in split.curvature_data[0]]
    shares = []
    for rank in range(2):
        split.processes = Processes(rank=rank, count=2)
        shares += [tuple(row.tolist()) for row in split.drawn_rows(21)[0]]
    assert shares == drawn

    with pytest.raises(ValueError, match="curvature_examples is 1 for 2 processes: give more"):
        split.drawn_rows(1)


def test_row_agrees_with_every_reference():
    net, train, val = model(), data(), data(40, seed=1)
    row = Watch(net, CE, train, val).last
    for name, (x, y) in (("train", train), ("val", val)):
        logits = net(x).detach()
        m = margins.true_margin(logits, y).double()
        expected = {
            "loss": CE(logits, y),
            "accuracy": metrics.accuracy(logits, y),
            "confidence": logits.softmax(1).amax(1).double().mean(),
            "ece": metrics.ece(logits, y),
            "adaptive_ece": metrics.adaptive_ece(logits, y),
            "classwise_ece": metrics.classwise_ece(logits, y),
            "mmce": metrics.mmce(logits, y),
            "smece": metrics.smece(logits, y),
            "nll": metrics.nll(logits, y),
            "brier": metrics.brier(logits, y),
            "entropy": metrics.entropy(logits),
            "margin_mean": m.mean(),
            "margin_min": m.min(),
            "margin_q01": m.quantile(0.01),
            "margin_q05": m.quantile(0.05),
            "margin_q25": m.quantile(0.25),
            "margin_q50": m.quantile(0.5),
            "margin_q75": m.quantile(0.75),
            "log_q": (-m).exp().mean().log(),
            "gn_sharpness": gn_sharpness(net, (x, y), rtol=1e-6).value,
        }
        assert set(METRICS) <= expected.keys()
        for key, value in expected.items():
            close = 1e-3 if "sharpness" in key else 1e-6
            assert row[f"{name}/{key}"] == pytest.approx(float(value), rel=close, abs=1e-9), key
        assert 0 <= row[f"{name}/gn_sharpness_error"] < 1e-3
    assert row["step"] == 0 and 0 < row["seconds_measuring"] <= row["seconds"]


def test_only_the_splits_given():
    row = Watch(model(), CE, data(), measure=()).last
    assert not any(key.startswith("val/") or "sharpness" in key for key in row)
    assert {f"train/{name}" for name in METRICS} <= row.keys()


def test_one_forward_pass_a_split():
    net, calls = model(), []
    watch = Watch(net, CE, data(), data(40, seed=1))
    net.hidden.register_forward_hook(lambda module, x, y: calls.append(len(x[0])))
    with torch.no_grad():
        net.head.bias += 1
    watch.step()
    watch.measure()
    assert calls == [60, 40]


def test_squared_error_is_measured_as_such():
    net, (x, y) = model(), data()
    row = Watch(net, MSELoss("half"), (x, y)).last
    distance = net(x).detach() - nn.functional.one_hot(y, 4)
    assert row["train/loss"] == pytest.approx(float(0.5 * distance.square().sum(1).mean()))
    dense = gn_sharpness(net, (x, y), MSELoss("half"), rtol=1e-6).value
    assert row["train/gn_sharpness"] == pytest.approx(dense, rel=1e-3)


def test_more_when_asked():
    measure = ("hessian_sharpness", "batch_sharpness", "jacobian_norm", "certificate")
    row = Watch(model(), CE, data(), data(40, seed=1), measure=measure).last
    assert {"train/hessian_sharpness", "val/hessian_sharpness", "train/jacobian_norm"} <= row.keys()
    assert "train/batch_sharpness" in row and "val/batch_sharpness" not in row
    assert row["train/certificate_failed"] == 0
    assert row["train/slack 4.1 (i)"] > 0
    assert "train/slack 4.2 (v)" not in row  # says nothing of what is not separated
    with pytest.raises(ValueError, match="did you mean 'trace'"):
        Watch(model(), CE, data(), measure=("tracce",))


def test_the_model_is_only_read():
    net = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Dropout(0.5), nn.Linear(12, 4))
    net[2].eval()  # a mode of its own
    net(data()[0]).sum().backward()
    before = copy.deepcopy(net.state_dict())
    gradients = [p.grad.clone() for p in net.parameters()]
    modes, random = [m.training for m in net.modules()], torch.get_rng_state()
    Watch(net, CE, data(), measure=("gn_sharpness", "batch_sharpness"))
    Watch(net, CE, data(), measure=())
    assert all(
        torch.equal(a, b) for a, b in zip(before.values(), net.state_dict().values(), strict=True)
    )
    assert all(torch.equal(g, p.grad) for g, p in zip(gradients, net.parameters(), strict=True))
    assert [m.training for m in net.modules()] == modes
    assert torch.equal(torch.get_rng_state(), random)


def stepped(steps, **settings):
    watch = Watch(model(), CE, data(), measure=(), **settings)
    for _ in range(steps):
        watch.step(lr=0.1)
    return [row["step"] for row in watch.rows]


def test_spacing():
    assert stepped(50) == [0, 20, 40]
    assert stepped(7, every=3) == [0, 3, 6]
    assert stepped(9, at=(1, 2, 4, 8)) == [1, 2, 4, 8]
    with pytest.raises(ValueError, match="at least 1"):
        Spacing(every=0)
    with pytest.raises(ValueError, match="share of the time"):
        Spacing(budget=0)
    with pytest.raises(ValueError, match="one of them"):
        Spacing(every=5, budget=0.1)


def test_divergence_is_noted_and_not_raised(tmp_path):
    net = model()
    watch = Watch(net, CE, data(), run=tmp_path, every=1)
    with torch.no_grad():
        net.head.weight[0, 0] = float("nan")
    row = watch.step(lr=0.1)
    assert watch.diverged and row["diverged"] and row["lr"] == 0.1
    assert watch.step() is None  # nothing more to measure
    assert [r["step"] for r in Run(tmp_path).rows] == [0, 1]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (torch.zeros(3, 6), "must be .inputs, labels., .*; got Tensor"),
        ([torch.zeros(3, 6)], "batch of train must be .inputs, labels. or a dict; got Tensor"),
        ((torch.zeros(0, 6), torch.zeros(0)), "train is empty"),
        ((torch.full((3, 6), float("nan")), torch.zeros(3).long()), "example 0 holds NaN"),
        ((torch.zeros(3, 6), torch.zeros(3)), "labels must be integers"),
        ((torch.zeros(3, 6), torch.zeros(2).long()), "got 3 examples and 2 labels"),
        ((torch.zeros(3, 6), torch.zeros(4).long()), "got 3 examples and 4 labels"),
        ((torch.zeros(3, 6), torch.full((3,), 9)), r"labels must be integers in \[0, 4\)"),
    ],
)
def test_data_that_cannot_be_watched(wrong, message):
    with pytest.raises(ValueError, match=message):
        Watch(model(), CE, wrong)


def test_a_folder_of_ones_own(tmp_path):
    watch = Watch(model(), CE, data(), data(40, seed=1), run=tmp_path / "mine", every=2)
    for _ in range(4):
        watch.step(lr=0.1)
    run = Run(tmp_path / "mine")
    assert run.status == "running" and [row["step"] for row in run.rows] == [0, 2, 4]
    assert run.snapshots == [0, 2, 4] and run.environment["device"] == "cpu"
    assert "hostname" not in run.environment and "node" not in run.environment
    del watch
    gc.collect()
    assert Run(tmp_path / "mine").status == "ended"
    with pytest.raises(RunError, match="holds a run already"):
        Watch(model(), CE, data(), run=tmp_path / "mine")


def test_own_loop_resumes(tmp_path):
    def loop(folder, cut=None):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
        (x, y), state = data(), None
        for first, last in ((0, cut), (cut, 12)) if cut else ((0, 12),):
            watch = Watch(net, CE, data(), run=folder, every=2, resume=state)
            for step in range(first, last + (3 if last == cut else 0)):
                if step == cut and first == 0:  # a checkpoint, and three steps that are lost
                    state = copy.deepcopy(watch.state_dict())
                    weights = copy.deepcopy(net.state_dict())
                optimizer.zero_grad()
                CE(net(x), y).backward()
                optimizer.step()
                watch.step()
            watch.close()
            if last == cut:
                net.load_state_dict(weights)
        return Run(folder).rows

    def timeless(rows):
        return [{k: v for k, v in row.items() if "seconds" not in k} for row in rows]

    assert timeless(loop(tmp_path / "a", cut=5)) == timeless(loop(tmp_path / "b"))


def test_a_watch_resumed_at_the_end_has_the_numbers_of_the_last_step_and_any_config(tmp_path):
    config = {"clip": float("inf"), "depth": np.int64(3)}
    watch = Watch(model(), CE, data(), run=tmp_path, measure=(), config=config)
    watch.step(lr=0.1, name="a")
    state = watch.state_dict()
    watch.close()
    again = Watch(model(), CE, data(), run=tmp_path, measure=(), resume=state, config=config)
    assert {"lr": 0.1, "name": "a"}.items() <= again.finish().items()


def test_own_loop_leaves_predictions_to_evaluate(tmp_path):
    net, (x, y) = model(), data()
    with Watch(net, CE, (x, y), (x[:7], y[:7]), run=tmp_path / "mine") as watch:
        watch.step()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.mul_(2.0)  # after the last row
        watch.step(lr=0.5)
    assert watch.last["step"] == 2 and watch.last["lr"] == 0.5
    read = read_predictions(tmp_path / "mine" / "predictions.npz", split="val")
    assert torch.equal(read.labels, y[:7])
    assert torch.allclose(read.logits.float(), net(x[:7]).detach(), atol=1e-6)
    with Watch(net, CE, (x, y), run=tmp_path / "no val"):
        pass
    assert not (tmp_path / "no val" / "predictions.npz").exists()


def test_objective_predicts_and_reports():
    class Doubled:
        def predict(self, net, x):
            return 2 * net(x)

        def report(self):
            return {"gamma": 3.0}

    net, (x, y) = model(), data()
    row = Watch(net, CE, (x, y), objective=Doubled()).last
    assert row["gamma"] == 3.0
    assert row["train/nll"] == pytest.approx(float(metrics.nll(2 * net(x).detach(), y)))


def test_snapshot_counts_every_example(fixture_f):
    logits, labels = fixture_f
    found = snapshot_of(logits, labels)
    assert found["counts"].sum() == 4 and found["margin_counts"].sum() == 4
    assert found["confidence_right"].sum() == 2 and found["confidence_wrong"].sum() == 2
    assert found["margin_edges"][[0, -1]].tolist() == pytest.approx([-0.9, 3.0])
    table = metrics.reliability(logits, labels)
    assert np.array_equal(found["accuracy"], table.accuracy.numpy(), equal_nan=True)
    assert found["interval"].shape == (15, 2) and found["edges"].shape == (16,)


def test_quantiles_agree_with_torch():
    values = torch.randn(37, generator=torch.Generator().manual_seed(0)).double()
    shares = (0.0, 0.01, 0.33, 1.0)
    expected = values.quantile(torch.tensor(shares).double())
    ordered = values.sort().values
    assert torch.allclose(torch.stack([quantile(ordered, s) for s in shares]), expected)


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still unless a test moves `now`: no row has waited for long."""
    found = types.SimpleNamespace(now=100.0)
    found.perf_counter = lambda: found.now
    monkeypatch.setattr(rows_module, "time", found)
    return found


def test_deferred_rows_are_the_same_rows(clock, tmp_path):
    found, told = {}, []
    for defer in (False, True):
        net = model()
        watch = Watch(
            net, CE, data(), data(40, seed=1), run=tmp_path / str(defer), every=2, defer=defer,
            notify=told.append,
        )  # fmt: skip
        for step in range(4):
            with torch.no_grad():
                net.head.bias += 0.1 * step
            watch.step(lr=0.1)
        assert len(Run(tmp_path / str(defer)).rows) == (1 if defer else 3)
        watch.finish()
        run = Run(tmp_path / str(defer))
        rows = [{k: v for k, v in row.items() if "seconds" not in k} for row in run.rows]
        found[defer] = rows, run.snapshots
    assert found[False] == found[True] and found[True][1] == [0, 2, 4]
    assert [row["step"] for row in told] == [0, 2, 4, 0, 2, 4]
    assert all(list(row)[-2:] == ["seconds", "seconds_measuring"] for row in told)


def test_the_last_row_always_has_its_snapshot(tmp_path):
    watch = Watch(model(), CE, data(), run=tmp_path, every=10, measure=())
    for _ in range(110):
        watch.step()
    assert watch.last_measured == 110 and Run(tmp_path).snapshots[-1] < 110
    watch.finish()
    assert Run(tmp_path).snapshots[-1] == 110


def test_temperature_along_training_is_fitted_on_one_half_of_val_and_judged_on_the_other():
    from toosure.posthoc import split_temperature

    torch.manual_seed(0)
    model = mlp(inputs=4, classes=3, width=8)
    x, y = torch.randn(60, 4), torch.arange(60) % 3
    watch = Watch(model, nn.CrossEntropyLoss(), (x, y), (x, y), measure=("temperature",))
    row = watch.last
    expected = split_temperature(model(x).detach(), y)
    assert row["val/temperature"] == pytest.approx(expected.temperature, rel=1e-6)
    assert row["val/tce"] == pytest.approx(expected.tce, rel=1e-6)
    assert row["val/refinement"] == pytest.approx(expected.refinement, rel=1e-6)
    assert "train/temperature" not in row


def test_metrics_on_the_side_leave_the_threads_of_the_caller_and_are_the_same():
    """With `defer` they are worked out by threads of their own, one core each."""
    torch.manual_seed(0)
    data = torch.randn(60, 4), torch.arange(60) % 3
    before, rows = torch.get_num_threads(), []
    for defer in (False, True):
        torch.manual_seed(1)
        model = nn.Linear(4, 3)
        with Watch(model, nn.CrossEntropyLoss(), data, data, measure=(), every=2, defer=defer) as w:
            for step in range(6):
                model.weight.data[0, 0] = step
                w.step()
        rows.append([{k: v for k, v in row.items() if "seconds" not in k} for row in w.rows])
    assert torch.get_num_threads() == before
    assert [row["step"] for row in rows[1]] == [0, 2, 4, 6]
    assert [row.keys() for row in rows[0]] == [row.keys() for row in rows[1]]
    for plain, side in zip(*rows, strict=True):
        assert side == pytest.approx(plain, rel=1e-12)


def test_a_divergence_seen_later_is_a_row_of_its_step_and_the_last():
    net = nn.Linear(4, 3)
    data = torch.randn(20, 4), torch.arange(20) % 3
    watch = Watch(net, nn.CrossEntropyLoss(), data, every=2, defer=True)
    for step in range(1, 7):
        if step == 3:
            net.weight.data.fill_(math.nan)
        watch.step()
    watch.close()
    assert watch.diverged
    assert [(row["step"], row.get("diverged", False)) for row in watch.rows] == [
        *((0, False), (2, False), (4, True)),
    ]


class Changing(nn.Module):
    """A loss that is another at every call."""

    calls = 0

    def forward(self, logits, labels):
        self.calls += 1
        return self.calls * nn.functional.cross_entropy(logits, labels)


class Uncopied(nn.Linear):
    """A network that holds what cannot be copied."""

    def __init__(self):
        super().__init__(4, 3)
        self.lock = threading.Lock()


@pytest.mark.parametrize(
    ("net", "loss"), [(nn.Linear(4, 3), Changing()), (Uncopied(), nn.CrossEntropyLoss())]
)
def test_what_cannot_wait_is_looked_at_at_once(net, loss):
    data = torch.randn(20, 4), torch.arange(20) % 3
    watch = Watch(net, loss, data, every=2, measure=(), defer=True)
    assert watch.maker.weights is None
    for _ in range(2):
        watch.step()
    before = net(data[0]).detach()
    net.weight.data += 1
    watch.close()
    assert watch.last["train/nll"] == pytest.approx(float(metrics.nll(before, data[1])))


def test_a_row_does_not_wait_long(clock):
    data = torch.randn(20, 4), torch.arange(20) % 3
    net = nn.Linear(4, 3)
    watch = Watch(net, nn.CrossEntropyLoss(), data, measure=(), every=2, defer=True)
    for _ in range(2):
        watch.step()
    assert watch.rows == []
    clock.now += 1.0
    watch.step()
    assert [row["step"] for row in watch.rows] == [0, 2]
    watch.close()


def test_what_goes_wrong_on_the_side_is_raised(monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("on the side")

    data = torch.randn(20, 4), torch.arange(20) % 3
    monkeypatch.setattr("toosure.watch.split.Observation.row_values", fail)
    watch = Watch(nn.Linear(4, 3), nn.CrossEntropyLoss(), data, measure=(), defer=True)
    with pytest.raises(ZeroDivisionError, match="on the side"):
        watch.flush()


def test_going_back_forgets_a_row_that_was_left_for_later():
    data = torch.randn(20, 4), torch.arange(20) % 3
    watch = Watch(nn.Linear(4, 3), nn.CrossEntropyLoss(), data, measure=(), every=2, defer=True)
    for _ in range(4):
        watch.step()
    state = watch.state_dict()
    for _ in range(2):
        watch.step()
    watch.load_state_dict(state)
    for _ in range(2):
        watch.step()
    watch.close()
    assert [row["step"] for row in watch.rows] == [0, 2, 4, 6]


def test_a_metric_that_fails_at_the_end_leaves_no_thread_and_a_closed_folder(tmp_path, monkeypatch):
    data = torch.randn(20, 4), torch.arange(20) % 3
    model, loss = nn.Linear(4, 3), nn.CrossEntropyLoss()
    before = set(threading.enumerate())
    watch = Watch(model, loss, data, run=tmp_path / "run", measure=(), defer=True)
    watch.flush()
    assert any(t.name.startswith("watch") for t in set(threading.enumerate()) - before)

    def fail(*_):
        raise ZeroDivisionError("on the side")

    monkeypatch.setattr("toosure.watch.split.Observation.row_values", fail)
    watch.steps = 20
    watch.measure()
    with pytest.raises(ZeroDivisionError):
        watch.close("failed", "it did")
    assert watch.closed
    assert set(threading.enumerate()) <= before
    assert Run(tmp_path / "run").status == "failed"


def test_a_metric_that_fails_on_the_side_takes_no_other_row_with_it(clock, monkeypatch):
    data = torch.randn(20, 4), torch.arange(20) % 3
    watch = Watch(nn.Linear(4, 3), nn.CrossEntropyLoss(), data, measure=(), every=1, defer=True)
    found, calls = Observation.row_values, []

    def failing(observation):
        calls.append(observation)
        return found(observation) if len(calls) != 2 else 1 / 0  # of the row of step 2

    monkeypatch.setattr(Observation, "row_values", failing)
    raised = []
    for _ in range(6):
        try:
            watch.step()
        except ZeroDivisionError:
            raised.append(watch.steps)
    watch.close()
    assert raised == [4]
    assert [row["step"] for row in watch.rows] == [0, 1, 3, 5, 6]  # 4 was due when it was raised


def test_going_back_leaves_no_snapshot_of_what_was_dropped(tmp_path):
    data = torch.randn(20, 4), torch.arange(20) % 3
    net, loss = nn.Linear(4, 3), nn.CrossEntropyLoss()
    watch = Watch(net, loss, data, data, run=tmp_path, measure=(), every=1, defer=True)
    watch.step()
    state, before = watch.state_dict(), copy.deepcopy(net.state_dict())
    for _ in range(3):
        net.weight.data += 1.0
        watch.step()
    watch.diverged = True
    watch.load_state_dict(state)
    net.load_state_dict(before)
    assert not watch.diverged
    watch.finish()
    watch.close()
    run = Run(tmp_path)
    assert run.snapshots == [0, 1] and [row["step"] for row in run.rows] == [0, 1]
    logits = np.load(tmp_path / "predictions.npz")["val_logits"]
    np.testing.assert_allclose(logits, net(data[0]).detach().numpy(), rtol=1e-6)


class Scaled(nn.Linear):
    """A network that puts another buffer in the place of its own."""

    def __init__(self):
        super().__init__(4, 3)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        return self.scale * super().forward(x)


def test_buffers_and_weights_that_are_replaced_are_followed():
    data = torch.randn(20, 4), torch.arange(20) % 3
    rows = []
    for defer in (False, True):
        torch.manual_seed(0)
        net = Scaled()
        watch = Watch(net, nn.CrossEntropyLoss(), data, measure=(), every=1, defer=defer)
        for step in range(5):
            net.scale = net.scale + 0.5
            net.weight = nn.Parameter(net.weight.detach() * (1 + 0.1 * step))
            watch.step()
        watch.close()
        rows.append([row["train/nll"] for row in watch.rows])
    assert rows[0] == rows[1] and len(set(rows[0])) == 6


def test_a_network_that_becomes_another_is_an_error():
    data = torch.randn(20, 4), torch.arange(20) % 3
    net = Scaled()
    watch = Watch(net, nn.CrossEntropyLoss(), data, measure=(), every=1, defer=True)
    net.scale = torch.ones(3)
    with pytest.raises(ValueError, match="not those it had"):
        watch.step()
    watch.maker.close()


def test_a_buffer_that_cannot_be_written_is_looked_at_at_once():
    net = Scaled()
    net.scale = torch.ones(1, 1).expand(20, 3)
    data = torch.randn(20, 4), torch.arange(20) % 3
    watch = Watch(net, nn.CrossEntropyLoss(), data, measure=(), defer=True)
    assert watch.maker.weights is None
    watch.close()


def test_a_loss_by_its_name_is_refused_with_what_to_give():
    data = torch.randn(20, 4), torch.arange(20) % 3
    with pytest.raises(ValueError, match=r"loss must be callable .*got 'ce': give a module"):
        Watch(nn.Linear(4, 3), "ce", data, measure=())


@pytest.mark.parametrize("measure", [(), ("gn_sharpness",)])
def test_an_argument_that_does_not_exist_is_refused(measure):
    model, x, y = nn.Linear(4, 3), torch.randn(30, 4), torch.arange(30) % 3
    with pytest.raises(TypeError, match="no argument 'evry'; did you mean 'every'"):
        Watch(model, None, (x, y), measure=measure, evry=3)
    Watch(model, None, (x, y), measure=measure, rtol=0.01, rho=0.1, gather=10, chunk=8)


def test_what_is_no_state_and_what_no_row_can_hold_is_said():
    model, x, y = nn.Linear(4, 3), torch.randn(30, 4), torch.arange(30) % 3
    with pytest.raises(ValueError, match="of a watch; this state lacks measured"):
        Watch(model, None, (x, y), resume=model.state_dict())
    watch = Watch(model, None, (x, y), measure=(), every=1)
    with pytest.raises(ValueError, match="lr must be one number or text to join a row; got tensor"):
        watch.step(lr=torch.ones(2))
    assert watch.step(lr=np.array([0.5]), note="text")["note"] == "text"
