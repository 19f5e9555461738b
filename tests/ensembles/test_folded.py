"""Members side by side in channels compute what they compute one after another."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from toosure import models
from toosure.ensembles.folded import DenseConvolution
from toosure.ensembles.members_at_once import MembersAtOnce

SMALL = {
    "resnet20": lambda: models.resnet20(inputs=(3, 8, 8)),
    "resnet18": lambda: models.resnet18(inputs=(3, 8, 8), width=16),
    "wrn": lambda: models.wrn(inputs=(3, 8, 8), depth=10, width=1),
    "pyramidnet": lambda: models.pyramidnet110(inputs=(3, 8, 8), alpha=4),
    "mlp": lambda: models.mlp((3, 8, 8), 10, width=8),
}
EXAMPLE = torch.zeros(1, 3, 8, 8, dtype=torch.float64)


def members(make, count=3):
    torch.manual_seed(0)
    return [make().double() for _ in range(count)]


def compare(networks, together, inputs, tolerance=1e-12):
    """Compare logits, gradients and running statistics of a training pass."""
    alone = [deepcopy(network) for network in networks]
    apart = torch.stack([network(x) for network, x in zip(alone, inputs, strict=True)])
    at_once = together(inputs)
    torch.testing.assert_close(
        at_once, apart, rtol=0, atol=tolerance * float(apart.detach().abs().max())
    )

    weights = torch.randn_like(apart)
    (apart * weights).sum().backward()
    (at_once * weights).sum().backward()
    for one, two in zip(alone, networks, strict=True):
        for name, parameter in one.named_parameters():
            found = two.get_parameter(name).grad
            size = float(parameter.grad.abs().max())
            torch.testing.assert_close(found, parameter.grad, rtol=0, atol=10 * tolerance * size)
        for name, buffer in one.named_buffers():
            torch.testing.assert_close(two.get_buffer(name), buffer, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("narrow", [0, 16, 1000])
@pytest.mark.parametrize("name", ["resnet20", "resnet18", "wrn", "mlp"])
def test_a_folded_step_is_that_of_the_members(name, narrow):
    networks = members(SMALL[name])
    together = MembersAtOnce(networks, EXAMPLE, narrow)
    assert together.network is not None
    compare(networks, together, torch.randn(3, 4, 3, 8, 8, dtype=torch.float64), 1e-11)


def test_shortcuts_that_pad_channels_are_padded_per_member():
    networks = members(SMALL["pyramidnet"], 2)
    together = MembersAtOnce(networks, EXAMPLE)
    assert together.network is not None
    compare(networks, together, torch.randn(2, 4, 3, 8, 8, dtype=torch.float64), 1e-9)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_narrow_convolutions_are_dense_and_keep_their_layout(layout):
    networks = [network.to(memory_format=layout) for network in members(SMALL["resnet20"])]
    together = MembersAtOnce(networks, EXAMPLE, narrow=16)
    dense = [m for m in together.network.modules() if isinstance(m, DenseConvolution)]
    assert len(dense) == 7  # the stem and the first stage; the others have 32 channels and more

    weight = dense[1].block_diagonal(torch.eye(3, dtype=torch.bool))
    assert weight.shape == (48, 48, 3, 3) and weight.is_contiguous(memory_format=layout)
    expected = torch.zeros_like(weight)
    for m, block in enumerate(dense[1].weight.view(3, 16, 16, 3, 3)):
        expected[16 * m : 16 * m + 16, 16 * m : 16 * m + 16] = block
    assert torch.equal(weight, expected)
    compare(networks, together, torch.randn(3, 4, 3, 8, 8, dtype=torch.float64), 1e-11)


class Concatenating(nn.Module):
    """Concatenate channels, which folded members would be mixed up by."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.second = nn.Conv2d(7, 4, 3, padding=1)
        self.head = nn.Linear(4, 10)

    def forward(self, x):
        x = torch.cat([x, F.relu(self.first(x))], 1)
        return self.head(self.second(x).mean((2, 3)))


class SlightlyMixing(nn.Module):
    """Add a little of the mean over channels, which would be that of all members."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.head = nn.Linear(4, 10)

    def forward(self, x):
        x = self.conv(x)
        return self.head((x + 1e-3 * x.mean(1, keepdim=True)).mean((2, 3)))


class Scaled(nn.Module):
    """Hold a parameter of its own, beside layers that can be folded."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(192, 10)
        self.scale = nn.Parameter(torch.ones(10))

    def forward(self, x):
        return self.scale * self.head(x.flatten(1))


def with_cumulative_statistics():
    """Return a network whose BatchNorm averages over all batches."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(192, 6), nn.BatchNorm1d(6, momentum=None), nn.Linear(6, 10)
    )


@pytest.mark.parametrize("make", [Concatenating, SlightlyMixing, Scaled])
def test_networks_that_do_not_fold_run_under_vmap(make):
    networks = members(make)
    together = MembersAtOnce(networks, EXAMPLE)
    assert together.network is None
    compare(networks, together, torch.randn(3, 4, 3, 8, 8, dtype=torch.float64))


@pytest.mark.parametrize(
    "make",
    [
        with_cumulative_statistics,
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), nn.Flatten(), nn.Linear(256, 10)
        ),
        lambda: nn.Linear(8, 10),
    ],
    ids=["cumulative statistics", "circular padding", "a layer alone"],
)
def test_settings_that_are_not_known_are_not_folded(make):
    networks = members(make)
    example = EXAMPLE if not isinstance(networks[0], nn.Linear) else EXAMPLE[0, 0, :1]
    assert MembersAtOnce(networks, example).network is None


def test_the_check_leaves_modes_and_random_numbers_alone():
    networks = members(SMALL["wrn"])
    torch.manual_seed(3)
    MembersAtOnce(networks, EXAMPLE)
    drawn = torch.rand(1)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(1))
    assert all(network.training for network in networks)


def test_frozen_layers_stay_frozen():
    networks = members(SMALL["wrn"])
    for network in networks:
        network.head.weight.requires_grad_(False)
    together = MembersAtOnce(networks, EXAMPLE)
    together(torch.randn(3, 4, 3, 8, 8, dtype=torch.float64)).sum().backward()
    assert all(network.head.weight.grad is None for network in networks)
    assert all(network.head.bias.grad is not None for network in networks)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("narrow", [0, 16])
@pytest.mark.parametrize("name", ["resnet20", "resnet18"])
def test_on_a_gpu_a_folded_step_is_that_of_the_members(name, narrow):
    networks = [network.cuda() for network in members(SMALL[name])]
    together = MembersAtOnce(networks, EXAMPLE.cuda(), narrow)
    assert together.network is not None
    inputs = torch.randn(3, 4, 3, 8, 8, dtype=torch.float64, device="cuda")
    compare(networks, together, inputs, 1e-10)
