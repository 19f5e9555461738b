"""Layers that a network holds under two names are replaced by one, and stay shared."""

import pytest
import torch
from torch import nn

from toosure.ensembles import VI, BatchEnsemble, Rank1
from toosure.ensembles.convert import weighted_layers

X = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
Y = torch.arange(6) % 3


class Recurrent(nn.Module):
    """One hidden layer that is run twice, and held under two names; so is a block with another."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 5)
        self.second = self.first
        self.block = nn.Sequential(nn.Linear(5, 5), nn.ReLU())
        self.again = self.block
        self.head = nn.Linear(5, 3)
        nn.init.ones_(self.first.bias)
        nn.init.ones_(self.block[0].bias)

    def forward(self, x):
        x = self.block(self.first(x).relu())
        return self.head(self.again(self.second(x).relu()))


@pytest.mark.parametrize("ensemble", [BatchEnsemble, Rank1, VI])
def test_a_shared_layer_stays_shared_and_keeps_its_bias(ensemble):
    model = Recurrent().eval()
    wanted = model(X)
    objective = ensemble()
    objective.setup(model, (X, Y))
    assert model.second is model.first and model.again[0] is model.block[0]

    for name, p in model.named_parameters():
        if name.endswith(("read", "given")):
            nn.init.ones_(p)
    predict = getattr(objective, "mean_predict", objective.predict)
    torch.testing.assert_close(predict(model, X).softmax(1), wanted.softmax(1))

    (group,) = objective.parameters()
    assert len({id(p) for p in group["params"]}) == len(group["params"])


def test_a_layer_is_listed_once():
    assert list(weighted_layers(Recurrent())) == ["first", "block.0", "head"]
