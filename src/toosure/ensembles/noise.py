"""Layers with noise that is drawn in advance: by `prepare` for a step, by `predict` for a sample.

Two passes of SAM then see the same noise, and a CUDA graph reads it from tensors.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from toosure.data.seeds import derive_seed
from toosure.eval_mode import evaluating

Noise = tuple[Tensor, ...]


@runtime_checkable
class NoisyLayer(Protocol):
    """A layer that computes with its `noise`, or with the mean if it has none.

    `draw` returns the noise of a batch.
    """

    noise: Noise | None

    def draw(self, rows: int, generator: torch.Generator) -> Noise: ...


def noisy_layers(model: nn.Module) -> list[NoisyLayer]:
    """Return the layers of a network that take noise, in the order of its modules."""
    return [layer for layer in model.modules() if isinstance(layer, NoisyLayer)]


def learn_shapes(model: nn.Module, example: Tensor) -> None:
    """Pass an example through the network, so that every layer knows the shape of its noise."""
    with torch.no_grad(), evaluating(model):
        model(example)


def generator_for(device: torch.device, *numbers: int) -> torch.Generator:
    """Return a generator on the device, seeded by several numbers."""
    return torch.Generator(device).manual_seed(derive_seed(*numbers))


def draw_noise(
    layers: Sequence[NoisyLayer], rows: int, generator: torch.Generator
) -> tuple[Tensor, ...]:
    """Draw the noise of every layer for a batch, as one flat tuple."""
    return tuple(tensor for layer in layers for tensor in layer.draw(rows, generator))


@contextmanager
def noise_in(layers: Sequence[NoisyLayer], noise: Sequence[Tensor]) -> Iterator[None]:
    """Inside, the layers compute with this noise, which is spread evenly over them."""
    each = len(noise) // max(1, len(layers))
    assert each * len(layers) == len(noise)
    for place, layer in enumerate(layers):
        layer.noise = tuple(noise[place * each : (place + 1) * each])
    try:
        yield
    finally:
        for layer in layers:
            layer.noise = None
