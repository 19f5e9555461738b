"""The groups of processes that the tests of this folder share: starting one takes long."""

import pytest
import torch
from ddp_cases import HALF
from groups import Cut, CutAt, Group, draw_images, pack_shards

from toosure.train import Runtime, train


@pytest.fixture(scope="session")
def pair(tmp_path_factory):
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("pair")
    with pytest.raises(Cut):  # begun by one process, for two to finish
        train(HALF, out, Runtime("cpu", checkpoint=0.0), CutAt(8))
    draw_images(out / "images")
    pack_shards(out / "images", out / "shards")
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


@pytest.fixture(scope="session")
def alone(tmp_path_factory):
    torch.set_num_threads(1)
    return tmp_path_factory.mktemp("alone")
