"""Ensembles in their limits: equal to plain networks, member by member, with counted layers."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from toosure.config import RunConfig
from toosure.data import digits
from toosure.ensembles import (
    MIMO,
    BatchEnsemble,
    DeepEnsemble,
    MCDropout,
    deep_ensemble,
    disagreement,
    log_mean_probability,
    mean_pairwise_kl,
    members_at_once,
)
from toosure.ensembles.batch_ensemble import MemberLayer, member_layers
from toosure.ensembles.deep_ensemble import members_of
from toosure.ensembles.members_at_once import fastest_way, timed_ways
from toosure.ensembles.noise import noisy_layers
from toosure.models import mlp, resnet20, resnet56, wrn, wrn28_10
from toosure.processes import Sharded
from toosure.train import train
from toosure.train.build import build_optimizer
from toosure.train.steps import Step

X = torch.randn(6, 3, 16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.tensor([0, 1, 2, 3, 4, 5])
PAIR = (X, Y)


def network(seed=0, **options):
    torch.manual_seed(seed)
    return resnet20((3, 16, 16), **options).double()


def count(model):
    return sum(p.numel() for p in model.parameters())


def close(a, b):
    """Assert that two tensors agree to 1e-12, in units of the largest value if that is above 1."""
    size = max(1.0, float(b.detach().abs().max()))
    torch.testing.assert_close(a, b, rtol=0, atol=1e-12 * size)


# -- the mixture ------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5), st.integers(2, 4), st.floats(0.1, 1e4))
def test_a_mixture_is_at_most_as_bad_as_its_members(members, classes, scale):
    logits = scale * torch.randn(members, 7, classes, dtype=torch.float64)
    labels = torch.arange(7) % classes
    mixture = log_mean_probability(logits)
    each = [nn.functional.cross_entropy(z, labels) for z in logits]
    assert nn.functional.nll_loss(mixture, labels) <= sum(each) / members + 1e-9
    close(mixture.logsumexp(-1), torch.zeros(7, dtype=torch.float64))


@pytest.mark.parametrize("shape", [(3, 7), (3, 7, 1)])
def test_one_logit_per_example_is_the_mean_of_sigmoids(shape):
    logits = torch.randn(shape, dtype=torch.float64)
    mixture = log_mean_probability(logits)
    close(mixture.exp()[:, 1], logits.reshape(3, 7).sigmoid().mean(0))


def test_members_are_compared_over_all_pairs():
    logits = torch.randn(4, 9, 3, dtype=torch.float64)
    votes = logits.argmax(-1)
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    differing = sum((votes[a] != votes[b]).double().mean() for a, b in pairs) / len(pairs)
    assert disagreement(logits) == pytest.approx(float(differing))
    p = [torch.distributions.Categorical(logits=z) for z in logits]
    kl = sum(torch.distributions.kl_divergence(p[a], p[b]).mean() for a, b in pairs) / len(pairs)
    assert mean_pairwise_kl(logits) == pytest.approx(float(kl))
    assert disagreement(logits[:1]) == mean_pairwise_kl(logits[:1]) == 0


# -- one member, or members that are alike, are the plain network -----------------------------


def test_batch_ensemble_with_factors_of_one_is_the_plain_network():
    plain, model = network(), network()
    objective = BatchEnsemble(members=3)
    objective.setup(model, PAIR)
    with torch.no_grad():
        for layer in member_layers(model):
            layer.read.fill_(1)
            layer.given.fill_(1)
    plain.eval(), model.eval()
    close(objective.member_logits(model, X), plain(X).expand(3, -1, -1))
    close(objective.predict(model, X), plain(X).log_softmax(1))


@pytest.mark.parametrize("member", [0, 2])
def test_a_member_of_batch_ensemble_is_a_plain_network_with_its_own_weights(member):
    plain, model = network(), network()
    objective = BatchEnsemble(members=3, init="sign" if member else "normal")
    objective.setup(model, PAIR)
    for name, layer in model.named_modules():
        if not isinstance(layer, MemberLayer):
            continue
        target = plain.get_submodule(name)
        r, s = layer.read[member], layer.given[member]
        outer = (
            s[:, None] * r if isinstance(target, nn.Linear) else (s[:, None] * r)[..., None, None]
        )
        target.weight.data = layer.layer.weight.data * outer.data
        if target.bias is not None:
            layer.bias.data[member] += 0.3
            target.bias.data = layer.bias.data[member]
    plain.eval(), model.eval()
    close(objective.member_logits(model, X)[member], plain(X))


def test_every_layer_is_converted_however_deep():
    """A peer sets dotted names on the root, and nested layers stay plain."""
    model = resnet20()
    plain = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    BatchEnsemble(members=2).setup(model, (torch.zeros(2, 3, 32, 32), torch.tensor([0, 1])))
    assert len(plain) == 20
    assert [layer.layer for layer in member_layers(model)] == plain  # and their weights are kept
    inside = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len(inside) == 20


def test_mc_dropout_without_dropping_is_eval_mode_and_statistics_stand_still():
    model = network(dropout=0.5)
    objective = MCDropout(samples=3)
    objective.setup(model, PAIR)
    assert len(noisy_layers(model)) == 9
    model.eval()
    before = model.bn1.running_mean.clone()
    random = objective.predict(model, X)
    close(objective.mean_predict(model, X), network(dropout=0.5).eval()(X))
    assert torch.equal(before, model.bn1.running_mean) and not model.bn1.training
    for layer in noisy_layers(model):
        layer.rate = 0.0
    close(objective.predict(model, X), network().eval()(X).log_softmax(1))
    assert not torch.allclose(random, objective.predict(model, X))


def test_mc_dropout_drops_what_it_says():
    model = network()
    objective = MCDropout(samples=2, rate=0.25, where="all", channels=True)
    objective.setup(model, PAIR)
    layers = noisy_layers(model)
    assert len(layers) == 19  # behind every convolution
    (mask,) = layers[0].draw(4000, torch.Generator().manual_seed(0))
    assert mask.shape == (4000, 16)
    assert abs(mask.double().mean() - 0.75) < 3 * math.sqrt(0.75 * 0.25 / mask.numel())
    whole = torch.ones(2, 16, 3, 3)
    layers[0].noise = (mask[:2],)
    assert set(layers[0](whole).unique().tolist()) == {0.0, float(torch.tensor(1) / 0.75)}


def test_mc_dropout_of_a_network_without_dropout_is_one_network():
    with pytest.raises(ValueError, match="without dropout is one network"):
        MCDropout().setup(network(), PAIR)
    with pytest.raises(ValueError, match="without dropout is one network"):
        MCDropout().setup(mlp(4, 3), (torch.zeros(2, 4), torch.tensor([0, 1])))

    # The advice is one that helps: a rate alone needs layers that take it.
    plain = nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    pair = (torch.zeros(2, 4), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"take mc_dropout:where=all,rate=0\.1"):
        MCDropout(rate=0.1).setup(plain, pair)
    MCDropout(where="all", rate=0.1).setup(plain, pair)


def test_mimo_of_one_is_the_plain_network():
    plain, model = network(), network()
    objective = MIMO(members=1, repeat=1)
    objective.setup(model, PAIR)
    plain.eval(), model.eval()
    close(objective.predict(model, X), plain(X).log_softmax(1))
    loss = objective(model, objective.prepare(model, (X, Y, Y)))
    close(loss, nn.functional.cross_entropy(plain(X), Y))


def test_mimo_rows_show_each_image_once_per_input_and_repetition():
    objective = MIMO(members=3, repeat=4)
    orders = objective.orders(5, torch.Generator().manual_seed(0))
    assert orders.shape == (3, 20)
    assert all(torch.equal(torch.bincount(order), torch.full((5,), 4)) for order in orders)
    assert not torch.equal(orders[0], orders[1])
    equal = MIMO(members=3, repeat=4, same=1.0).orders(5, torch.Generator().manual_seed(0))
    assert torch.equal(equal[0], equal[1]) and torch.equal(equal[1], equal[2])


def test_the_first_convolution_of_mimo_pads_as_before():
    conv = nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular")
    model = nn.Sequential(conv, nn.Flatten(), nn.Linear(32, 3))
    x = torch.randn(6, 1, 4, 4)
    MIMO(members=2).setup(model, (x, torch.arange(6) % 3))
    assert model[0].in_channels == 2 and model[0].padding_mode == "circular"


def test_mimo_with_equal_images_has_the_loss_of_its_predictions():
    """Whatever the order of rows, equal images at all inputs are what is shown to predict."""
    model = network()
    objective = MIMO(members=2, repeat=2, same=1.0)
    objective.setup(model, PAIR)
    model.eval()
    loss = objective(model, objective.prepare(model, (X, Y, Y)))
    members = objective.member_logits(model, X)
    close(loss, sum(nn.functional.cross_entropy(z, Y) for z in members))


@pytest.mark.parametrize(
    ("build", "objective", "parameters"),
    [
        (resnet20, BatchEnsemble(members=4), 275_308),
        (resnet20, MIMO(members=3), 271_886),
        (resnet20, DeepEnsemble(members=4), 1_078_888),
        (resnet20, MCDropout(rate=0.1), 269_722),
        (resnet56, BatchEnsemble(members=4), 869_356),
        (resnet56, MIMO(members=3), 855_182),
        pytest.param(wrn28_10, BatchEnsemble(members=4), 36_557_548, marks=pytest.mark.slow),
        pytest.param(wrn28_10, MIMO(members=3), 36_492_878, marks=pytest.mark.slow),
    ],
)
def test_parameter_counts(build, objective, parameters):
    model = build()
    objective.setup(model, (torch.zeros(2, 3, 32, 32), torch.tensor([0, 1])))
    assert count(model) == parameters


# -- a deep ensemble is that many runs --------------------------------------------------------


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize(
    ("optimizer", "clip"), [("sgd:lr=0.1,momentum=0.9", 0.05), ("sam:lr=0.1,rho=0.1", None)]
)
def test_members_are_the_runs_of_their_seeds(at_once, optimizer, clip, tmp_path):
    """Start, order of data, BatchNorm, SAM's norm and clipping are those of single runs."""
    common = {
        "data": "digits:train=64,val=20",
        "model": "wrn:depth=10,width=1",
        "optimizer": optimizer,
        "clip": clip,
        "precision": "float64",
        "steps": 5,
        "batch": 24,
        "every": 5,
        "measure": (),
    }
    data = digits(train=64, val=20, test=12)
    word = f"deep_ensemble:members=2,at_once={str(at_once).lower()}"
    together = train(RunConfig(**common, objective=word, seed=3), tmp_path, data=data)
    singles = [train(RunConfig(**common, seed=seed), tmp_path, data=data) for seed in (3, 4)]

    states = [last_weights(run) for run in (together, *singles)]
    assert len(states[0]) == len(states[1]) + len(states[2])
    for name, value in states[1].items():
        close(states[0][name].double(), value.double())
    for name, value in states[2].items():
        close(states[0][f"members.0.{name}"].double(), value.double())


def last_weights(run):
    file = max((run.path / "checkpoints").glob("*.pt"), key=lambda f: int(f.stem))
    return torch.load(file, weights_only=True)["model"]


def test_at_once_is_one_after_another():
    """Losses, gradients, running statistics, and what a checkpoint of either holds."""
    found = []
    for at_once in (False, True):
        model = network()
        objective = DeepEnsemble(members=3, own_order=False, at_once=at_once)
        objective.setup(model, PAIR)
        problem = objective.prepare(model, (X, Y, Y))
        loss = objective(model, problem)
        loss.backward()
        found.append((loss, [p.grad for p in model.parameters()], model.state_dict()))
    close(found[0][0], found[1][0])
    for one, two in zip(found[0][1], found[1][1], strict=True):
        close(one, two)
    assert found[0][2].keys() == found[1][2].keys()
    for name, value in found[0][2].items():
        close(value.double(), found[1][2][name].double())
    assert int(found[1][2]["members.1.bn1.num_batches_tracked"]) == 1


def test_a_stack_follows_weights_that_are_loaded():
    model = network()
    objective = DeepEnsemble(members=2, own_order=False, at_once=True)
    objective.setup(model, PAIR)
    other = network(5)
    other_objective = DeepEnsemble(members=2, own_order=False, at_once=False, seed=9)
    other_objective.setup(other, PAIR)
    model.load_state_dict(other.state_dict())
    problem = objective.prepare(model, (X, Y, Y))
    other_problem = other_objective.prepare(other, (X, Y, Y))
    close(objective(model, problem), other_objective(other, other_problem))


def test_members_start_apart_without_a_loop_and_one_is_plain():
    model = network()
    DeepEnsemble(members=2).setup(model, PAIR)
    one, two = members_of(model)
    assert not torch.equal(one.head.weight, two.head.weight)
    alone, plain = network(), network()
    objective = DeepEnsemble(members=1)
    objective.setup(alone, PAIR)
    close(
        objective(alone, objective.prepare(alone, (X, Y, Y))),
        nn.functional.cross_entropy(plain(X), Y),
    )


# -- groups, refusals -------------------------------------------------------------------------


def build(objective, model, optimizer):
    config = RunConfig(objective="batch_ensemble", optimizer=optimizer)
    return build_optimizer(config, model, objective, objective.loss, digits(train=20), None)


@pytest.mark.parametrize(
    "optimizer", ["sgd:lr=0.2,weight_decay=0.01", "sam:lr=0.2,weight_decay=0.01"]
)
def test_fast_weights_learn_at_half_the_rate_without_decay(optimizer):
    model = mlp(4, 3, width=8)
    objective = BatchEnsemble(members=2)
    objective.setup(model, (torch.zeros(2, 4), torch.tensor([0, 1])))
    shared, fast = build(objective, model, optimizer).param_groups
    assert (shared["lr"], shared["weight_decay"]) == (0.2, 0.01)
    assert (fast["lr"], fast["weight_decay"]) == (0.1, 0.0)
    assert len(shared["params"]) == 3 and len(fast["params"]) == 9
    assert {id(p) for g in (shared, fast) for p in g["params"]} == {
        id(p) for p in model.parameters()
    }


def test_muon_sorts_the_matrices_of_each_member_and_leaves_fast_weights_alone():
    model = mlp(4, 3, width=8)
    objective = DeepEnsemble(members=2)
    objective.setup(model, (torch.zeros(2, 4), torch.tensor([0, 1])))
    groups = build(objective, model, "muon:lr=0.1").param_groups
    assert [(g["member"], g["muon"], len(g["params"])) for g in groups] == [
        (0, True, 2), (0, False, 4), (1, True, 2), (1, False, 4)
    ]  # fmt: skip
    model = mlp(4, 3, width=8)
    objective = BatchEnsemble(members=2)
    objective.setup(model, (torch.zeros(2, 4), torch.tensor([0, 1])))
    optimizer = build(objective, model, "muon:lr=0.1")
    assert [g["muon"] for g in optimizer.param_groups] == [True, False, False]
    Step(model, objective, optimizer)((torch.randn(4, 4), torch.tensor([0, 1, 2, 0]), None), 0.1)


def test_bsam_and_several_processes_are_refused(tmp_path):
    config = RunConfig(objective="deep_ensemble:members=2", optimizer="bsam:lr=0.1", steps=1)
    with pytest.raises(ValueError, match="bsam cuts batches into parts"):
        train(config, tmp_path, data=digits(train=20))
    sharded = Sharded.__new__(Sharded)
    with pytest.raises(ValueError, match="BatchEnsemble trains in one process"):
        BatchEnsemble().prepare(sharded, (X, Y, Y))


def encoder():
    return nn.Sequential(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), nn.Linear(4, 3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BatchEnsemble(members=0), "members must be at least 1"),
        (lambda: BatchEnsemble(init="zero"), "init must be normal or sign"),
        (lambda: DeepEnsemble(members=0), "members must be at least 1"),
        (lambda: MIMO(repeat=0), "need repeat >= 1"),
        (lambda: MCDropout(samples=0), "samples and repeat must be at least 1"),
        (lambda: MCDropout(rate=1.0), r"rate is a share in \(0, 1\)"),
        (lambda: MCDropout(where="here"), "where must be residual or all"),
        (lambda: BatchEnsemble().setup(nn.ReLU(), PAIR), "no Conv2d and no Linear"),
        (lambda: MIMO().setup(nn.Sequential(nn.Linear(2, 2)), PAIR), "a first layer and a last"),
        (
            lambda: BatchEnsemble().setup(encoder(), PAIR),
            r"0\.self_attn\.out_proj cannot be replaced",
        ),
        (lambda: MCDropout().setup(encoder(), PAIR), "TransformerEncoderLayer computes without"),
    ],
)
def test_mistakes_are_found(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_rows_must_be_those_of_members():
    model = mlp(4, 3, width=8)
    BatchEnsemble(members=4).setup(model, (torch.zeros(2, 4), torch.tensor([0, 1])))
    with pytest.raises(ValueError, match="6 rows cannot be split over 4 members"):
        model(torch.zeros(6, 4))


# -- on a GPU ---------------------------------------------------------------------------------


def test_timing_does_not_choose_dropout_masks(monkeypatch):
    """Together and one by one, members draw other masks: a run must not depend on a clock."""
    monkeypatch.setattr(
        deep_ensemble,
        "fastest_way",
        lambda m, x, at_once, replayed: None if at_once is False else 0,
    )
    ways = []
    for rate in (0.0, 0.1):
        objective = DeepEnsemble(members=2)
        objective.setup(mlp(4, 3, width=8, dropout=rate), (torch.randn(6, 4), torch.arange(6) % 3))
        ways.append(objective.stacked is not None)
    assert ways == [True, False]


def steps_of_three(ways, monkeypatch):
    """Train three members; before each step the way is chosen anew. Return weights and buffers."""
    asked = []
    left = iter(ways)

    def next_way(members, example, at_once, replayed):
        asked.append(replayed)
        return next(left)

    monkeypatch.setattr(deep_ensemble, "fastest_way", next_way)
    torch.manual_seed(0)
    model, objective = resnet20((3, 8, 8)).double(), DeepEnsemble(members=3, own_order=False)
    x, y = torch.randn(6, 3, 8, 8, dtype=torch.float64), torch.arange(6) % 10
    objective.setup(model, (x, y))
    groups = [dict(group) for group in objective.parameters()]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
    step = Step(model, objective, optimizer)
    for _ in ways[1:]:
        objective.recorded()
        step((x, y, torch.arange(6)), 0.1)
    assert asked == [False, *[True] * (len(ways) - 1)]
    return model.state_dict(), objective


def test_a_recorded_run_chooses_its_way_anew(monkeypatch):
    """Replayed, another way may be faster; the optimizer moves the same members all along."""
    apart, _ = steps_of_three([None] * 6, monkeypatch)
    mixed, objective = steps_of_three([None, 0, 16, 16, None, 1000], monkeypatch)
    assert objective.stacked[0].narrow == 1000
    assert list(mixed) == list(apart)
    for name, value in apart.items():
        torch.testing.assert_close(mixed[name], value, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("asked", "ways"), [(None, [None, 0, 16, 32]), (True, [0, 16, 32])])
def test_every_way_runs_and_leaves_the_members_alone(asked, ways, monkeypatch):
    """What is timed on a GPU, run once on a CPU: forth and back on copies."""
    run = []
    monkeypatch.setattr(
        members_at_once, "seconds_of", lambda passes, _: run.append(passes()) or 1.0
    )
    members = [resnet20((3, 8, 8)) for _ in range(2)]
    before = [p.detach().clone() for member in members for p in member.parameters()]

    times = timed_ways(members, torch.randn(1, 3, 8, 8), asked, replayed=False)
    assert list(times) == ways and len(run) == len(ways)
    after = [p for member in members for p in member.parameters()]
    assert all(p.grad is None for p in after)
    assert all(torch.equal(p, old) for p, old in zip(after, before, strict=True))


def test_without_narrow_convolutions_there_is_less_to_time(monkeypatch):
    monkeypatch.setattr(members_at_once, "seconds_of", lambda passes, _: 1.0)
    members = [mlp(4, 3, width=8) for _ in range(2)]
    assert list(timed_ways(members, torch.randn(1, 4), None, replayed=False)) == [None, 0]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("replayed", [False, True])
def test_on_a_gpu_each_way_is_timed(replayed):
    members = [resnet20().cuda() for _ in range(4)]
    example = torch.randn(1, 3, 32, 32, device="cuda")
    with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
        times = timed_ways(members, example, None, replayed)
        assert fastest_way(members, example, True, replayed) in members_at_once.NARROW
    assert list(times) == [None, 0, 16, 32] and all(seconds > 0 for seconds in times.values())
    assert all(p.grad is None for member in members for p in member.parameters())


def test_wide_networks_keep_their_shapes():
    model = wrn((3, 16, 16), depth=10, width=2)
    x = X.float()
    objective = MIMO(members=2)
    objective.setup(model, (x, Y))
    assert model.conv1.weight.shape[1] == 6 and model.head.out_features == 20
    assert objective.predict(model, x).shape == (6, 10)


def test_a_class_that_no_member_thinks_possible_adds_nothing():
    probs = torch.tensor([[[0.7, 0.3, 0.0]], [[0.6, 0.4, 0.0]]], dtype=torch.float64)
    wanted = mean_pairwise_kl(probs[..., :2].log())
    assert mean_pairwise_kl(probs.log()) == pytest.approx(wanted)
    probs[0, 0] = torch.tensor([0.7, 0.2, 0.1])
    assert mean_pairwise_kl(probs.log()) == math.inf
