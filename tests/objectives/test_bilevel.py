"""gamma-net and learned smoothing: the meta-gradient, its limits, the split, state."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from toosure.config import RunConfig
from toosure.data import digits
from toosure.eval_mode import evaluating
from toosure.losses import DECELoss, FocalLoss, SECELoss
from toosure.losses.loss import top_label_rows
from toosure.metrics.bandwidth import batch_bandwidth
from toosure.models import mlp
from toosure.objectives import GammaNet, MetaSmoothing
from toosure.objectives.gamma_net import SampleGamma
from toosure.objectives.network import (
    features_and_logits,
    head_of,
    output_of,
    statistics_still,
)
from toosure.objectives.virtual_step import virtual_step
from toosure.processes.wrappers import unwrapped
from toosure.train import Runtime, train
from toosure.train.steps import Step

CE = nn.CrossEntropyLoss()
# The paper's SECE with all its gradients, on a whole new meta batch, at the run's rate.
PLAIN = {"bandwidth": 0.1, "form": "points", "leave_one_out": False, "detach": False}
PLAIN |= {"fresh": None, "meta_batch": 128, "virtual_lr": None}


def plain(**options):
    return GammaNet(**{**PLAIN, "width": 4, **options})


class Constant(nn.Module):
    """A gamma-net that says the same of every example."""

    def __init__(self, gamma):
        super().__init__()
        self.gamma = nn.Parameter(torch.tensor(gamma))

    def forward(self, features):
        return self.gamma.expand(len(features)).to(features.dtype)


def ready(objective, model=None, double=False):
    """An objective after setup, its model, a batch and a meta batch."""
    torch.manual_seed(0)
    data = digits(train=80, val=20)
    model = mlp((1, 8, 8), width=6) if model is None else model
    train_split = objective.setup(model, data).train
    if double:
        model.double()
        objective.double()
        train_split = train_split.__class__(
            train_split.x.double(), train_split.y, train_split.clean, train_split.indices
        )
    batch = train_split.x[:16], train_split.y[:16], torch.arange(16)
    return model, batch


# The meta-gradient


def test_the_scalar_example():
    """p = sigmoid(w), w = .5, gamma = 2, a step of .1, outer -log(1 - sigmoid(w'))."""

    def outer(gamma):
        w = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
        p = w.sigmoid()
        (fast,) = virtual_step(-((1 - p) ** gamma) * p.log(), [w], 0.1)
        return fast, -(1 - fast.sigmoid()).log()

    gamma = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    fast, value = outer(gamma)
    assert fast.item() == pytest.approx(0.5137937, abs=1e-7)
    assert value.item() == pytest.approx(0.98268533, abs=1e-7)
    (slope,) = torch.autograd.grad(value, gamma)
    assert slope.item() == pytest.approx(-0.00577514, abs=1e-8)
    h = 1e-5
    numeric = (outer(gamma + h)[1] - outer(gamma - h)[1]).item() / (2 * h)
    assert slope.item() == pytest.approx(numeric, abs=1e-10)


class Normed(nn.Module):
    """A network whose features differ between training and evaluation."""

    def __init__(self):
        super().__init__()
        self.hidden, self.norm, self.head = nn.Linear(64, 6), nn.BatchNorm1d(6), nn.Linear(6, 10)
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2)

    def features(self, x):
        return self.norm(self.hidden(x.flatten(1))).tanh()

    def forward(self, x):
        return self.head(self.features(x))


def slow_outer(objective, model, batch, meta, values, rate, scope):
    """Logits of the meta batch after a virtual step, on a real copy of the network."""
    x, y, _ = batch
    copied = copy.deepcopy(model)
    objective.assign(values)
    params = list(copied.parameters() if scope == "full" else copied.head.parameters())
    slopes = torch.autograd.grad(objective.criterion(copied(x), y), params)
    with torch.no_grad():
        for p, slope in zip(params, slopes, strict=True):
            p -= rate * slope
    for mine, kept in zip(copied.buffers(), model.buffers(), strict=True):
        mine.copy_(kept)  # the batch moved the running statistics
    copied.eval()
    with torch.no_grad():
        return copied(meta[0])


def held_still(objective, logits, labels):
    """The outer loss as a function of logits, with what has no gradient as `logits` set it.

    That is an automatic bandwidth, and for `detach` the kernel weights.
    """
    if not isinstance(objective, GammaNet):
        return lambda moved: objective.outer(moved, labels).item()

    error = objective.outer.terms[0].whole
    confidence, correct = top_label_rows(logits, labels)
    bandwidth = error.bandwidth
    if bandwidth == "auto":
        bandwidth = float(batch_bandwidth(confidence))

    still = copy.deepcopy(objective.outer)
    still.terms[0].whole.bandwidth = bandwidth
    if not error.detach:
        return lambda moved: still(moved, labels).item()

    weights = torch.exp(-(((confidence[:, None] - confidence) / bandwidth) ** 2) / 2)
    if error.leave_one_out:
        weights.fill_diagonal_(0)
    weights /= weights.sum(1, keepdim=True)

    def outer(moved):
        c, _ = top_label_rows(moved, labels)
        if error.form == "gap":
            return (weights @ (correct.double() - c)).abs().mean().item()
        return (weights @ correct.double() - c).abs().mean().item()

    return outer


def read_by_outer_loss(model, inputs, scope):
    """Features in evaluation mode for a step of the head, the inputs for one of everything."""
    if scope == "full":
        return inputs
    with evaluating(model), torch.no_grad():
        return features_and_logits(model, inputs)[0]


@pytest.mark.parametrize("scope", ["head", "full"])
@pytest.mark.parametrize(
    ("make", "network"),
    [
        (plain, lambda: None),
        (plain, Normed),
        (lambda **k: plain(ce=1.0, sece=0.5, most=None, **k), lambda: None),
        (lambda **k: plain(least=0.5, tau=2.0, **k), lambda: None),
        (lambda **k: plain(leave_one_out=True, **k), lambda: None),
        (lambda **k: plain(soft_accuracy=True, **k), lambda: None),
        (lambda **k: plain(form="grid", **k), lambda: None),
        (lambda **k: plain(form="gap", **k), lambda: None),
        (lambda **k: plain(form="unbiased", **k), lambda: None),
        (lambda **k: plain(bandwidth="auto", **k), lambda: None),
        (lambda **k: plain(detach=True, **k), lambda: None),
        (lambda **k: GammaNet(width=4, **k), Normed),
        (lambda **k: MetaSmoothing(per_class=True, **k), lambda: None),
    ],
    ids=[
        *("sece", "batch norm", "sece and ce, unbounded", "bounds and tau", "leave one out"),
        *("soft accuracy", "grid", "gap", "unbiased", "auto", "detached", "defaults", "smoothing"),
    ],
)
def test_the_meta_gradient_is_a_finite_difference(make, network, scope):
    torch.manual_seed(3)
    objective = make(scope=scope, meta=20)
    model, batch = ready(objective, network(), double=True)
    meta = objective.meta.x.double(), objective.meta.y
    x, y, _ = batch
    rate = 2.0
    read = read_by_outer_loss(model, meta[0], scope), meta[1]
    with statistics_still(model), torch.enable_grad():
        features, logits = features_and_logits(model, x)
    with torch.enable_grad():
        outer = objective.outer_loss(model, x, y, features, logits, read, rate)
    own = list(objective.hyper.parameters())
    slopes = torch.autograd.grad(outer, own)
    generator = torch.Generator().manual_seed(1)
    ways = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in own]
    found = sum((s * way).sum() for s, way in zip(slopes, ways, strict=True)).item()
    with torch.no_grad():
        gammas = objective.values(model, features.detach(), x, y)
    start = slow_outer(objective, model, batch, meta, gammas, rate, scope)
    outer_of = held_still(objective, start, meta[1])
    assert outer.item() == pytest.approx(outer_of(start), rel=1e-9)

    values, h = [], 1e-5
    for sign in (1, -2):
        with torch.no_grad():
            for p, way in zip(own, ways, strict=True):
                p += sign * h * way
            gammas = objective.values(model, features.detach(), x, y)
        logits = slow_outer(objective, model, batch, meta, gammas, rate, scope)
        values.append(outer_of(logits))
    numeric = (values[0] - values[1]) / (2 * h)
    assert abs(numeric) > 1e-6
    assert found == pytest.approx(numeric, rel=1e-5)


@pytest.mark.parametrize("scope", ["head", "full"])
def test_a_step_of_no_length_has_no_meta_gradient(scope):
    objective = GammaNet(scope=scope, meta=20, virtual_lr=None)
    model, batch = ready(objective)
    before = [p.clone() for p in objective.hyper.parameters()]
    objective.prepare(model, batch, lr=0.0)
    assert objective.slope == 0
    for p, old in zip(objective.hyper.parameters(), before, strict=True):
        assert torch.equal(p, old)
    objective.prepare(model, batch, lr=1.0)
    assert objective.slope > 0


@pytest.mark.parametrize("kind", [GammaNet, MetaSmoothing])
def test_the_step_is_taken_with_the_new_values(kind):
    objective = kind(meta=20, lr=0.1)
    model, batch = ready(objective)
    x, y, _ = batch
    features = features_and_logits(model, x)[0].detach()
    before = objective.values(model, features, x, y).clone()
    _, _, values = objective.prepare(model, batch, lr=1.0)
    assert torch.equal(values, objective.values(model, features, x, y))
    assert (values - before).abs().max() > 1e-3
    loss = objective.criterion
    objective.assign(values)
    torch.testing.assert_close(objective(model, (x, y, values)), loss(model(x), y))


def test_the_inner_loss_never_teaches_the_gamma_net():
    objective = GammaNet(meta=20)
    model, batch = ready(objective)
    prepared = objective.prepare(model, batch, lr=0.1)
    for p in objective.hyper.parameters():
        p.grad = None
    objective(model, prepared).backward()
    assert all(p.grad is None for p in objective.hyper.parameters())
    assert all(p.grad is not None for p in model.parameters())
    assert list(objective.parameters()) == []


@pytest.mark.parametrize(("gamma", "loss"), [(0.0, CE), (3.0, FocalLoss(3.0))])
def test_a_constant_gamma_is_plain_training(gamma, loss):
    """Over many steps 0 is cross-entropy, bit for bit, and 3 is FL-3, up to rounding."""
    torch.manual_seed(5)
    one, two = mlp((1, 8, 8), width=6), mlp((1, 8, 8), width=6)
    two.load_state_dict(one.state_dict())
    objective = GammaNet(meta=20)
    one, batch = ready(objective, one)
    objective.hyper = Constant(gamma)
    objective.optimizer = torch.optim.Adam(objective.hyper.parameters(), lr=0.0)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.5, momentum=0.9) for m in (one, two)]
    for _ in range(10):
        for optimizer, value in (
            (optimizers[0], lambda: objective(one, objective.prepare(one, batch, lr=0.5))),
            (optimizers[1], lambda: loss(two(batch[0]), batch[1])),
        ):
            optimizer.zero_grad()
            value().backward()
            optimizer.step()
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        if gamma == 0:
            assert torch.equal(a, b)
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_gamma_net_lowers_its_outer_loss():
    """On one batch, more and more meta-steps bring SECE after the virtual step down."""
    objective = plain(meta=20, meta_batch=200, lr=0.01, virtual_lr=5.0, ce=1.0)
    model, batch = ready(objective)
    meta = read_by_outer_loss(model, objective.meta.x, "head"), objective.meta.y

    def outer():
        features, logits = features_and_logits(model, batch[0])
        pair = (features.detach(), logits)
        return objective.outer_loss(model, *batch[:2], *pair, meta, 5.0).item()

    before = outer()
    for _ in range(30):
        objective.prepare(model, batch, lr=0.1)
    assert outer() < before


# gamma-net itself


@pytest.mark.parametrize(("most", "tau"), [(5.0, 1.0), (5.0, 10.0), (None, 2.0)])
def test_gammas_start_where_told_and_stay_in_range(most, tau):
    net = SampleGamma(8, 16, 3.0, (0.0, most), tau, torch.Generator().manual_seed(0))
    torch.testing.assert_close(net(torch.zeros(4, 8)), torch.full((4,), 3.0))
    with torch.no_grad():
        net.last.weight.mul_(1e4)
    gammas = net(torch.randn(100, 8))
    assert gammas.min() >= 0 and (most is None or gammas.max() <= most)


def test_tau_narrows_the_gammas():
    features = torch.randn(200, 8)
    spreads = []
    for tau in (0.5, 1.0, 4.0):
        net = SampleGamma(8, 16, 1.0, (0.0, 5.0), tau, torch.Generator().manual_seed(0))
        spreads.append(net(features).std().item())
    assert spreads[0] > spreads[1] > spreads[2]


@pytest.mark.parametrize("feed", ["penultimate", "noise", "random", "hidden.1"])
def test_what_the_gamma_net_reads(feed):
    objective = GammaNet(feed=feed, meta=20, width=4, virtual_lr=None)
    model, batch = ready(objective)
    _, _, one = objective.prepare(model, batch, lr=0.0)
    _, _, two = objective.prepare(model, batch, lr=0.0)
    assert one.shape == (16,) and one.std() > 0
    assert torch.equal(one, two) == (feed != "noise")


def test_a_layer_that_is_not_there():
    with pytest.raises(ValueError, match="no layer 'conv9'; it has hidden, head"):
        ready(GammaNet(feed="conv9", meta=20))


def test_the_row_tells_of_the_gammas_and_of_their_collapse():
    objective = GammaNet(meta=20)
    model, batch = ready(objective)
    objective.prepare(model, batch, lr=0.1)
    row = objective.report()
    assert 0 < row["objective/gamma_min"] <= row["objective/gamma_mean"]
    assert row["objective/gamma_collapsed"] == 0 and row["objective/meta_gradient"] > 0
    objective.store_summary(torch.full((16,), 4.999))
    with pytest.warns(UserWarning, match="gamma-net has collapsed: 100%"):
        assert objective.report()["objective/gamma_collapsed"] == 1
    assert objective.report()["objective/gamma_at_bound"] == 1  # and it warns once


def test_every_so_many_steps():
    objective = GammaNet(meta=20, every=3)
    model, batch = ready(objective)
    moves = []
    for _ in range(7):
        before = objective.hyper.last.weight.clone()
        objective.prepare(model, batch, lr=1.0)
        moves.append(not torch.equal(before, objective.hyper.last.weight))
    assert moves == [True, False, False, True, False, False, True]


# Learned smoothing


def test_smoothing_stays_in_its_range_and_starts_where_told():
    objective = MetaSmoothing(start=0.0, lr=1.0, meta=20)
    model, batch = ready(objective)
    assert torch.equal(objective.prepare(model, batch, lr=0.0)[2], torch.zeros(16))
    for _ in range(3):
        objective.prepare(model, batch, lr=1.0)
        assert 0 <= objective.shares.item() <= 0.5
    assert objective.report()["objective/smoothing"] == objective.shares.item()


def test_no_smoothing_is_cross_entropy():
    objective = MetaSmoothing(start=0.0, meta=20)
    model, batch = ready(objective)
    loss = objective(model, objective.prepare(model, batch, lr=0.0))
    torch.testing.assert_close(loss, CE(model(batch[0]), batch[1]))


def test_outer_losses_are_those_said(fixture_f):
    found = MetaSmoothing().outer(*fixture_f).item()
    assert found == pytest.approx(0.68762214 + 0.5 * 0.32921968, abs=1e-6)
    found = plain(bandwidth=0.01, ce=1.0, sece=0.5).outer(*fixture_f).item()
    assert found == pytest.approx(0.68762214 + 0.5 * 0.32925889, abs=1e-6)
    found = plain(bandwidth=0.01).outer(*fixture_f).item()
    assert found == pytest.approx(0.32925889, abs=1e-6)
    ours = SECELoss(bandwidth="auto", form="gap", leave_one_out=True, detach=True)
    assert GammaNet().outer(*fixture_f).item() == pytest.approx(ours.penalty(*fixture_f).item())
    assert isinstance(DECELoss().base, nn.CrossEntropyLoss) and SECELoss().bandwidth == 0.01


# The split, state, networks


@pytest.mark.parametrize(("meta", "size"), [(0.1, 10), (25, 25)])
def test_the_meta_split_is_cut_from_the_training_split(meta, size):
    data, objective = digits(train=100, val=30), GammaNet(meta=meta)
    rest = objective.setup(mlp((1, 8, 8), width=4), data)
    assert len(objective.meta) == size and len(rest.train) == 100 - size and rest.val is data.val
    both = torch.cat([objective.meta.indices, rest.train.indices]).sort().values
    assert torch.equal(both, data.train.indices.sort().values)
    with pytest.raises(ValueError, match="cannot be cut from 100"):
        GammaNet(meta=100).setup(mlp((1, 8, 8), width=4), data)


@pytest.mark.parametrize("word", ["gamma_net:width=8", "meta_smoothing:per_class=yes"])
def test_a_run_reports_and_trains_on_the_rest(word, tmp_path):
    config = RunConfig(
        data="digits:train=100,val=30",
        model="mlp:width=8",
        objective=word,
        steps=6,
        every=3,
        batch=32,
    )
    run = train(config, tmp_path, Runtime("cpu"))
    assert run.status == "complete" and run.rows[-1]["objective/meta_gradient"] > 0


def test_features_of_any_network():
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    x = torch.randn(5, 4)
    features, logits = features_and_logits(model, x)
    torch.testing.assert_close(features, model[:2](x))
    torch.testing.assert_close(logits, model(x))
    assert head_of(model) is model[2]
    torch.testing.assert_close(output_of(model, "0", x), model[0](x))
    images = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3))
    assert output_of(images, "0", torch.zeros(5, 1, 4, 4)).shape == (5, 2)
    tokens = nn.Sequential(nn.Unflatten(1, (2, 2)), nn.Linear(2, 5), nn.Flatten(), nn.Linear(10, 3))
    torch.testing.assert_close(output_of(tokens, "1", x), tokens[:2](x).mean(1))  # (N, C)
    with pytest.raises(ValueError, match="no linear layer"):
        head_of(nn.Conv2d(1, 2, 3))


def test_batch_norm_sees_the_batch_and_keeps_its_statistics():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.BatchNorm1d(6), nn.Linear(6, 10))
    objective = GammaNet(meta=20)
    model, batch = ready(objective, model.train())
    before = {k: v.clone() for k, v in model.state_dict().items()}
    objective.prepare(model, batch, lr=0.1)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert model[2].training and model[2].track_running_stats


def test_setup_is_asked_for():
    with pytest.raises(ValueError, match="call setup"):
        GammaNet().prepare(None, (torch.zeros(1), torch.zeros(1), None), lr=0.1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: GammaNet(start=6.0), "0 <= least < start < most"),
        (lambda: GammaNet(tau=0.0), "tau > 0"),
        (lambda: GammaNet(scope="half"), "scope must be one of"),
        (lambda: GammaNet(meta=-1), "meta > 0"),
        (lambda: GammaNet(sece=0.0), "one of them above 0"),
        (lambda: GammaNet(sece=-1.0, ce=2.0), "not negative"),
        (lambda: GammaNet(width=0), "width >= 1"),
        (lambda: GammaNet(least=1.0), "least 1.0, start 1.0"),
        (lambda: GammaNet(fresh=0), "fresh must be at least 1, or none; got 0"),
        (lambda: GammaNet(bandwidth="wide"), "positive number or \"auto\"; got 'wide'"),
        (lambda: GammaNet(bandwidth=0.0), "bandwidth must be positive"),
        (lambda: GammaNet(form="line"), "form must be one of"),
        (lambda: MetaSmoothing(start=0.6), "start <= most"),
    ],
)
def test_mistakes_say_what_to_do(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_log_of_nothing_is_never_taken():
    """Rows of certain, right predictions leave the meta-gradient finite."""
    objective = GammaNet(meta=20)
    model, batch = ready(objective)
    with torch.no_grad():
        model.head.weight.mul_(1e6)
    objective.prepare(model, batch, lr=0.1)
    assert math.isfinite(objective.slope.item())
    value = objective(model, objective.prepare(model, batch, lr=0.1))
    assert value.isfinite() and F.softplus(value) > 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # torch's own, while compiling
def test_wrapped_networks_are_looked_into():
    class Holding(nn.Module):
        def __init__(self):
            super().__init__()
            self.module, self.last = nn.Linear(4, 6), nn.Linear(6, 3)

        def forward(self, x):
            return self.last(self.module(x))

    model = Holding()
    assert unwrapped(model) is model  # an attribute's name is not a wrapper
    assert unwrapped(nn.DataParallel(model)) is model
    assert unwrapped(torch.compile(model)) is model
    features, _ = features_and_logits(torch.compile(model), torch.zeros(2, 4))
    assert features.shape == (2, 6)


def test_a_state_from_a_gpu_goes_on_here():
    """There Adam's counter lies on the device and says so; a CPU has neither."""
    objective = GammaNet(meta=20)
    model, batch = ready(objective)
    objective.prepare(model, batch, lr=0.1)
    state = copy.deepcopy(objective.get_extra_state())
    for group in state["optimizer"]["param_groups"]:
        group["capturable"] = True
    objective.set_extra_state(state)
    before = [p.clone() for p in objective.hyper.parameters()]
    objective.prepare(model, batch, lr=0.1)
    assert any(
        not torch.equal(p, b) for p, b in zip(objective.hyper.parameters(), before, strict=True)
    )


# One pass for the meta-step and the loss


@pytest.mark.parametrize("make", [GammaNet, MetaSmoothing])
def test_one_pass_is_the_same_step(make):
    """The loss, its gradient and the running statistics are those of a pass of its own."""
    found = []
    for one_pass in (False, True):
        torch.manual_seed(0)
        objective = make(meta=20)
        model, batch = ready(objective, Normed())
        objective.one_pass = one_pass
        calls = []
        model.hidden.register_forward_hook(lambda *_, calls=calls: calls.append(1))

        loss = objective(model, objective.prepare(model, batch, lr=0.1))
        loss.backward()
        found.append([loss, *(p.grad for p in model.parameters()), *model.buffers()])
        assert len(calls) == (2 if one_pass else 3)  # one is that of the meta examples

    for apart, together in zip(*found, strict=True):
        assert torch.equal(apart, together)


def test_the_pass_serves_one_loss_at_its_own_weights():
    objective = GammaNet(meta=20)
    model, batch = ready(objective)
    objective.one_pass = True
    prepared = objective.prepare(model, batch, lr=0.1)
    first = objective(model, prepared)
    with torch.no_grad():
        model.head.weight.mul_(2)
    assert not torch.equal(objective(model, prepared), first)  # as SAM asks

    prepared = objective.prepare(model, batch, lr=0.1)
    with torch.no_grad():
        model.head.weight.mul_(2)
    objective.assign(prepared[2])
    expected = objective.criterion(model(batch[0]), batch[1])
    assert torch.equal(objective(model, prepared), expected)


@pytest.mark.parametrize(("word", "shared"), [("sgd", True), ("muon", True), ("sam", False)])
def test_a_run_shares_the_pass_where_the_optimizer_asks_once(word, shared, tmp_path, monkeypatch):
    seen = []
    settle = GammaNet.settle
    monkeypatch.setattr(GammaNet, "settle", lambda *a: seen.append(settle(*a)) or seen[-1])
    config = RunConfig(
        data="digits:train=100,val=30",
        model="mlp:width=8",
        optimizer=word,
        objective="gamma_net:width=8",
        steps=2,
        every=2,
        batch=32,
    )
    train(config, tmp_path, Runtime("cpu"))
    assert {len(prepared) == 4 for prepared in seen} == {shared}


def test_what_the_head_reads_is_seen_in_the_forward_pass():
    """`features` and `head` need not be all of a network, and its hooks run."""

    class More(Normed):
        def forward(self, x):
            return self.head(self.features(x).relu())

    model, x = More().eval(), torch.randn(5, 64)
    features, logits = features_and_logits(model, x)
    assert torch.equal(logits, model(x))
    assert torch.equal(features, model.features(x).relu())

    model.register_forward_hook(lambda module, inputs, output: 2 * output)
    assert torch.equal(features_and_logits(model, x)[1], 2 * logits)


def test_a_head_that_is_not_called_leaves_the_features():
    class Unread(Normed):
        def forward(self, x):
            return F.linear(self.features(x), self.head.weight)

    model, x = Unread(), torch.randn(5, 64)
    before = model.norm.running_mean.clone()
    features, logits = features_and_logits(model, x)
    assert torch.equal(logits, features @ model.head.weight.T)
    moved = model.norm.running_mean.clone()
    model.norm.running_mean.copy_(before)
    model(x)
    assert torch.equal(moved, model.norm.running_mean)  # once


def test_one_pass_trains_every_layer_in_half_precision():
    """The meta examples pass without a gradient in the same autocast, whose casts are not kept."""
    objective = GammaNet(meta=20)
    model, batch = ready(objective, Normed())
    step = Step(model, objective, torch.optim.SGD(model.parameters(), lr=0.1), precision="bf16")
    step(batch, 0.1)
    assert objective.one_pass
    assert all(p.grad is not None for p in model.parameters())


class Elsewhere(torch.optim.SGD):
    """An optimizer of someone else's, which may move the weights through `.data` first."""


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # torch's own, while compiling
def test_compiled_networks_and_optimizers_of_others_keep_a_pass_of_their_own():
    objective = GammaNet(meta=20)
    model, _ = ready(objective)
    Step(model, objective, Elsewhere(model.parameters(), lr=0.1))
    assert not objective.one_pass
    Step(torch.compile(model), objective, torch.optim.SGD(model.parameters(), lr=0.1))
    assert not objective.one_pass
    Step(model, objective, torch.optim.SGD(model.parameters(), lr=0.1))
    assert objective.one_pass


def test_a_checkpoint_of_other_rates_says_so():
    one_rate, several = GammaNet(meta=20, level_lr=None), GammaNet(meta=20)
    for objective in (one_rate, several):
        model, batch = ready(objective)
        objective.prepare(model, batch, lr=0.1)
    with pytest.raises(ValueError, match="it was made with other options"):
        several.set_extra_state(one_rate.get_extra_state())
