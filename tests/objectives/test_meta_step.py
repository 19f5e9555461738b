"""The meta-step that does not freeze: stored features, its own rate, signal-to-noise, bounds."""

import math

import pytest
import torch

from toosure.config import RunConfig
from toosure.data import digits
from toosure.eval_mode import evaluating
from toosure.models import mlp
from toosure.objectives import GammaNet, MetaSmoothing
from toosure.objectives.gamma_net import SampleGamma
from toosure.objectives.meta_signal import MetaSignal, SignalToNoise
from toosure.objectives.network import features_and_logits
from toosure.train import ProgressListener, Runtime, train
from toosure.train.steps import Step


def ready(objective, width=6):
    torch.manual_seed(0)
    model = mlp((1, 8, 8), width=width)
    rest = objective.setup(model, digits(train=100, val=20)).train
    return model, (rest.x[:16], rest.y[:16], torch.arange(16))


def features_in_eval(model, x):
    with evaluating(model), torch.no_grad():
        return features_and_logits(model, x)[0]


def test_stored_features_are_those_of_the_last_examples():
    objective = GammaNet(meta=30, meta_batch=10, fresh=4)
    model, batch = ready(objective)
    first = objective.stored.features.clone()
    indices = [objective.draw(batch, 0.1)[2] for _ in range(2)]
    assert [len(i) for i in indices] == [4, 4]

    read, labels = objective.meta_rows(model, indices[0])
    assert torch.equal(read[:6], first[4:])  # the oldest four are gone
    assert torch.equal(read[6:], features_in_eval(model, objective.meta.x[indices[0]]))

    with torch.no_grad():
        model.hidden[0].weight.mul_(2)
    read, labels = objective.meta_rows(model, indices[1])
    assert torch.equal(read[:2], first[8:])
    assert torch.equal(read[6:], features_in_eval(model, objective.meta.x[indices[1]]))
    assert torch.equal(labels[2:], objective.meta.y[torch.cat(indices)])


def test_all_fresh_is_the_same_as_no_store():
    ends = []
    for fresh in (None, 10, 64):
        objective = GammaNet(meta=30, meta_batch=10, fresh=fresh)
        model, batch = ready(objective)
        objective.generator.manual_seed(7)
        for _ in range(4):
            objective.prepare(model, batch, lr=0.1)
        ends.append([p.detach().clone() for p in objective.hyper.parameters()])
        assert objective.stored is None
    assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(*ends, strict=True))


def test_the_whole_network_reads_fresh_inputs():
    objective = GammaNet(meta=30, meta_batch=10, fresh=4, scope="full")
    model, batch = ready(objective)
    assert objective.stored is None
    read, _ = objective.meta_rows(model, objective.draw(batch, 0.1)[2])
    assert read.shape == (4, 1, 8, 8)


@pytest.mark.parametrize(("virtual_lr", "moves"), [(0.1, True), (None, False)])
def test_a_rate_of_its_own_does_not_freeze_with_the_schedule(virtual_lr, moves):
    objective = GammaNet(meta=30, virtual_lr=virtual_lr)
    model, batch = ready(objective)
    before = objective.hyper.last.bias.clone()
    objective.prepare(model, batch, lr=0.0)
    assert (not torch.equal(before, objective.hyper.last.bias)) == moves


@pytest.mark.parametrize(("scope", "dtype"), [("head", torch.bfloat16), ("full", torch.float32)])
def test_the_passes_of_a_bf16_run_are_in_bf16_and_the_meta_step_is_not(scope, dtype):
    objective = GammaNet(meta=30, meta_batch=16, fresh=8, scope=scope)
    model, batch = ready(objective)
    seen = []
    hook = model.hidden[0].register_forward_hook(lambda *parts: seen.append(parts[2].dtype))
    step = Step(model, objective, torch.optim.SGD(model.parameters(), lr=0.1), precision="bf16")
    prepared = step.prepared(batch, 0.1)
    hook.remove()
    assert set(seen) == {dtype} and len(seen) == 2  # the batch and the meta examples
    assert prepared[0][2].dtype == torch.float32  # the gammas
    assert objective.slope.isfinite() and objective.slope > 0


def test_a_run_with_stored_features_resumes_to_the_same_rows(tmp_path):
    config = RunConfig(
        data="digits:train=100,val=30",
        model="mlp:width=8",
        objective="gamma_net:width=8,meta_batch=24,fresh=8",
        steps=12,
        every=4,
        batch=32,
        measure=(),
    )
    whole = train(config, tmp_path / "whole", Runtime("cpu", threads=1))

    class Stop(Exception):
        pass

    class Stopping(ProgressListener):
        def row(self, row):
            if row["step"] == 8:
                raise Stop

    with pytest.raises(Stop):
        train(config, tmp_path / "parts", Runtime("cpu", threads=1, checkpoint=0), Stopping())
    again = train(config, tmp_path / "parts", Runtime("cpu", threads=1))
    assert again.status == "complete"
    for key in ("objective/gamma_mean", "objective/meta_gradient", "val/loss"):
        assert list(again.columns[key]) == list(whole.columns[key])


# Signal and noise


def test_signal_to_noise_against_the_definition():
    numbers = (
        torch.randn(400, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.5
    )
    signal = MetaSignal(overlap=4)
    for number in numbers:
        signal.add(number)
    read = signal.take()
    expected = float(numbers.mean().abs() / numbers.std(correction=0))
    assert read.per_step == pytest.approx(expected, rel=1e-9)
    assert read.overall == pytest.approx(expected * math.sqrt(100), rel=1e-9)
    assert signal.take() == read  # nothing new
    signal.add(torch.tensor(1.0))
    signal.add(torch.tensor(1.0))
    assert signal.take() == SignalToNoise(0.0, 0.0, 2)  # no spread at all: nothing can be said


@pytest.mark.parametrize("kind", [GammaNet, MetaSmoothing])
def test_the_row_holds_the_ratio_of_the_summed_slopes(kind):
    objective = kind(meta=30)
    model, batch = ready(objective)
    seen = []
    objective.signal.add = lambda number: seen.append(float(number))
    for _ in range(5):
        objective.prepare(model, batch, lr=0.1)
    del objective.signal.add
    for number in seen:
        objective.signal.add(torch.tensor(number, dtype=torch.float64))
    expected = abs(torch.tensor(seen).mean() / torch.tensor(seen).std(correction=0))
    row = objective.report()
    assert row["objective/meta_signal_to_noise"] == pytest.approx(float(expected), rel=1e-4)


def test_a_warning_where_gamma_moves_on_noise_and_only_there():
    objective = GammaNet(meta=30)
    ready(objective)

    def row(gamma, numbers):
        for number in numbers:
            objective.signal.add(torch.tensor(number))
        objective.store_summary(torch.full((16,), gamma))
        return objective.report()

    row(1.0, (1.0, -1.0) * 40)  # the first row has none to compare with
    row(1.1, (1.0, -1.0) * 40)  # noise, but gamma hardly moved
    row(2.0, (1.0, 0.9) * 200)  # gamma moved, and for a reason
    row(1.0, (1.0, -1.0) * 20)  # few steps say little
    row(2.0, (1.0, 0.9) * 200)
    with pytest.warns(UserWarning, match=r"moves on noise: the mean gamma moved by 0\.5 to 2\.5"):
        row(2.5, (1.0, -1.0) * 40)
    row(1.0, (1.0, -1.0) * 40)  # and it warns once


# Bounds


@pytest.mark.parametrize(("most", "limit"), [(4.0, 4.0), (None, math.inf)])
def test_gammas_keep_to_both_bounds_and_start_where_told(most, limit):
    net = SampleGamma(8, 16, 1.5, (0.5, most), 2.0, torch.Generator().manual_seed(0))
    torch.testing.assert_close(net(torch.zeros(3, 8)), torch.full((3,), 1.5))
    with torch.no_grad():
        net.last.weight.mul_(1e4)
    gammas = net(torch.randn(200, 8, generator=torch.Generator().manual_seed(1)))
    assert gammas.min() == 0.5 and gammas.max() > 3.9 and gammas.max() <= limit


def test_a_collapse_to_the_lower_bound_is_seen():
    objective = GammaNet(meta=30, least=0.5)
    ready(objective)
    objective.store_summary(torch.full((16,), 0.51))
    with pytest.warns(UserWarning, match="collapsed: 100%"):
        assert objective.report()["objective/gamma_at_bound"] == 1


# -- a rate for the level, one for the differences ------------------------------------------------


@pytest.mark.parametrize("width", [64, 512])
def test_the_first_step_moves_level_and_weights_by_their_own_rates(width):
    objective = GammaNet(meta=30, meta_batch=10, lr=1e-3, level_lr=0.01)
    model, batch = ready(objective, width)
    net = objective.hyper
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    objective.prepare(model, batch, lr=0.1)

    # The first step of Adam is its rate, whatever the gradient.
    moved = {n: float((p.detach() - before[n]).abs().max()) for n, p in net.named_parameters()}
    assert moved["last.bias"] == pytest.approx(0.01, rel=1e-3)
    assert moved["last.weight"] == pytest.approx(1e-3, rel=1e-2)
    assert moved["hidden.weight"] == pytest.approx(1e-3 * 64 / width, rel=1e-2)


def gamma_spread_on_noise(features, **options):
    """Return how gammas differ between classes after steps whose slopes are noise by class."""
    objective = GammaNet(meta=30, meta_batch=10, **options)
    ready(objective, features)
    net, optimizer = objective.hyper, objective.optimizer
    labels = torch.arange(200) % 10
    rows = (torch.randn(10, features)[labels] + 0.5 * torch.randn(200, features)).relu()
    for _ in range(300):
        optimizer.zero_grad()
        (net(rows) * torch.randn(10)[labels]).mean().backward()
        optimizer.step()
    return float(net(rows).detach().view(20, 10).mean(0).std())


def test_noise_makes_gammas_differ_less_where_only_the_level_is_fast():
    for features in (64, 512):
        one_rate = gamma_spread_on_noise(features, lr=1e-3, level_lr=None)
        assert gamma_spread_on_noise(features) < one_rate / 3


def test_a_checkpoint_keeps_both_rates():
    objective = GammaNet(meta=30, meta_batch=10, lr=1e-4, level_lr=0.01)
    model, batch = ready(objective)
    objective.prepare(model, batch, lr=0.1)
    again = GammaNet(meta=30, meta_batch=10, lr=1e-4, level_lr=0.01)
    ready(again)
    again.load_state_dict(objective.state_dict())
    rates = [[group["lr"] for group in each.optimizer.param_groups] for each in (objective, again)]
    assert rates[0] == rates[1] == [0.01, 1e-4, 1e-4]


@pytest.mark.parametrize("kind", [GammaNet, MetaSmoothing])
def test_a_checkpoint_keeps_the_signal_of_the_last_row(kind):
    objective, again = (kind(meta=30, meta_batch=10) for _ in range(2))
    model, batch = ready(objective)
    ready(again)
    for _ in range(3):
        objective.prepare(model, batch, lr=0.1)
    reported = objective.report()
    assert reported["objective/meta_signal_to_noise"] > 0

    state = objective.state_dict()
    again.load_state_dict(state)
    assert again.report() == objective.report() == reported
    assert getattr(again, "last_mean", 0.0) == getattr(objective, "last_mean", 0.0)


@pytest.mark.parametrize("rate", [-0.1, math.inf, math.nan])
def test_a_level_rate_that_is_none_is_refused(rate):
    with pytest.raises(ValueError, match="level_lr must not be negative, and finite"):
        GammaNet(level_lr=rate)
