"""The groups of processes that the tests of this folder share: starting one takes long."""

import numpy as np
import pytest
import torch
from ddp_cases import HALF
from groups import Cut, CutAt, Group

from toosure.train import Runtime, train


@pytest.fixture(scope="session")
def pair(tmp_path_factory):
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("pair")
    with pytest.raises(Cut):  # begun by one process, for two to finish
        train(HALF, out, Runtime("cpu", checkpoint=0.0), CutAt(8))
    draw_images(out / "images")
    with Group(2, "ddp_pair.py", out, "cpu", "few") as pair:
        yield pair


@pytest.fixture(scope="session")
def exact_pair(tmp_path_factory):
    """Two processes that train every case of the exact scheme."""
    with Group(2, "ddp_pair.py", tmp_path_factory.mktemp("exact"), "cpu", "all") as pair:
        yield pair


@pytest.fixture(scope="session")
def four(tmp_path_factory):
    """Four processes that train by DDP, of which the last is killed at the end."""
    with Group(4, "ddp_shares.py", tmp_path_factory.mktemp("four"), "main") as group:
        yield group.done()


def draw_images(folder):
    from PIL import Image

    random = np.random.default_rng(0)
    for part, count in (("train", 14), ("test", 3)):
        for name in ("cat", "dog"):
            (folder / part / name).mkdir(parents=True)
            for i in range(count):
                pixels = random.integers(0, 256, (9, 8, 3), np.uint8)
                Image.fromarray(pixels).save(folder / part / name / f"{i}.png")


@pytest.fixture(scope="session")
def alone(tmp_path_factory):
    torch.set_num_threads(1)
    return tmp_path_factory.mktemp("alone")
