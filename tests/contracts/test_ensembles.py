"""What every ensemble in the table must do; a new one is tested the moment it is listed."""

import io

import pytest
import torch
from torch import nn

from toosure.binary import two_columns
from toosure.config import RunConfig
from toosure.data import digits
from toosure.ensembles import ENSEMBLES, log_mean_probability
from toosure.objectives import preparing
from toosure.train import ProgressListener, Runtime, train
from toosure.train.build import build_optimizer
from toosure.train.steps import Step
from toosure.words import find, parse
from toosure.words.tables import TABLES

EACH = pytest.mark.parametrize("name", ENSEMBLES)
QUICK = {
    "mc_dropout": "samples=2,rate=0.2",
    "deep_ensemble": "members=2",
    "mimo": "members=2",
    "vi": "samples=2",
}
RANDOM = {"mc_dropout", "vi", "rank1"}
DATA = digits(train=96, val=40, test=30)


def word(name):
    return f"{name}:{QUICK[name]}" if name in QUICK else name


class Net(nn.Module):
    """A small network with BatchNorm and dropout, and a layer inside a block."""

    def __init__(self):
        super().__init__()
        self.flat = nn.Flatten()
        self.block = nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.0))
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        return self.head(self.block(self.flat(x)))


class ToTwoColumns(nn.Module):
    def forward(self, x):
        return two_columns(x) if x.shape[1] == 1 else x  # of MIMO's members


def sequential():
    """The same as a chain, which calls whatever is attached to it."""
    net = Net()
    return nn.Sequential(net.flat, net.block, net.head)


def ready(name, reduction="mean", seed=1, network=Net):
    """An ensemble as the loop makes it, its network and a batch."""
    torch.manual_seed(0)
    model = network()
    loss = nn.CrossEntropyLoss(reduction=reduction)
    objective = parse("objective", word(name)).build(
        loss=loss, reduction=reduction, seed=seed, training_steps=100
    )
    objective.setup(model, DATA)
    return objective, model, (DATA.train.x[:32], DATA.train.y[:32], torch.arange(32))


def prepared(objective, model, batch):
    return preparing(objective)(model, batch, 0.1)


def gradients(objective, model, problem):
    loss = objective(model, problem)
    return loss, torch.autograd.grad(loss, list(model.parameters()))


def test_the_table_and_the_words_agree():
    places = {name: f"toosure.ensembles:{kind.__name__}" for name, kind in ENSEMBLES.items()}
    assert places.items() <= TABLES["objective"].items()


@EACH
def test_a_word_builds_it(name):
    method = find("objective", name)
    assert method.reference and method.summary
    assert not {"seed", "loss", "training_steps"} & method.settings.keys()


@EACH
@pytest.mark.parametrize("network", [Net, sequential])
def test_it_predicts_the_log_of_a_mean_of_probabilities(name, network):
    objective, model, batch = ready(name, network=network)
    x = batch[0]
    assert objective(model, prepared(objective, model, batch)).isfinite()
    model.eval()
    members = objective.member_logits(model, x)
    assert members.ndim == 3 and members.shape[1:] == (32, 10)
    predicted = objective.predict(model, x)
    torch.testing.assert_close(predicted, log_mean_probability(members))
    torch.testing.assert_close(predicted.exp(), members.softmax(-1).mean(0))
    odd = objective.predict(model, x[:7])  # no matter how many rows come
    assert odd.shape == (7, 10)


@EACH
@pytest.mark.parametrize("column", [True, False], ids=["(N, 1)", "(N,)"])
def test_one_logit_per_example_is_two_classes(name, column):
    if name == "mimo" and not column:
        pytest.skip("its members need a dimension for their outputs")
    x, y = DATA.train.x[:16], DATA.train.y[:16] % 2
    found = []
    for labels, loss, end in (
        (y[:, None].float(), nn.BCEWithLogitsLoss(), nn.Identity() if column else nn.Flatten(0)),
        (y, nn.CrossEntropyLoss(), ToTwoColumns()),
    ):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Dropout(0.2), nn.Linear(8, 1), end)
        objective = parse("objective", word(name)).build(loss=loss, seed=1, training_steps=9)
        objective.setup(model, ((x, labels), (x, labels)))
        objective.eval()
        value = objective(model, prepared(objective, model, (x, labels, torch.arange(16))))
        found.append((value, objective.predict(model.eval(), x), objective.report()))
    (one, log_p, numbers), (two, wanted, same) = found
    assert log_p.shape == (16, 2) and numbers == pytest.approx(same, abs=1e-5)
    torch.testing.assert_close(log_p, wanted)
    torch.testing.assert_close(one, two)


@EACH
def test_the_same_problem_twice(name):
    """As SAM asks: the noise is drawn by `prepare`, so both passes see the same."""
    objective, model, batch = ready(name)
    problem = prepared(objective, model, batch)
    one, first = gradients(objective, model, problem)
    two, second = gradients(objective, model, problem)
    assert one.shape == () and one.isfinite() and torch.equal(one, two)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@EACH
def test_preparing_leaves_the_network_and_the_generators_alone(name):
    objective, model, batch = ready(name)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    state = torch.get_rng_state()
    first = prepared(objective, model, batch)
    kept = [t.clone() for t in first]
    prepared(objective, model, batch)
    model.eval()
    objective.predict(model, batch[0])
    objective.report()
    assert all(torch.equal(a, b) for a, b in zip(first, kept, strict=True))
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


@EACH
def test_a_sum_is_as_many_means(name):
    found = []
    for reduction in ("mean", "sum"):
        objective, model, batch = ready(name, reduction)
        found.append(objective(model, prepared(objective, model, batch)))
    torch.testing.assert_close(found[1], 32 * found[0])


@EACH
def test_predictions_repeat_at_a_step_and_differ_between_steps_where_they_are_random(name):
    objective, model, batch = ready(name)
    again, _, _ = ready(name)
    other, _, _ = ready(name, seed=2)
    model.eval()
    x = batch[0]
    assert torch.equal(objective.predict(model, x), objective.predict(model, x))
    for each in (objective, again):
        prepared(each, model, batch)
    one = objective.predict(model, x)
    assert torch.equal(one, again.predict(model, x))
    objective.taken += 1
    assert torch.equal(one, objective.predict(model, x)) == (name not in RANDOM)
    if name in RANDOM:
        assert not torch.equal(one, other.predict(model, x))
        assert torch.equal(objective.mean_predict(model, x), objective.mean_predict(model, x))


@EACH
def test_reports_are_of_members_on_validation_data(name):
    objective, model, _ = ready(name)
    numbers = objective.report()
    wanted = ("disagreement", "member_kl", "member_accuracy", "member_nll", "member_ece")
    assert {f"objective/{key}" for key in wanted} <= numbers.keys()
    model.eval()
    mixture = objective.predict(model, DATA.val.x)
    nll = nn.functional.nll_loss(mixture, DATA.val.y).item()
    assert nll <= numbers["objective/member_nll"] + 1e-6  # Jensen


@EACH
def test_state_is_plain_and_goes_on(name):
    objective, model, batch = ready(name)
    prepared(objective, model, batch)
    file = io.BytesIO()
    torch.save(objective.state_dict(), file)
    file.seek(0)
    again, _, _ = ready(name)
    again.load_state_dict(torch.load(file, weights_only=True))
    one, two = (objective(model, prepared(o, model, batch)) for o in (objective, again))
    assert torch.equal(one, two)


@EACH
def test_a_network_is_converted_once_and_needed(name):
    objective, model, batch = ready(name)
    with pytest.raises(ValueError, match=r"is a .* already: build a new one"):
        objective.setup(model, DATA)
    with pytest.raises(ValueError, match=r"no members yet: call setup"):
        objective.prepare(Net(), batch)


@EACH
@pytest.mark.parametrize("optimizer", ["sgd:lr=0.1", "sam:lr=0.1,rho=0.05", "csam:lr=0.1"])
def test_steps_lower_it(name, optimizer):
    objective, model, batch = ready(name)
    config = RunConfig(objective=word(name), optimizer=optimizer)
    descent = build_optimizer(config, model, objective, objective.loss, DATA, None)
    step = Step(model, objective, descent)

    def mixture_loss():
        model.eval()
        loss = nn.functional.nll_loss(objective.predict(model, batch[0]), batch[1])
        model.train()
        return loss.item()

    before = mixture_loss()
    for _ in range(15):
        step(batch, 0.1)
    assert mixture_loss() < before


class Cut(ProgressListener):
    def row(self, row):
        if row["step"] == 4:
            raise ValueError("cut")


@EACH
def test_a_run_cut_short_resumes_to_the_same_numbers(name, tmp_path):
    config = RunConfig(
        data="digits:train=96,val=40",
        model="mlp:width=8,dropout=0.1",
        objective=word(name),
        batch=32,
        optimizer="sam:lr=0.1,momentum=0.9",
        steps=6,
        every=2,
        measure=("gn_sharpness",),
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
    assert whole.rows[-1]["train/gn_sharpness"] > 0


@EACH
def test_what_a_mixture_cannot_have_is_said(name, tmp_path):
    settings = {"data": "digits:train=96,val=40", "model": "mlp:width=8,dropout=0.1"}
    settings |= {"objective": word(name), "steps": 2, "batch": 32}
    with pytest.raises(ValueError, match=r"certificate: the margin theorems are about .* one net"):
        train(RunConfig(**settings, measure="certificate"), tmp_path, data=DATA)
    with pytest.raises(ValueError, match="bulksgd steps along"):
        train(RunConfig(**settings, optimizer="bulksgd:lr=0.1"), tmp_path, data=DATA)


@EACH
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_and_a_graph_give_the_same(name, tmp_path):
    config = RunConfig(
        data="digits:train=96,val=40",
        model="mlp:width=8,dropout=0.1",
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
