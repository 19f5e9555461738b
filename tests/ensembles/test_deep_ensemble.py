"""Members of a deep ensemble in a loop of one's own: what is drawn again, and what is not."""

import warnings
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from toosure.ensembles import DeepEnsemble
from toosure.ensembles.deep_ensemble import members_of

X = torch.randn(6, 3, 4, generator=torch.Generator().manual_seed(0))
Y = torch.arange(6) % 3


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.attention(x, x, x)[0].mean(1))


def test_attention_is_drawn_again_for_every_member():
    model = Attention()
    DeepEnsemble(members=3).setup(model, (X, Y))
    starts = [member.attention.in_proj_weight for member in members_of(model)]
    assert not torch.equal(starts[0], starts[1]) and not torch.equal(starts[1], starts[2])
    # As torch builds it: the layer inside does not have the bias of a Linear.
    assert not any(m.attention.out_proj.bias.any() for m in members_of(model))


def test_weights_that_nothing_draws_are_named():
    """Weight norm computes the weight of a layer, so that drawing it again changes nothing."""
    model = nn.Sequential(nn.Flatten(), weight_norm(nn.Linear(12, 3, bias=False)))
    with pytest.warns(UserWarning, match=r"start alike in 1\.parametrizations.*make_network"):
        DeepEnsemble(members=2).setup(model, (X, Y))


def test_a_function_that_builds_networks_draws_them():
    def make(seed):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), weight_norm(nn.Linear(12, 3, bias=False)))

    objective = DeepEnsemble(members=2)
    objective.make_network = make
    model = make(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        objective.setup(model, (X, Y))
    one, other = objective.member_logits(model, X)
    assert not torch.allclose(one, other)


def test_weights_that_a_function_builds_alike_are_named():
    """Such as pretrained ones: the function is there, and is not what to set."""
    objective = DeepEnsemble(members=2)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    objective.make_network = lambda seed: deepcopy(network)
    with pytest.warns(UserWarning, match=r"start alike in 1\.weight, .* alike for every seed$"):
        objective.setup(network, (X, Y))


def test_members_may_be_of_another_kind():
    objective = DeepEnsemble(members=2)
    objective.make_network = lambda seed: nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(12, 3))
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    objective.setup(model, (X, Y))
    assert objective.member_logits(model, X).shape == (2, 6, 3)


def test_a_frozen_part_is_the_same_in_all_members():
    """A pretrained part that does not learn would be of no use with other weights."""
    trunk = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.BatchNorm1d(8))
    trunk(5 + X)  # its statistics
    trunk.eval().requires_grad_(False)
    model = nn.Sequential(trunk, nn.ReLU(), nn.Linear(8, 3))
    model[2].bias.requires_grad_(False)
    DeepEnsemble(members=2).setup(model, (X, Y))

    one, other = members_of(model)
    assert torch.equal(one[0](X), other[0](X))
    assert torch.equal(one[2].bias, other[2].bias)
    assert not torch.equal(one[2].weight, other[2].weight)
