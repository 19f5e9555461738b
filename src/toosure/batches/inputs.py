"""What a model is called with: one tensor, several in their order, or several by name."""

from typing import Any

import torch
from torch import Tensor, nn

# A tensor; or several, each under the name of an argument, or under its place (0, 1, ...).
Inputs = Tensor | dict[str | int, Tensor]


def called_with(model: nn.Module, inputs: Inputs) -> Any:
    """Call a model with inputs: one tensor, several in their order, or several by name."""
    if isinstance(inputs, Tensor):
        return model(inputs)
    by_place = [tensor for key, tensor in inputs.items() if isinstance(key, int)]
    by_name = {key: tensor for key, tensor in inputs.items() if isinstance(key, str)}
    return model(*by_place, **by_name)


def tensors_of(inputs: Inputs) -> list[Tensor]:
    """Return the tensors that inputs consist of."""
    return [inputs] if isinstance(inputs, Tensor) else list(inputs.values())


def first_of(inputs: Inputs) -> Tensor:
    """Return the first of the tensors that inputs consist of; all have as many examples."""
    return tensors_of(inputs)[0]


def rows_of(inputs: Inputs, rows: Tensor) -> Inputs:
    """Return some rows of inputs."""
    if isinstance(inputs, Tensor):
        return inputs[rows.to(inputs.device)]
    return {key: tensor[rows.to(tensor.device)] for key, tensor in inputs.items()}


def moved(inputs: Inputs, device: torch.device) -> Inputs:
    """Return inputs on a device."""
    if isinstance(inputs, Tensor):
        return inputs.to(device)
    return {key: tensor.to(device) for key, tensor in inputs.items()}


def as_type(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return floating-point numbers in another type; leave others, such as tokens, unchanged.

    Quantized weights are of no floating type, and would cut the inputs to whole numbers.
    """
    return tensor.to(dtype) if tensor.is_floating_point() and dtype.is_floating_point else tensor


def inputs_as_type(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """Return inputs with their floating numbers in a type."""
    if isinstance(inputs, Tensor):
        return as_type(inputs, dtype)
    return {key: as_type(tensor, dtype) for key, tensor in inputs.items()}
