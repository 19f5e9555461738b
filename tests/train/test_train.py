"""The loop: deterministic, every option works, divergence and bad data end in a sentence."""

import os
import signal
import threading

import numpy as np
import pytest
import torch
from torch import nn

from toosure.config import RunConfig
from toosure.data import digits
from toosure.objectives import Plain, as_objective, preparing
from toosure.optim import SAM
from toosure.optim.schedules import Constant, Cosine, StepDecay
from toosure.runs import Run, RunError, RunWriter
from toosure.train import ProgressListener, Runtime, steps, train
from toosure.train.batches import Batches
from toosure.train.build import lay_channels_last
from toosure.train.checkpoint import load_checkpoint
from toosure.watch import Watch

SMALL = {"data": "digits:train=100,val=60", "model": "mlp:width=16", "batch": 32}
CPU = Runtime("cpu")


def timeless(rows):
    return [{k: v for k, v in row.items() if "seconds" not in k} for row in rows]


def final(run):
    return load_checkpoint(run.path)[0]["model"]


def same(one, two):
    return all(torch.equal(one[name], two[name]) for name in one)


def test_identical_runs_differ_only_in_seconds(tmp_path):
    config = RunConfig(**SMALL, steps=10, every=5)
    one, two = train(config, tmp_path / "a", CPU), train(config, tmp_path / "b", CPU)
    assert timeless(one.rows) == timeless(two.rows)
    assert one.rows != two.rows
    other = train(RunConfig(**SMALL, steps=10, every=5, seed=1), tmp_path / "a", CPU)
    assert timeless(other.rows) != timeless(one.rows)


def test_curvature_of_another_loss_than_the_trained_one(tmp_path):
    """At the start both networks are the same, so only the measured loss decides."""
    settings = {**SMALL, "steps": 1, "measure": ("hessian_sharpness",)}
    focal, other, ce = (
        train(RunConfig(**settings, **losses), tmp_path, CPU).rows[0]["train/hessian_sharpness"]
        for losses in ({"loss": "focal"}, {"loss": "focal", "curvature_loss": "ce"}, {})
    )
    assert other == ce != focal
    assert RunConfig(curvature_loss="focal:gamma=3").curvature_loss == "focal"
    with pytest.raises(ValueError, match="fokal"):
        RunConfig(curvature_loss="fokal")


def test_the_folder_holds_everything(tmp_path):
    run = train(RunConfig(**SMALL, steps=10, every=5), tmp_path, CPU)
    assert RunConfig.read(run.path) == RunConfig(**SMALL, steps=10, every=5)
    assert run.status == "complete" and run.outcome["step"] == 10
    assert run.columns["epoch"].tolist() == pytest.approx([0, 5 / 3, 10 / 3])
    assert run.columns["lr"].tolist() == [0.1, 0.1, 0.1]
    assert run.snapshots == [0, 5, 10]
    assert {"versions", "device", "commit", "command", "cores"} <= run.environment.keys()
    with np.load(run.path / "predictions.npz") as arrays:
        assert arrays["val_logits"].shape == (60, 10) and arrays["test_labels"].shape == (500,)
    assert not list(run.path.rglob("*.part"))


def test_without_validation_only_train_is_measured(tmp_path):
    run = train(RunConfig(data="digits:train=60,val=0", steps=2, every=1), tmp_path, CPU)
    assert not any(key.startswith("val/") for key in run.last)


def test_against_a_loop_written_by_hand(tmp_path):
    """SGD with momentum on the same batches, in six lines."""
    config = RunConfig(**SMALL, optimizer="sgd:lr=0.1,momentum=0.9", steps=7, every=7, seed=2)
    run = train(config, tmp_path, CPU)
    data = digits(train=100, val=60)
    torch.manual_seed(2)
    net = config.word("model").build(inputs=data.inputs, classes=data.classes)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    batches = Batches(data, 32, seed=2)
    for step in range(7):
        x, y, _ = batches.draw(step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    assert same(final(run), net.state_dict())


def test_full_batch_is_the_whole_set(tmp_path):
    """gd is SGD on one batch of everything, and sam:base=gd takes its two passes on it."""
    gd = RunConfig(**SMALL, optimizer="gd:lr=0.5", steps=4, every=4)
    sgd = RunConfig(**{**SMALL, "batch": None}, optimizer="sgd:lr=0.5", steps=4, every=4)
    assert gd.batch is None
    runs = [train(config, tmp_path, CPU) for config in (gd, sgd)]
    assert same(final(runs[0]), final(runs[1]))
    sam = RunConfig(**SMALL, optimizer="sam:base=gd,lr=0.5,rho=0.1", steps=4, every=4)
    data = digits(train=100, val=60)
    torch.manual_seed(0)
    net = sam.word("model").build(inputs=data.inputs, classes=data.classes)
    optimizer = SAM(net.parameters(), rho=0.1, lr=0.5)

    def closure():
        loss = nn.functional.cross_entropy(net(data.train.x), data.train.y)
        loss.backward()
        return loss

    for _ in range(4):
        optimizer.step(closure)
    assert same(final(train(sam, tmp_path, CPU)), net.state_dict())


def test_batches_cover_an_epoch_and_differ_between_epochs():
    batches = Batches(digits(train=100, val=60), 32, seed=1)
    epoch = [batches.draw(step)[2] for step in range(3)]
    assert len(torch.cat(epoch).unique()) == 96
    assert not torch.equal(batches.draw(3)[2], epoch[0])
    assert torch.equal(Batches(batches.data, 32, seed=1).draw(1)[2], epoch[1])  # no history needed
    assert not torch.equal(Batches(batches.data, 32, seed=2).draw(1)[2], epoch[1])
    assert [batches.ends_epoch(step) for step in range(4)] == [False, False, True, False]


@pytest.mark.parametrize(
    "schedule", ["step:at=0.5,factor=0.1", "cosine:warmup=2", "constant:warmup=4"]
)
def test_the_learning_rate_follows_the_schedule(schedule, tmp_path):
    config = RunConfig(**SMALL, schedule=schedule, steps=6, every=1, measure=())
    rates = train(config, tmp_path, CPU).columns["lr"]
    share = {"s": StepDecay((0.5,)), "c": Cosine(warmup=2)}.get(schedule[0])
    share = Constant(warmup=4) if schedule.startswith("constant") else share
    expected = [share(max(0, step - 1), 6) * 0.1 for step in range(7)]
    assert rates.tolist() == pytest.approx(expected)


def test_both_groups_of_muon_follow_the_schedule(tmp_path):
    config = RunConfig(**SMALL, optimizer="muon:lr=0.02", schedule="cosine", steps=4, every=4)
    groups = load_checkpoint(train(config, tmp_path, CPU).path)[0]["optimizer"]["param_groups"]
    last = Cosine()(3, 4)
    assert [g["lr"] for g in groups] == pytest.approx([0.02 * last, 3e-4 * last])


@pytest.mark.parametrize("optimizer", ["sgd:lr=5", "sam:lr=5,rho=0.01"])
def test_clipping_bounds_the_step(optimizer, tmp_path):
    config = RunConfig(**SMALL, optimizer=optimizer, clip=1e-3, steps=1, every=1)
    after = final(train(config, tmp_path, CPU))
    torch.manual_seed(0)
    start = config.word("model").build(inputs=(1, 8, 8), classes=10).state_dict()
    moved = sum((after[k] - start[k]).square().sum() for k in after).sqrt()
    assert float(moved) == pytest.approx(5e-3, rel=1e-3)


@pytest.mark.parametrize(
    ("optimizer", "precision"),
    [("sgd:lr=0.1,momentum=0.9", "fp16"), ("csam:lr=0.1", "fp16"), ("muon:lr=0.01", "bf16")],
)
def test_autocast_learns_as_float32_does(optimizer, precision, tmp_path):
    plain = RunConfig(**SMALL, optimizer=optimizer, steps=40, every=40)
    mixed = RunConfig(**SMALL, optimizer=optimizer, steps=40, every=40, precision=precision)
    one, two = train(plain, tmp_path, CPU).last, train(mixed, tmp_path, CPU).last
    assert one["train/loss"] != two["train/loss"]
    assert two["train/loss"] == pytest.approx(one["train/loss"], rel=0.1)


def test_graph_needs_a_gpu():
    with pytest.raises(ValueError, match="graph needs CUDA, but the device is cpu"):
        Runtime("cpu", graph=True)
    with pytest.raises(ValueError, match="'quantum' cannot be used"):
        Runtime("quantum")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # torch's own, while compiling
def test_compiled_is_the_same_run(tmp_path):
    config = RunConfig(**SMALL, optimizer="sam:lr=0.1", steps=10, every=5)
    one = train(config, tmp_path / "a", CPU)
    two = train(config, tmp_path / "b", Runtime("cpu", compile=True))
    assert two.last["train/loss"] == pytest.approx(one.last["train/loss"], rel=1e-4)


# -- what goes wrong ------------------------------------------------------------------------


def test_a_diverging_run_says_when(tmp_path):
    config = RunConfig(**SMALL, loss="mse:scale=sum", optimizer="sgd:lr=5", steps=200, every=50)
    run = train(config, tmp_path, CPU)
    assert run.status == "diverged" and 0 < run.outcome["step"] < 60
    assert "not finite" in run.outcome["message"]
    assert "diverged" in run.warnings[0]
    before = (run.path / "metrics.jsonl").read_bytes()
    assert train(config, tmp_path, CPU).status == "diverged"  # it would again
    assert (run.path / "metrics.jsonl").read_bytes() == before
    state = load_checkpoint(run.path)[0]
    assert state is None or all(v.isfinite().all() for v in state["model"].values())


@pytest.mark.parametrize(("bad", "advice"), [(17, "try a smaller lr"), (0, "before any step")])
def test_divergence_names_the_first_bad_step(tmp_path, monkeypatch, bad, advice):
    original = Batches.draw

    def draw(self, step):
        x, y, at = original(self, step)
        return (x * float("nan") if step == bad else x), y, at

    monkeypatch.setattr(Batches, "draw", draw)
    run = train(RunConfig(**SMALL, steps=100, every=50), tmp_path, Runtime("cpu", checkpoint=0.0))
    assert (run.status, run.outcome["step"]) == ("diverged", bad)
    assert advice in run.outcome["message"]
    state = load_checkpoint(run.path)[0] or {"step": 0, "model": {}}  # none before a step
    assert state["step"] == bad and all(v.isfinite().all() for v in state["model"].values())


def test_data_with_nan_is_refused_before_training(tmp_path):
    data = digits(train=100, val=60)
    data.train.x[5, 0, 0, 0] = float("nan")
    with pytest.raises(ValueError, match="train inputs must be finite; example 5 holds NaN"):
        train(RunConfig(**SMALL, steps=4), tmp_path, CPU, data=data)


def test_corrupt_cifar_is_one_sentence(tmp_path):
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"\x1f\x8b not really")
    config = RunConfig(data="cifar10", steps=2)
    with pytest.raises(ValueError, match="is damaged or cut short"):
        train(config, tmp_path / "runs", Runtime("cpu", data_root=tmp_path))
    assert Run(tmp_path / "runs" / config.name).status == "failed"


def test_two_processes_on_one_folder(tmp_path):
    config = RunConfig(**SMALL, steps=4, every=2)
    with RunWriter(tmp_path / config.name), pytest.raises(RunError, match="is held by"):
        train(config, tmp_path, CPU)
    assert train(config, tmp_path, CPU).status == "complete"


def test_full_disk_then_room_again(tmp_path, monkeypatch):
    config = RunConfig(**SMALL, steps=12, every=3)
    original, count = RunWriter.append, []

    def append(self, row):
        count.append(row)
        if len(count) == 3:
            with self.writing():
                raise OSError(28, os.strerror(28))
        original(self, row)

    monkeypatch.setattr(RunWriter, "append", append)
    with pytest.raises(RunError, match=r"No space left on device.*repeat the command"):
        train(config, tmp_path / "a", Runtime("cpu", checkpoint=0.0))
    monkeypatch.undo()
    assert Run(tmp_path / "a" / config.name).status == "failed"
    again = train(config, tmp_path / "a", CPU)
    assert timeless(again.rows) == timeless(train(config, tmp_path / "b", CPU).rows)


def test_a_checkpoint_that_finds_no_room(tmp_path, monkeypatch):
    def save(state, file):
        file.write(b"x" * 100)
        raise RuntimeError("PytorchStreamWriter failed writing file data.pkl: file write failed")

    config = RunConfig(**SMALL, steps=4, every=2)
    monkeypatch.setattr(torch, "save", save)
    with pytest.raises(RunError, match=r"file write failed.*repeat the command"):
        train(config, tmp_path, CPU)
    folder = tmp_path / config.name
    assert not list(folder.rglob("*.part")) and not list(folder.rglob("*.pt"))


def test_ctrl_c_checkpoints_and_the_run_goes_on(tmp_path):
    config = RunConfig(**SMALL, steps=40, every=5)

    class Press(ProgressListener):
        def row(self, row):
            if row["step"] == 20:
                os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    run = train(config, tmp_path / "a", CPU, Press())
    assert run.status == "stopped" and "repeat the command" in run.outcome["message"]
    assert signal.getsignal(signal.SIGINT) is before
    assert [row["step"] for row in run.rows] == [0, 5, 10, 15, 20]
    whole = train(config, tmp_path / "b", CPU)
    assert timeless(train(config, tmp_path / "a", CPU).rows) == timeless(whole.rows)


def test_it_runs_in_a_thread(tmp_path):
    config, found = RunConfig(**SMALL, steps=2, every=1), []
    thread = threading.Thread(target=lambda: found.append(train(config, tmp_path, CPU)))
    thread.start()
    thread.join()
    assert found[0].status == "complete"


def test_the_callers_random_state_is_left_alone(tmp_path):
    before = torch.get_rng_state()
    train(RunConfig(**{**SMALL, "model": "own_model:noisy"}, steps=2), tmp_path, CPU)
    assert torch.equal(torch.get_rng_state(), before)


# -- objectives -----------------------------------------------------------------------------


class Counting(nn.Module):
    """An objective that uses every optional part of the contract."""

    def __init__(self, loss: nn.Module, scale: float = 2.0) -> None:
        super().__init__()
        self.loss, self.scale = loss, scale
        self.register_buffer("prepared", torch.zeros(()))
        self.register_buffer("epochs", torch.zeros(()))
        self.rates, self.passes, self.ready = [], 0, False

    def setup(self, model, data):
        self.ready = len(data.val) > 0

    def prepare(self, model, batch, lr):
        assert self.ready
        self.prepared += 1
        self.rates.append(lr)
        return batch, torch.randn(())  # a draw, the same in both passes

    def forward(self, model, prepared):
        (x, y, _), noise = prepared
        self.passes += 1
        return self.loss(model(x), y) * (1 + 0.01 * noise)

    def epoch_end(self, model):
        self.epochs += 1

    def report(self):
        return {"objective/prepared": float(self.prepared), "objective/epochs": float(self.epochs)}


@pytest.mark.parametrize("optimizer", ["sgd:lr=0.1", "csam:lr=0.1", "bsam:lr=0.1,sub_batches=4"])
def test_an_objective_of_ones_own(optimizer, tmp_path):
    config = RunConfig(
        **SMALL, objective="test_train:Counting,scale=3", optimizer=optimizer, steps=9, every=3
    )

    class Cut(ProgressListener):
        def row(self, row):
            if row["step"] == 6:
                raise ValueError("cut")

    whole = train(config, tmp_path / "whole", CPU)
    parts = 4 if "bsam" in optimizer else 1
    assert whole.columns["objective/prepared"].tolist() == [0, 3 * parts, 6 * parts, 9 * parts]
    assert whole.columns["objective/epochs"].tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="cut"):
        train(config, tmp_path / "cut", Runtime("cpu", checkpoint=0.0), Cut())
    assert timeless(train(config, tmp_path / "cut", CPU).rows) == timeless(whole.rows)


def test_sam_prepares_once_and_passes_twice():
    objective, net = Counting(nn.CrossEntropyLoss()), nn.Linear(3, 2)
    objective.ready = True
    batch = (torch.randn(4, 3), torch.tensor([0, 1, 0, 1]), torch.arange(4))
    optimizer = SAM(net.parameters(), rho=0.1, lr=0.1)
    prepared = preparing(objective)(net, batch, 0.1)

    def closure():
        loss = objective(net, prepared)
        loss.backward()
        return loss

    optimizer.step(closure)
    assert (float(objective.prepared), objective.passes, objective.rates) == (1, 2, [0.1])


def test_a_loss_is_the_simplest_objective():
    loss = nn.CrossEntropyLoss()
    assert isinstance(as_objective(loss), Plain) and as_objective(loss).loss is loss
    objective = Counting(loss)
    assert as_objective(objective) is objective


def test_only_flat_convolutions_are_laid_out_for_a_gpu():
    """A network of volumes has weights of five axes, which have no such layout."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv3d(3, 4, 3), nn.Conv1d(3, 4, 3))
    before = [p.detach().clone() for p in model.parameters()]
    lay_channels_last(model)
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert not model[0].weight.is_contiguous()
    assert model[1].weight.is_contiguous() and model[2].weight.is_contiguous()
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))


def test_a_run_that_fails_leaves_the_rows_that_were_left_for_later(tmp_path, monkeypatch):
    """As under a graph, where a row is written when the one after the next is due."""
    config = RunConfig(data="digits:train=60,val=30", steps=40, every=5, measure=())
    monkeypatch.setattr(
        "toosure.train.training.Watch", lambda *a, **k: Watch(*a, **(k | {"defer": True}))
    )
    whole = steps.Step.__call__

    def fail(self, batch, lr):
        fail.steps += 1
        if fail.steps > 23:
            raise RuntimeError("the device is gone")
        return whole(self, batch, lr)

    fail.steps = 0
    monkeypatch.setattr(steps.Step, "__call__", fail)
    before = set(threading.enumerate())
    with pytest.raises(RuntimeError, match="the device is gone"):
        train(config, tmp_path)
    run = Run(tmp_path / config.name)
    assert run.status == "failed" and [row["step"] for row in run.rows] == [0, 5, 10, 15, 20]
    assert set(threading.enumerate()) <= before
