"""Tell batches in a list from examples with many rows, such as sequences: the model decides."""

import torch
from torch import Tensor, nn

from toosure.batches.inputs import Inputs, moved, tensors_of
from toosure.batches.outputs import logits_in
from toosure.eval_mode import evaluating
from toosure.processes.dtensor import resharded_after
from toosure.watch.logits_model import IndexedInputs

ROUNDING = 2e-3  # of outputs, relative to the largest, by the number of rows in a batch
LOW_PRECISION_ROUNDING = 2e-2


def is_example(model: nn.Module, device: torch.device, inputs: Inputs) -> bool:
    """Whether inputs with a label for each row are one example, and not a batch of rows.

    The rows of a batch have outputs of their own, whatever the other rows are. An example is taken
    with one axis more.
    """
    inputs = moved(inputs, device)
    with evaluating(model), torch.no_grad(), resharded_after(model):
        both = outputs_of(model, inputs, [0, 1])
        second = outputs_of(model, inputs, [1])
        if both is not None and second is not None and have_own_outputs(both, second):
            return False
        return outputs_of(model, as_one_row(inputs), [0]) is not None


def as_one_row(inputs: Inputs) -> Inputs:
    """Return an example as a batch of one."""
    if isinstance(inputs, Tensor):
        return inputs[None]
    return {key: tensor[None] for key, tensor in inputs.items()}


def outputs_of(model: nn.Module, inputs: Inputs, rows: list[int]) -> Tensor | None:
    """Return the logits of some rows; None if the model does not take them."""
    try:
        indices = torch.tensor(rows, device=tensors_of(inputs)[0].device)
        return logits_in(IndexedInputs(model, inputs)(indices))
    except Exception:  # a model of yours may raise anything
        return None


def have_own_outputs(both: Tensor, second: Tensor) -> bool:
    """Whether the second of two rows has the same output as it has alone."""
    if both.shape[:1] != (2,) or second.shape[:1] != (1,) or both.shape[1:] != second.shape[1:]:
        return False
    exact = both.dtype in (torch.float32, torch.float64)
    tolerance = (ROUNDING if exact else LOW_PRECISION_ROUNDING) * float(both.abs().max())
    return torch.allclose(both[1], second[0], rtol=0, atol=tolerance, equal_nan=True)
