"""What objectives read of the data before the first step: data sets, tensors, streamed images."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from toosure.config import RunConfig
from toosure.data import imagefolder
from toosure.objectives import OBJECTIVES, preparing
from toosure.objectives.network import check_head
from toosure.train import Runtime, train
from toosure.words import parse

X, Y = torch.randn(50, 4, generator=torch.Generator().manual_seed(0)), torch.arange(50) % 3
BOTH = ((X[:40], Y[:40]), (X[40:], Y[40:]))


def step(objective, model, data):
    """One step of a loop of one's own."""
    if hasattr(objective, "setup"):
        data = objective.setup(model, data) or data
    x, y = (
        (data[0] if isinstance(data[0], tuple) else data) if isinstance(data, tuple) else data.train
    )
    prepared = preparing(objective)(model, (x[:8], y[:8], torch.arange(8)), 0.1)
    objective(model, prepared).backward()
    if hasattr(objective, "epoch_end"):
        objective.epoch_end(model)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_plain_tensors_will_do(name):
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    step(OBJECTIVES[name](), model, BOTH)
    if name not in ("adafocal", "ar_adals"):
        step(OBJECTIVES[name](), model, BOTH[0])
        return
    with pytest.raises(ValueError, match=r"setup\(model, \(\(x, y\), \(val_x, val_y\)\)\)"):
        OBJECTIVES[name]().setup(model, BOTH[0])


@pytest.mark.parametrize("name", ["gamma_net", "crl", "balcal", "adafocal", "ar_adals"])
@pytest.mark.parametrize(
    "data",
    [
        TensorDataset(X, Y),
        SimpleNamespace(train=TensorDataset(X, Y), val=TensorDataset(X, Y)),
        (X, Y[:3]),
        X,
    ],
    ids=["a TensorDataset", "TensorDatasets", "too few labels", "no labels"],
)
def test_other_data_are_refused_with_what_to_give(name, data):
    with pytest.raises(ValueError, match=r"setup takes a data set .* \(x, y\) to train on"):
        OBJECTIVES[name]().setup(nn.Linear(4, 3), data)


def test_pixels_ask_for_their_size():
    with pytest.raises(ValueError, match=r"data.std, .* got tuple"):
        OBJECTIVES["calmo"](space="pixels").setup(nn.Linear(4, 3), BOTH[0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two classes of 12 images to train on and 3 to test on."""
    image = pytest.importorskip("PIL.Image")
    path, random = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    for part, count in (("train", 12), ("test", 3)):
        for name in ("cat", "dog"):
            (path / part / name).mkdir(parents=True)
            for i in range(count):
                pixels = random.integers(0, 256, (8, 8, 3), np.uint8)
                image.fromarray(pixels).save(path / part / name / f"{i}.png")
    return path


def trained(folder, objective, out, **settings):
    config = RunConfig(
        data="digits",
        model="mlp:width=4",
        objective=objective,
        batch=6,
        steps=6,
        every=3,
        measure=(),
    )
    data = imagefolder(folder, size=8, val=6, **settings)
    return train(config, out, Runtime("cpu"), data=data)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_streamed_images_train_alike_or_are_refused(name, folder, tmp_path):
    if name in ("ar_adals", "meta_smoothing", "gamma_net"):
        with pytest.raises(ValueError, match="in memory, not streamed: stream=false"):
            trained(folder, name, tmp_path, stream=True, workers=0)
        return
    word = "ccat:attack_steps=2" if name == "ccat" else name
    streamed = trained(folder, word, tmp_path / "a", stream=True, watched=1000, workers=0)
    memory = trained(folder, word, tmp_path / "b")
    assert streamed.status == memory.status == "complete"
    losses = [run.rows[-1]["train/loss"] for run in (streamed, memory)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_a_word_of_the_other_kind_is_shown_where_it_belongs():
    with pytest.raises(ValueError, match="no objective is called 'mmce', but one loss is: --loss"):
        parse("objective", "mmce")
    with pytest.raises(ValueError, match="but one objective is: --objective crl"):
        parse("loss", "crl")


class TwoHeads(nn.Module):
    """A network with a second linear layer behind the one that gives the logits."""

    def __init__(self, scale=1.0):
        super().__init__()
        self.body, self.logits, self.side = nn.Linear(4, 8), nn.Linear(8, 3), nn.Linear(8, 3)
        self.scale = scale
        self.outputs = None

    def forward(self, x):
        hidden = self.body(x).relu()
        self.outputs = self.side(hidden)
        return self.scale * self.logits(hidden)


@pytest.mark.parametrize("name", ["gamma_net", "meta_smoothing"])
def test_a_head_that_does_not_give_the_logits_is_refused(name):
    """The virtual step would move a layer that has nothing to do with the loss."""
    make = OBJECTIVES[name]
    with pytest.raises(ValueError, match="name it `head`, or take scope=full"):
        make().setup(TwoHeads(), BOTH)
    make(scope="full").setup(TwoHeads(), BOTH)

    named = TwoHeads()
    named.head = named.logits
    make().setup(named, BOTH)
    scaled = TwoHeads(scale=5.0)
    scaled.head = scaled.logits
    with pytest.raises(ValueError, match="does not return what its last linear layer gives"):
        make().setup(scaled, BOTH)


def test_a_head_may_be_followed_by_what_softmax_does_not_see():
    OBJECTIVES["gamma_net"]().setup(nn.Sequential(nn.Linear(4, 3), nn.LogSoftmax(1)), BOTH)


@pytest.mark.parametrize("name", ["gamma_net", "meta_smoothing"])
def test_one_logit_per_example_may_have_lost_its_column(name):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1), nn.Flatten(0))
    OBJECTIVES[name]().setup(model, tuple((x, y.clamp(max=1)) for x, y in BOTH))


class InAutocast(nn.Sequential):
    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(x).float()


def test_a_network_may_compute_its_logits_in_bfloat16():
    torch.manual_seed(0)
    check_head(InAutocast(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 3)), BOTH[0][0], "")
