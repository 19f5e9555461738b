"""What a callback looks at where the user does not say, and how a watch takes counts by split."""

import json

import pytest
import torch
from loops import Net, problem
from torch.utils.data import DataLoader, TensorDataset

from toosure import Watch
from toosure.integrations.watched_loop import EXAMPLES, WatchedLoop, with_examples


def loader(n):
    return DataLoader(TensorDataset(*problem(n)), batch_size=8)


@pytest.mark.parametrize(
    ("options", "val", "drawn"),
    [
        ({}, "loader", {"train": 200, "val": 400}),
        ({}, "tensors", {"train": 200, "val": 600}),  # in memory: all
        ({"examples": 40}, "loader", {"train": 40, "val": 40}),
        ({"examples": {"val": 30}}, "loader", {"train": 600, "val": 30}),  # of 2,000 at most
        ({"budget": 0.5}, "loader", {"train": 600, "val": 600}),
    ],
)
def test_how_many_examples_a_callback_looks_at(options, val, drawn, tmp_path):
    net = Net()
    loop = WatchedLoop(None, None, None, {"run": tmp_path, "measure": "none", **options})
    held_out = loader(600) if val == "loader" else problem(600)
    loop.begin(net, torch.optim.SGD(net.parameters(), lr=0.1), loader(600), held_out)
    loop.end()
    note = json.loads((tmp_path / "examples.json").read_text())
    assert {name: note[name]["examples"] for name in drawn} == drawn


def test_without_validation_data_nothing_is_drawn_of_them():
    assert with_examples({}, {"train": loader(8), "val": None}) == {
        "examples": {"train": EXAMPLES["train"]}
    }


def test_a_count_by_split_is_checked():
    with pytest.raises(ValueError, match="examples must be"):
        Watch(Net(), None, loader(8), measure="none", examples={"train": 0})
    with pytest.raises(ValueError, match="names train, val, test; got trian"):
        Watch(Net(), None, loader(8), measure="none", examples={"trian": 5})
