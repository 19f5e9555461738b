"""Count the numbers that a run learns: its network's parameters, and gamma-net's."""

from types import SimpleNamespace

import torch
from torch import nn

from toosure.config import RunConfig
from toosure.data.catalogue import SOURCES, Source
from toosure.ensembles import ENSEMBLES


def network_size(config: RunConfig) -> int:
    """Return the number of parameters of the network, including all members of an ensemble."""
    model = network_of(config)
    objective = config.word("objective") if config.objective else None
    if objective is None or objective.name not in ENSEMBLES:
        return size_of(model)

    ensemble = objective.build(seed=0)
    if objective.name == "deep_ensemble":
        return int(ensemble.members) * size_of(model)
    ensemble.setup(model, (torch.zeros(2, *data_of(config).shape), torch.tensor([0, 1])))
    return size_of(model)


def learned_size(config: RunConfig) -> int:
    """Return how many numbers a run learns: the parameters of the network and of gamma-net."""
    if not config.objective:
        return network_size(config)
    objective = config.word("objective").build(seed=0)
    if not hasattr(objective, "make_hyper"):
        return network_size(config)

    model = network_of(config)
    inputs = torch.zeros(2, *data_of(config).shape)
    data = SimpleNamespace(train=SimpleNamespace(x=inputs))
    return size_of(model) + size_of(objective.make_hyper(model, data))


def network_of(config: RunConfig) -> nn.Module:
    """Build the network of a run for the inputs and classes of its data set."""
    data = data_of(config)
    network: nn.Module = config.word("model").build(inputs=data.shape, classes=data.classes)
    return network


def data_of(config: RunConfig) -> Source:
    """Return the catalogue's entry of a run's data; raise ValueError if it has none."""
    name = config.data.partition(":")[0]
    if name not in SOURCES:
        raise ValueError(f"parameters are counted on {', '.join(SOURCES)}; got {name}")
    return SOURCES[name]


def size_of(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
