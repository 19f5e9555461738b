"""Wrap any model as a function from rows to logits (n, C).

Each class wraps a model and shares its parameters; `as_rows` picks the wrappers of a split.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from toosure.batches.inputs import (
    Inputs,
    as_type,
    called_with,
    inputs_as_type,
    moved,
    rows_of,
    tensors_of,
)
from toosure.batches.outputs import logits_in
from toosure.binary import binary_labels, is_one_column
from toosure.eval_mode import evaluating
from toosure.metrics.inputs import as_labels
from toosure.metrics.label_hints import are_independent
from toosure.processes.dtensor import resharded_after
from toosure.processes.wrappers import unwrapped
from toosure.runs.row_units import unit_array
from toosure.watch.criterion import Criterion, binary_criterion, ignored_label
from toosure.watch.probability_outputs import check_no_sigmoid
from toosure.watch.sample import Sample

MAX_FIRST = 1024  # examples of the first pass
MAX_LOGITS = 1 << 27  # of a split whose examples have many rows: 512 MB in float32


@dataclass
class Rows:
    """One split as rows: `model(x)` gives logits (n, C), for labels `y`, (n,)."""

    model: nn.Module
    x: Tensor
    y: Tensor
    loss: Criterion
    classes: int = 2
    per_example: float = 1.0  # how many rows an example has: tokens, pixels
    unit: str = ""  # what an example with many rows is: a sequence, an image
    example_of_row: Tensor | None = None  # (n,), if examples have many rows

    def group_arrays(self, name: str) -> dict[str, np.ndarray]:
        """Return which rows belong together, as it is saved beside predictions."""
        if self.example_of_row is None:
            return {}
        return {unit_array(name, self.unit): self.example_of_row.cpu().numpy()}


class ExtractLogits(nn.Module):
    """Return the `logits` of a model that gives an object or a dict, as in transformers."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor, **named: Tensor) -> Tensor:
        return logits_in(self.model(*inputs, **named))


class TwoLogits(nn.Module):
    """Return two logits per example, [0, z], of a model with one logit z.

    A frozen linear layer makes the columns, because certified bounds know linear layers.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        like = next(model.parameters())
        self.columns = nn.Linear(1, 2, bias=False, device=like.device, dtype=like.dtype)
        self.columns.weight.requires_grad_(False).copy_(torch.tensor([[0.0], [1.0]]))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.columns(self.model(x).reshape(-1, 1))
        return logits


class LabelLogits(nn.Module):
    """Return [0, z] for each of K independent logits z per example."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, rows: Tensor) -> Tensor:
        logits = self.model(rows)  # (n, K)
        return torch.stack([torch.zeros_like(logits), logits], -1)


class IndexedInputs(nn.Module):
    """Call a model on stored inputs by the indices of rows.

    So the measuring code sees one tensor, whatever the model takes. Floating-point inputs get the
    type of the weights, which curvature raises to float32.
    """

    def __init__(self, model: nn.Module, inputs: Inputs) -> None:
        super().__init__()
        self.model = unwrapped(model)
        self.inputs = inputs

    def forward(self, rows: Tensor) -> Any:
        dtype = next(self.model.parameters()).dtype
        return called_with(self.model, inputs_as_type(rows_of(self.inputs, rows), dtype))


class PositionLogits(nn.Module):
    """Return the logits of single positions (tokens, pixels) of examples, by their indices.

    A position has the index `example * positions + position`. Each example passes the model once,
    however many of its positions are asked for.
    """

    def __init__(self, model: nn.Module, shape: torch.Size) -> None:
        super().__init__()
        self.model = model
        self.shape = shape  # of the labels of one example: (T,) or (H, W)

    def forward(self, numbers: Tensor) -> Tensor:
        positions = self.shape.numel()
        examples, which = (numbers // positions).unique(return_inverse=True)
        logits = classes_last(self.model(examples), self.shape)
        return logits.flatten(1, -2)[which, numbers % positions]


def as_rows(
    name: str, model: nn.Module, sample: Sample, loss: Criterion | None, device: torch.device
) -> Rows:
    """Move a split to the device as rows, each with one label and one row of logits.

    The model's outputs on its first two examples decide which wrappers it needs.
    """
    inputs = moved(sample.inputs, device)
    labels = sample.labels.to(device)
    check_finite_inputs(name, inputs)

    if isinstance(inputs, Tensor):
        x = inputs
    else:
        model = IndexedInputs(model, inputs)
        x = torch.arange(len(labels), device=device)

    model, x, outputs = as_logits_model(model, x)
    if is_one_column(outputs):
        y = binary_labels(labels, len(x))
        return Rows(TwoLogits(model), x, y, binary_criterion(loss, outputs.ndim))

    loss = nn.CrossEntropyLoss() if loss is None else loss
    held = IndexedInputs(model, inputs) if isinstance(inputs, Tensor) else model
    if outputs.ndim > 2:
        return rows_of_positions(name, held, labels, outputs, loss)
    if isinstance(loss, nn.BCEWithLogitsLoss) and labels.shape[1:] == outputs.shape[1:]:
        return rows_of_labels(name, held, labels, outputs, loss)
    if labels.shape[1:] == outputs.shape[1:] and are_independent(labels):
        raise ValueError(
            f"{name} has several labels per example, {tuple(labels.shape)}: if each is a yes or no "
            "by itself, give the watch loss=nn.BCEWithLogitsLoss()"
        )

    if labels.ndim == 1:
        check_takes_classes(loss, outputs.shape[1])
        kept = not_ignored(name, labels, loss)
        if not bool(kept.all()):
            x = x[kept]
            labels = labels[kept]
    classes = outputs.shape[1]
    return Rows(model, x, as_labels(labels, len(x), classes), loss, classes)


def as_logits_model(model: nn.Module, x: Tensor) -> tuple[nn.Module, Tensor, Tensor]:
    """Return the model with a tensor of logits as output, its inputs, and its first logits.

    The inputs keep their type if the model takes it, else they get the type of the weights. A model
    with one probability as output is refused.
    """
    x, outputs = first_outputs(model, x)
    if not isinstance(outputs, Tensor):
        model = ExtractLogits(model)
        outputs = logits_in(outputs)
    if is_one_column(outputs):
        check_no_sigmoid(model, x)
    return model, x, outputs


def check_takes_classes(loss: Criterion, classes: int) -> None:
    """Raise if a loss needs labels of the outputs' shape (N, C), and the labels are classes."""
    if isinstance(loss, nn.BCEWithLogitsLoss | nn.MSELoss):
        ours = "toosure.losses.MSELoss()" if isinstance(loss, nn.MSELoss) else "CrossEntropyLoss()"
        raise ValueError(
            f"{type(loss).__name__} needs labels (N, {classes}), like the model's outputs; got "
            f"class numbers: give {ours}, or labels (N, {classes})"
        )


def rows_of_labels(
    name: str, model: nn.Module, labels: Tensor, outputs: Tensor, loss: nn.BCEWithLogitsLoss
) -> Rows:
    """Return independent labels (N, K) as rows of two classes: every label of every example.

    All quantities are then of the pooled entries; class 1 means that the label is present.
    """
    if loss.weight is not None or loss.pos_weight is not None:
        raise ValueError(
            "with several labels per example a watch takes BCEWithLogitsLoss without weights: give "
            "the watch `loss=nn.BCEWithLogitsLoss()`, and train with your own"
        )
    check_no_sigmoid(model, torch.arange(min(2, len(labels)), device=labels.device))
    given = binary_labels(labels.reshape(-1)).reshape(labels.shape)
    two = torch.stack([torch.zeros_like(outputs), outputs], -1)
    rows = rows_of_positions(name, LabelLogits(model), given, two, nn.CrossEntropyLoss())
    return replace(rows, unit="example")


def rows_of_positions(
    name: str, model: nn.Module, labels: Tensor, outputs: Tensor, loss: Criterion
) -> Rows:
    """Return tokens or pixels as rows, without those that are ignored."""
    shape = labels.shape[1:]
    classes = classes_last(outputs, shape).shape[-1]

    # Keep as many whole examples as fit; they are in random order.
    kept = not_ignored(name, labels, loss).flatten(1)  # (N, positions)
    fits = kept.sum(1).cumsum(0) <= MAX_LOGITS // classes
    examples = max(1, int(fits.sum()))
    numbers = kept[:examples].flatten().nonzero().flatten()

    y = as_labels(labels[:examples].flatten()[numbers], len(numbers), classes)
    unit = "sequence" if len(shape) == 1 else "image"
    return Rows(
        PositionLogits(model, shape),
        numbers,
        y,
        loss,
        classes,
        per_example=len(numbers) / examples,
        unit=unit,
        example_of_row=numbers // shape.numel(),
    )


def not_ignored(name: str, labels: Tensor, loss: Criterion) -> Tensor:
    """Return which labels differ from the loss's `ignore_index`; raise if none does."""
    kept = labels != ignored_label(loss)
    if not bool(kept.any()):
        raise ValueError(f"every label of {name} is ignored: give labels of at least one row")
    return kept


def first_outputs(model: nn.Module, x: Tensor) -> tuple[Tensor, Any]:
    """Return the inputs in a type that the model takes, and its first outputs.

    If the model fails on the inputs' own type (float64 from NumPy), the type of its weights is
    tried, to which the training loop must convert as well. Then the same with more examples,
    because the model may need a certain batch size.
    """
    types = dict.fromkeys((x.dtype, next(model.parameters()).dtype))
    with evaluating(model), torch.no_grad(), resharded_after(model):
        for count in (2, MAX_FIRST):
            for dtype in types:
                with suppress(RuntimeError):
                    outputs = model(as_type(x[:count], dtype))
                    return as_type(x, dtype), outputs
        return x, model(x[:MAX_FIRST])  # raises the model's own error


def classes_last(logits: Tensor, shape: torch.Size) -> Tensor:
    """Return logits of labels (N, *shape) as (N, *shape, C); they may come as (N, C, *shape)."""
    if logits.shape[1:-1] == shape:
        return logits
    if logits.shape[2:] == shape:
        return logits.movedim(1, -1)
    raise ValueError(
        f"the model gives logits {tuple(logits.shape)} and the labels of an example have shape "
        f"{tuple(shape)}: they must be (N, ..., C) or (N, C, ...) for labels (N, ...)"
    )


def check_finite_inputs(name: str, inputs: Inputs) -> None:
    """Raise on NaN or infinity in the inputs of a split, and name the first example."""
    for tensor in tensors_of(inputs):
        if not tensor.is_floating_point():
            continue
        bad = (~torch.isfinite(tensor.reshape(len(tensor), -1).sum(1))).nonzero()
        if len(bad):
            raise ValueError(
                f"{name} inputs must be finite; example {int(bad[0])} holds NaN or infinity"
            )
