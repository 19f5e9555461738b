"""How many numbers a run learns: the network's, and those of its hyper-parameters beside them."""

from types import SimpleNamespace

import torch

from toosure.config import RunConfig

CLASSES = {"cifar10": 10, "cifar100": 100, "tiny_imagenet": 200, "imagenet": 1000}
INPUTS = {"digits": (1, 8, 8), "tiny_imagenet": (3, 64, 64), "imagenet": (3, 224, 224)}


def parameter_count(config: RunConfig) -> int:
    """Return how many numbers are learned: the network's, and gamma-net's beside them."""
    data = config.data.partition(":")[0]
    inputs = INPUTS.get(data, (3, 32, 32))
    model = config.word("model").build(inputs=inputs, classes=CLASSES.get(data, 10))
    parameters = list(model.parameters())

    if config.objective:
        objective = config.word("objective").build(seed=0)
        example = SimpleNamespace(train=SimpleNamespace(x=torch.zeros(2, *inputs)))
        parameters += list(objective.make_hyper(model, example).parameters())
    return sum(parameter.numel() for parameter in parameters)
