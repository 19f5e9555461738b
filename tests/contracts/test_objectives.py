"""What every objective in the table must do; a new one is tested the moment it is listed."""

import io

import pytest
import torch
from torch import nn

from toosure.binary import TwoColumns
from toosure.config import RunConfig
from toosure.data import digits
from toosure.losses import FocalLoss
from toosure.models import mlp
from toosure.objectives import OBJECTIVES, preparing
from toosure.optim import ASAM, BSAM, CSAM, SAM, VASSO
from toosure.train import ProgressListener, Runtime, train
from toosure.train.build import build_objective
from toosure.train.steps import Step
from toosure.words import find, parse
from toosure.words.tables import TABLES

EACH = pytest.mark.parametrize("name", OBJECTIVES)
QUICK = {"ccat": "attack_steps=3", "gamma_net": "width=8", "ar_adals": "refresh=2"}
DATA = digits(train=96, val=40)


def word(name):
    return f"{name}:{QUICK[name]}" if name in QUICK else name


class Net(nn.Module):
    """A small network with BatchNorm, whose statistics somebody might touch."""

    def __init__(self):
        super().__init__()
        self.flat, self.hidden = nn.Flatten(), nn.Linear(64, 8)
        self.norm, self.head = nn.BatchNorm1d(8), nn.Linear(8, 10)

    def features(self, x):
        return self.norm(self.hidden(self.flat(x))).tanh()

    def forward(self, x):
        return self.head(self.features(x))


def ready(name, model=None, rows=32, reduction="mean"):
    """An objective as the loop makes it, its model and a batch."""
    torch.manual_seed(0)
    model = Net() if model is None else model
    loss = nn.CrossEntropyLoss(reduction=reduction)
    objective = parse("objective", word(name)).build(
        loss=loss, reduction=reduction, seed=1, training_steps=100
    )
    data = DATA
    if hasattr(objective, "setup"):
        data = objective.setup(model, data) or data
    return objective, model, (data.train.x[:rows], data.train.y[:rows], torch.arange(rows))


def prepared(objective, model, batch):
    return preparing(objective)(model, batch, 0.1)


def gradients(objective, model, ready):
    loss = objective(model, ready)
    return loss, torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)


def test_the_table_and_the_words_agree():
    places = {name: f"toosure.objectives:{kind.__name__}" for name, kind in OBJECTIVES.items()}
    assert places.items() <= TABLES["objective"].items()


@EACH
def test_a_word_builds_it(name):
    method = find("objective", name)
    assert method.reference and method.summary
    assert "seed" not in method.settings and "loss" not in method.settings
    objective = parse("objective", name).build(loss=nn.CrossEntropyLoss(), seed=3)
    assert type(objective) is OBJECTIVES[name] and isinstance(objective.loss, nn.Module)


def test_settings_are_words():
    objective = parse("objective", "calmo:robust=0.25,smooth=0.02,eps=8/255").build()
    assert (objective.robust, objective.smooth, objective.eps) == (0.25, 0.02, 8 / 255)


@EACH
def test_preparing_leaves_the_network_alone(name):
    objective, model, batch = ready(name)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    prepared(objective, model, batch)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert all(module.training for module in model.modules())


@EACH
def test_the_same_problem_twice(name):
    """As SAM asks: a second pass at the same point gives the same loss and gradient."""
    objective, model, batch = ready(name)
    problem = prepared(objective, model, batch)
    one, first = gradients(objective, model, problem)
    two, second = gradients(objective, model, problem)
    torch.testing.assert_close(one, two)
    assert one.shape == () and one.isfinite()
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b)
        assert a is not None and a.isfinite().all()


@EACH
def test_a_sum_is_as_many_means(name):
    """The terms an objective adds keep their weight beside a loss that adds a batch up."""
    found = []
    for reduction in ("mean", "sum"):
        objective, model, batch = ready(name, reduction=reduction)
        if name == "crl":  # without a history there is nothing to rank
            objective.counts[::2] = 1
        problem = preparing(objective)(model, batch, 0.0)
        found.append(objective(model, problem))
    torch.testing.assert_close(found[1], 32 * found[0])


def made(objective, loss):
    config = RunConfig(objective=objective, loss=loss)
    return build_objective(config, config.word("loss").build(), torch.device("cpu"))


@EACH
def test_a_loss_that_is_named_is_used_or_refused(name):
    if "loss" in find("objective", name).parameters:
        assert isinstance(made(name, "focal").loss, FocalLoss)
        return
    for loss in ("focal", "ce:label_smoothing=0.1"):
        with pytest.raises(ValueError, match=f"{name} trains with a loss of its own, so {loss}"):
            made(name, loss)
    assert made(name, "ce").loss.reduction == "mean"
    assert made(name, "ce:reduction=sum").loss.reduction == "sum"


@pytest.mark.parametrize("name", [None, *OBJECTIVES])
def test_training_needs_one_number(name):
    with pytest.raises(ValueError, match="one number per batch"):
        made(name, "ce:reduction=none")
    if name is not None:
        given = {"loss": FocalLoss(reduction="none"), "reduction": "none"}
        with pytest.raises(ValueError, match="one number per batch"):
            parse("objective", name).build(**given)


def test_bulk_sgd_cannot_move_a_second_head(tmp_path):
    config = RunConfig(
        data="digits:train=96,val=40", objective="balcal", optimizer="bulksgd:lr=0.1"
    )
    with pytest.raises(ValueError, match=r"bulksgd steps .* the parameters that balcal adds"):
        train(config, tmp_path, Runtime("cpu"), data=DATA)


@EACH
@pytest.mark.parametrize("optimizer", [SAM, CSAM, ASAM, VASSO, BSAM])
def test_two_passes_lower_it(name, optimizer):
    objective, model, batch = ready(name)
    parameters = [*model.parameters(), *objective.parameters()]
    more = {"data_size": 96, "sub_batches": 4} if optimizer is BSAM else {"rho": 0.05}
    descent = optimizer(parameters, lr=0.1, model=model, **more)
    if optimizer is CSAM:
        objective.loss = descent.criterion(objective.loss)
    step, plain = Step(model, objective, descent), nn.CrossEntropyLoss()
    before = plain(model(batch[0]), batch[1])
    for _ in range(20):
        step(batch, 0.1)
    assert plain(model(batch[0]), batch[1]) < before


@EACH
def test_a_problem_stands_whatever_is_prepared_after_it(name):
    objective, model, batch = ready(name)
    first = prepared(objective, model, batch)
    kept = [t.clone() for t in first]
    preparing(objective)(model, batch, 0.1, part=1)
    prepared(objective, model, batch)
    assert all(torch.equal(a, b) for a, b in zip(first, kept, strict=True))
    objective(model, first).backward()


@EACH
def test_a_step_in_parts_counts_once(name):
    """BSAM prepares each part of a batch: steps, meta-steps and examples count as without it."""
    whole, parted = ready(name), ready(name)
    for (objective, model, batch), optimizer in (
        (whole, torch.optim.SGD(whole[1].parameters(), lr=0.0)),
        (parted, BSAM(parted[1].parameters(), lr=0.0, data_size=96, rho=0.0)),
    ):
        step = Step(model, objective, optimizer)
        for _ in range(3):
            step(batch, 0.1)
    taken = [getattr(objective, "taken", 0) for objective, _, _ in (whole, parted)]
    assert taken[0] == taken[1]
    adam = [getattr(objective, "optimizer", None) for objective, _, _ in (whole, parted)]
    if adam[0] is not None:
        assert [next(iter(a.state.values()))["step"].item() for a in adam] == [3, 3]
    if hasattr(whole[0], "count"):  # of the logits BalCAL keeps
        assert whole[0].count == parted[0].count == 3 * 32


@EACH
@pytest.mark.parametrize("batch", ["one row", "one class", "all right", "all wrong", "huge"])
def test_finite_wherever_training_goes(name, batch):
    objective, _, (x, y, places) = ready(name)
    torch.manual_seed(2)
    model = mlp((1, 8, 8), width=8)  # without BatchNorm, so that one row is a batch
    objective, model, (x, y, places) = ready(name, model)
    if batch == "one row":
        x, y, places = x[:1], y[:1], places[:1]
    elif batch == "one class":
        y = torch.full_like(y, 3)
    elif batch == "huge":
        with torch.no_grad():
            model.head.weight.mul_(1e4 / model(x).abs().max())
    else:
        logits = model(x).detach()
        y = logits.argmax(1) if batch == "all right" else logits.argmin(1)
    loss, slopes = gradients(objective, model, prepared(objective, model, (x, y, places)))
    assert loss.isfinite() and all(s.isfinite().all() for s in slopes if s is not None)


@EACH
def test_bfloat16(name):
    objective, model, batch = ready(name)
    problem = prepared(objective, model, batch)
    with torch.autocast("cpu", torch.bfloat16):
        loss = objective(model, problem)
    loss.backward()
    exact = objective(model, problem)
    assert loss.isfinite() and loss.item() == pytest.approx(exact.item(), rel=0.1)


@EACH
def test_state_is_plain_and_goes_on(name):
    """What is saved is read with weights_only, and a copy goes on exactly alike."""
    objective, model, batch = ready(name)
    for _ in range(2):
        objective(model, prepared(objective, model, batch))
    if hasattr(objective, "epoch_end"):
        objective.epoch_end(model)
    file = io.BytesIO()
    torch.save(objective.state_dict(), file)
    file.seek(0)
    again, _, _ = ready(name, model)
    again.load_state_dict(torch.load(file, weights_only=True))
    one, two = (prepared(o, model, batch) for o in (objective, again))
    torch.testing.assert_close(objective(model, one), again(model, two), rtol=0, atol=0)
    if hasattr(objective, "report"):
        assert objective.report() == again.report()
        assert all(key.startswith("objective/") for key in objective.report())


class Cut(ProgressListener):
    def row(self, row):
        if row["step"] == 4:
            raise ValueError("cut")


@EACH
def test_a_run_cut_short_resumes_to_the_same_numbers(name, tmp_path):
    config = RunConfig(
        data="digits:train=96,val=40",
        model="mlp:width=8",
        objective=word(name),
        batch=32,
        optimizer="sgd:lr=0.1,momentum=0.9",
        steps=8,
        every=2,
        measure=(),
    )
    whole = train(config, tmp_path / "whole", Runtime("cpu"), data=DATA)
    with pytest.raises(ValueError, match="cut"):
        train(config, tmp_path / "cut", Runtime("cpu", checkpoint=0.0), Cut(), data=DATA)
    resumed = train(config, tmp_path / "cut", Runtime("cpu"), data=DATA)
    timeless = [
        [{k: v for k, v in row.items() if "seconds" not in k} for row in run.rows]
        for run in (whole, resumed)
    ]
    assert whole.status == resumed.status == "complete" and timeless[0] == timeless[1]


@EACH
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_and_a_graph_give_the_same(name, tmp_path):
    config = RunConfig(
        data="digits:train=96,val=40",
        model="mlp:width=8",
        objective=word(name),
        batch=32,
        optimizer="sgd:lr=0.1,momentum=0.9",
        steps=12,
        every=6,
        measure=(),
    )
    eager = train(config, tmp_path / "eager", Runtime("cuda"))
    graph = train(config, tmp_path / "graph", Runtime("cuda", graph=True))
    found, wanted = graph.rows[-1]["train/loss"], eager.rows[-1]["train/loss"]
    assert found == pytest.approx(wanted, rel=1e-4)


class BinaryNet(Net):
    """The same network with one output."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 1)


def binary_step(name, columns, labels, loss=None):
    """Return loss and gradients of one step, of one output or of its two columns."""
    torch.manual_seed(0)
    net = BinaryNet()
    model = TwoColumns(net) if columns else net
    objective = parse("objective", word(name)).build(loss=loss, seed=1, training_steps=100)
    x, y = DATA.train.x[:32], labels[:32]
    if hasattr(objective, "setup"):
        objective.setup(model, ((x, y), (DATA.train.x[32:64], labels[32:64])))
    problem = prepared(objective, model, (x, y, torch.arange(32)))
    value = objective(model, problem)
    slopes = torch.autograd.grad(value, list(net.parameters()))
    if hasattr(objective, "epoch_end"):
        objective.epoch_end(model)
    return value, slopes, objective


@EACH
@pytest.mark.parametrize("form", ["booleans", "a column of floats"])
def test_one_logit_per_example_is_two_columns(name, form):
    truth = DATA.train.y < 5
    given = truth if form == "booleans" else truth.float()[:, None]
    if name == "balcal":
        with pytest.raises(ValueError, match="one logit per example"):
            binary_step(name, False, given)
        return

    losses = [None] if name in ("adafocal", "ar_adals") else [None, nn.BCEWithLogitsLoss()]
    bilevel = name in ("gamma_net", "meta_smoothing")  # they need the head itself, not a wrapper
    for loss in losses[: 1 if bilevel else 2]:
        value, slopes, objective = binary_step(name, False, given, loss)
        assert value.isfinite()
        if bilevel:
            continue
        expected, expected_slopes, other = binary_step(name, True, truth.long())
        torch.testing.assert_close(value, expected)
        for slope, theirs in zip(slopes, expected_slopes, strict=True):
            torch.testing.assert_close(slope, theirs, rtol=1e-4, atol=1e-5)
        if hasattr(objective, "report"):
            assert objective.report() == pytest.approx(other.report(), rel=1e-4)
