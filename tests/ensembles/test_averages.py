"""Averages of weights: closed forms, SWAG's covariance, BatchNorm, runs that resume."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from toosure.config import RunConfig
from toosure.data import Dataset, digits
from toosure.data.dataset import Split
from toosure.ensembles.averages import EMA, SWA, SWAG
from toosure.train import ProgressListener, Runtime, train
from toosure.train.averages import Averages, refresh_statistics
from toosure.watch import Watch

DATA = digits(train=96, val=40, test=30)


def fed(average, values, steps=None, every=1):
    """An average that has seen these weights, one step each."""
    for step, value in enumerate(values):
        weights = [torch.as_tensor(value, dtype=torch.float64)]
        average.update(weights, step, steps or len(values), ends_epoch=(step + 1) % every == 0)
    return average


def test_ema_is_its_recursion_and_follows_torch():
    values = torch.randn(40, 3, dtype=torch.float64)
    wanted = values[0]
    for t, value in enumerate(values[1:], 1):
        decay = min(0.9, (1 + t) / (10 + t))
        wanted = decay * wanted + (1 - decay) * value
    torch.testing.assert_close(fed(EMA(0.9), values).mean[0], wanted)
    assert torch.equal(fed(EMA(0.0), values).mean[0], values[-1])


def test_swa_is_the_mean_of_the_iterates_that_end_epochs():
    values = torch.randn(20, 3, dtype=torch.float64)
    average = fed(SWA(start=0.5), values, every=4)  # ends of epochs: steps 12, 16, 20
    assert average.count == 3
    torch.testing.assert_close(average.mean[0], values[[11, 15, 19]].mean(0))
    torch.testing.assert_close(fed(SWA(start=0.9), values, every=7).mean[0], values[19])
    assert not fed(SWA(), values[:5], steps=20).ready


def test_swag_samples_have_maddox_covariance():
    """Variance diag / 2 + D D^T / (2 (K - 1)): D holds deviations from the running mean."""
    values = torch.randn(6, 2, dtype=torch.float64)
    average = fed(SWAG(rank=4, start=0.0), values)
    assert len(average.deviations) == 4
    running = values.cumsum(0) / torch.arange(1, 7)[:, None]
    deviations = (values - running)[-4:].T  # (2, K)
    diagonal = values.square().mean(0) - values.mean(0).square()
    torch.testing.assert_close(average.variance[0], diagonal)
    wanted = diagonal.diag() / 2 + deviations @ deviations.T / (2 * (4 - 1))

    generator = torch.Generator().manual_seed(0)
    samples = torch.stack([average.sample(generator)[0] for _ in range(20_000)])
    found = torch.cov(samples.T)
    error = ((wanted.diag()[:, None] * wanted.diag() + wanted**2) / 20_000).sqrt()
    assert ((found - wanted).abs() < 4 * error).all()
    assert (
        samples.mean(0) - values.mean(0)
    ).abs().max() < 4 * wanted.diag().max().sqrt() / math.sqrt(20_000)


def test_swag_of_equal_iterates_has_no_variance():
    average = fed(SWAG(start=0.0, samples=2), torch.full((5, 3), 0.25, dtype=torch.float64))
    for weights in average.draws(seed=0):
        assert torch.equal(weights[0], torch.full((3,), 0.25, dtype=torch.float64))
    one = fed(SWAG(start=0.0), torch.randn(1, 3, dtype=torch.float64))
    assert torch.equal(one.sample(torch.Generator())[0], one.mean[0])


def test_samples_repeat_by_the_seed():
    average = fed(SWAG(start=0.0, samples=2), torch.randn(5, 3, dtype=torch.float64))
    one, again, other = ([w[0] for w in average.draws(seed)] for seed in (0, 0, 1))
    assert torch.equal(one[0], again[0]) and not torch.equal(one[0], one[1])
    assert not torch.equal(one[0], other[0])


@pytest.mark.parametrize("average", [EMA(0.9), SWA(0.0), SWAG(rank=2, start=0.0)])
def test_state_goes_on(average):
    values = torch.randn(8, 3, dtype=torch.float64)
    fed(average, values[:4], steps=8)
    again = type(average)()
    again.__dict__ |= {k: v for k, v in vars(average).items() if isinstance(v, int | float)}
    again.load_state_dict(average.state_dict(), [values[0]])
    for step in range(4, 8):
        for each in (average, again):
            each.update([values[step]], step, 8, ends_epoch=True)
    assert torch.equal(average.mean[0], again.mean[0])
    assert average.count == again.count == 8


def test_refreshed_statistics_are_those_of_the_data():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5)).double().eval()
    x = 2 + 3 * torch.randn(512, 3, dtype=torch.float64)
    refresh_statistics(model, model, x.split(256))
    halves = x.split(256)
    torch.testing.assert_close(model[0].running_mean, x.mean(0))
    torch.testing.assert_close(model[0].running_var, (halves[0].var(0) + halves[1].var(0)) / 2)
    assert not model[0].training and model[0].momentum == 0.1
    refresh_statistics(nn.Linear(2, 2), model, [x])  # nothing to do


@pytest.mark.parametrize("rows", [258, 1000])
def test_a_short_last_batch_counts_by_its_rows(rows):
    model = nn.Sequential(nn.BatchNorm1d(1)).double()
    x = 1 + 2 * torch.randn(rows, 1, dtype=torch.float64)
    refresh_statistics(model, model, x.split(256))
    torch.testing.assert_close(model[0].running_mean, x.mean(0))


@pytest.mark.parametrize("passes", [2, 5])
def test_statistics_of_a_prediction_of_several_passes_are_those_of_the_data(passes):
    """MC-Dropout and VI predict by several passes, each of which moved the statistics."""
    model = nn.Sequential(nn.BatchNorm1d(1)).double()
    x = torch.linspace(-5, 5, 1000, dtype=torch.float64)[:, None]

    def predict(batch):
        return sum(model[0](input=batch) for _ in range(passes))

    refresh_statistics(model, predict, x.split(256))
    torch.testing.assert_close(model[0].running_mean, x.mean(0))
    assert model[0].momentum == 0.1 and not model[0]._forward_pre_hooks


def test_an_average_is_refreshed_with_examples_of_every_class():
    """Data in folders lie sorted by class: a batch of one class has another mean and variance."""
    labels = torch.arange(1200) // 300
    x = labels[:, None, None, None].float().expand(-1, 1, 2, 2).contiguous()
    split = Split(x, labels, labels, torch.arange(1200))
    data = Dataset(split, None, split, tuple("abcd"), torch.zeros(1, 1, 1), torch.ones(1, 1, 1))
    model = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(4, 4))
    averages = Averages(RunConfig(average="ema", steps=5), model, None, data)

    for examples in (600, 1200):
        averages.load([p.detach() for p in model.parameters()], examples)
        norm = averages.copy[0]
        assert abs(float(norm.running_mean) - 1.5) < 0.15
        assert abs(float(norm.running_var) - 1.25) < 0.15


class Cached(nn.Module):
    """A network that makes a buffer in its first pass."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(64, 10)
        self.register_buffer("places", None)

    def forward(self, x):
        if self.places is None:
            self.places = torch.linspace(0, 1, 64)
        return self.head(x.flatten(1) * self.places)


def test_a_buffer_that_the_first_pass_makes_is_made_by_the_average():
    model = Cached()
    averages = Averages(RunConfig(average="ema", steps=5), model, None, DATA)
    expected = model(DATA.val.x)
    averages.load([p.detach() for p in model.parameters()], 64)
    torch.testing.assert_close(averages.copy(DATA.val.x), expected)


def test_an_average_has_the_other_buffers_of_the_network():
    """Spectral norm divides by u^T W v, of vectors that follow the weights in training."""
    layer = torch.nn.utils.parametrizations.spectral_norm(nn.Linear(64, 10))
    model = nn.Sequential(nn.Flatten(), layer).train()
    averages = Averages(RunConfig(average="ema", steps=5), model, None, DATA)

    with torch.no_grad():
        layer.parametrizations.weight.original.normal_()
    for _ in range(50):
        model(DATA.train.x)
    averages.load([p.detach() for p in model.parameters()], 64)
    x = DATA.val.x
    torch.testing.assert_close(averages.copy.eval()(x), model.eval()(x))


def test_refreshing_draws_no_random_numbers():
    """Dropout before BatchNorm would draw those of training, which would then depend on rows."""
    model = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(3)).train()
    state = torch.get_rng_state()
    refresh_statistics(model, model, [torch.ones(8, 3)])
    assert torch.equal(torch.get_rng_state(), state)
    assert model[0].training and model[1].training and model[1].momentum == 0.1


def test_swag_finds_a_variance_far_below_the_square_of_the_mean():
    values = (1 + 1e-4 * torch.randn(20, 1000)).float()
    average = SWAG(start=0.0)
    for step, each in enumerate(values):
        average.update([each], step, 20, ends_epoch=True)
    wanted = values.double().var(0, correction=0)
    torch.testing.assert_close(average.variance[0].double(), wanted, rtol=0.02, atol=1e-11)

    again = SWAG()
    again.load_state_dict(average.state_dict(), [values[0]])
    assert torch.equal(again.variance[0], average.variance[0])


def test_an_average_is_refreshed_with_crops_as_training_sees_them():
    """A crop's border is black, so inputs without it have another mean."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(64) % 3
    pixels = torch.randn(64, 3, 8, 8, generator=generator)
    images = Split(pixels, labels, labels, torch.arange(64))
    black, one = torch.full((3, 1, 1), 2.0), torch.ones(3, 1, 1)
    data = Dataset(images, images, images, ("a", "b", "c"), black, one, augment=True)
    model = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(192, 3))
    averages = Averages(RunConfig(average="ema", steps=5), model, None, data)

    means = []
    for _ in range(2):
        averages.load(list(model.parameters()), 64)
        means.append(averages.copy[0].running_mean.clone())
    assert torch.equal(*means)
    # Shifts of up to 4 of 8 pixels leave 1 - 20/72 of each side; the rest is at -2.
    border = -2 * (1 - (1 - 20 / 72) ** 2)
    assert means[0].mean().item() == pytest.approx(border, abs=0.1)


# -- in a run -----------------------------------------------------------------------------------


CONFIG = {
    "data": "digits:train=96,val=40,test=30",
    "model": "wrn:depth=10,width=1",
    "optimizer": "sgd:lr=0.1,momentum=0.9",
    "batch": 32,
    "steps": 9,
    "every": 3,
    "measure": (),
}


class Cut(ProgressListener):
    def row(self, row):
        if row["step"] == 6:
            raise ValueError("cut")


def test_a_run_follows_averages_beside_its_weights_and_resumes(tmp_path):
    config = RunConfig(**CONFIG, average="ema:decay=0.5+swag:samples=2,start=0.3")
    whole = train(config, tmp_path / "whole", Runtime("cpu"), data=DATA)
    last = whole.rows[-1]
    assert {"ema/accuracy", "ema/nll", "ema/ece", "swag/nll"} <= last.keys()
    assert "swag/nll" not in whole.rows[0]

    with pytest.raises(ValueError, match="cut"):
        train(config, tmp_path / "cut", Runtime("cpu", checkpoint=0.0), Cut(), data=DATA)
    resumed = train(config, tmp_path / "cut", Runtime("cpu"), data=DATA)
    for file in ("", "_ema", "_swa", "_swag"):
        arrays = [np.load(run.path / f"predictions{file}.npz") for run in (whole, resumed)]
        assert arrays[0]["test_logits"].shape == (30, 10)
        assert np.array_equal(arrays[0]["test_logits"], arrays[1]["test_logits"])
    kept = [
        {k: v for k, v in run.rows[-1].items() if "seconds" not in k} for run in (whole, resumed)
    ]
    assert kept[0] == kept[1]


def test_averages_do_not_change_the_training(tmp_path):
    plain = train(RunConfig(**CONFIG), tmp_path, Runtime("cpu"), data=DATA)
    averaged = train(RunConfig(**CONFIG, average="ema"), tmp_path, Runtime("cpu"), data=DATA)
    logits = [np.load(run.path / "predictions.npz")["test_logits"] for run in (plain, averaged)]
    assert np.array_equal(*logits)
    for one, two in zip(plain.rows, averaged.rows, strict=True):
        assert all(two[k] == v for k, v in one.items() if "seconds" not in k)


def test_an_ema_of_no_memory_is_the_network_with_refreshed_statistics(tmp_path):
    """An mlp has no statistics, so both are the same numbers."""
    settings = CONFIG | {"model": "mlp:width=8", "average": "ema:decay=0"}
    run = train(RunConfig(**settings), tmp_path, Runtime("cpu"), data=DATA)
    raw, average = (np.load(run.path / f"predictions{n}.npz") for n in ("", "_ema"))
    assert np.array_equal(raw["val_logits"], average["val_logits"])
    assert run.rows[-1]["ema/ece"] == pytest.approx(run.rows[-1]["val/ece"])


def test_an_ensemble_can_be_averaged_too(tmp_path):
    settings = CONFIG | {"objective": "batch_ensemble:members=2", "average": "ema"}
    run = train(RunConfig(**settings), tmp_path, Runtime("cpu"), data=DATA)
    assert np.load(run.path / "predictions_ema.npz")["test_logits"].shape == (30, 10)
    assert "ema/nll" in run.rows[-1] and "objective/member_nll" in run.rows[-1]


def test_a_head_that_is_not_averaged_is_refused_before_there_is_a_folder(tmp_path):
    config = RunConfig(**CONFIG, objective="balcal", average="ema")
    with pytest.raises(ValueError, match="balcal predicts with a second head of its own"):
        train(config, tmp_path)
    assert not list(tmp_path.iterdir())


def test_words_of_averages():
    config = RunConfig(average="swag:samples=30,rank=5+ema:decay=0.9990")
    assert config.average == "swag:rank=5+ema"
    assert RunConfig.from_json(config.to_json()) == config
    assert "swag-rank5-ema" in config.name
    assert RunConfig(average=None).id == RunConfig().id
    with pytest.raises(ValueError, match="average names ema twice"):
        RunConfig(average="ema+ema:decay=0.9")
    with pytest.raises(ValueError, match="no average is called 'polyak'"):
        RunConfig(average="polyak")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EMA(1.0), "decay is a share"),
        (lambda: SWA(1.0), "start is a share"),
        (lambda: SWAG(rank=0), "rank and samples must be at least 1"),
    ],
)
def test_mistakes_are_found(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_what_a_report_takes_counts_as_measuring():
    """Under a budget the passes of members must be paid for like those of the watch."""

    class Slow:
        def report(self):
            return {"objective/waited": float(sum(i * i for i in range(400_000)))}

    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    rows = []
    for objective in (None, Slow()):
        watch = Watch(model, None, DATA.train, every=1, measure=(), objective=objective)
        watch.step()
        rows.append(watch.step())
        assert watch.stopwatch.measuring >= rows[-1]["seconds_measuring"]
    assert rows[1]["seconds_measuring"] > rows[0]["seconds_measuring"]
    assert "objective/waited" in rows[1]
