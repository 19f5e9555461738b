"""Objectives that differentiate the network twice do so through attention as well."""

import pytest
import torch

from toosure.config import RunConfig
from toosure.data import Images, make_dataset
from toosure.train import Runtime, train

TWICE = ["calmo:smooth=0.01", "margin_tail", "meta_smoothing:scope=full", "gamma_net:scope=full"]


@pytest.mark.parametrize("objective", TWICE)
def test_trains_a_vision_transformer(objective, tmp_path):
    x = torch.randint(0, 256, (40, 3, 8, 8), dtype=torch.uint8)
    y = torch.arange(40) % 4
    data = make_dataset(Images(x, y, x[:8], y[:8], tuple("abcd")), train=32, val=8)
    config = RunConfig(
        data="cifar10",
        model="vit:patch=4,width=8,depth=1,heads=2",
        objective=objective,
        optimizer="sgd:lr=0.01",
        batch=16,
        steps=2,
        every=2,
        measure=(),
    )
    run = train(config, tmp_path, Runtime("cpu"), data=data)
    assert run.status == "complete"
