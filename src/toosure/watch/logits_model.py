"""A model as the watch reads it: rows in, logits (n, C) out, whatever it takes and gives.

Each class wraps a model and shares its parameters; `as_rows` picks those that a split needs.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

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
from toosure.processes.dtensor import resharded_after
from toosure.processes.wrappers import unwrapped
from toosure.watch.criterion import Criterion, binary_criterion, ignored_label
from toosure.watch.probability_outputs import check_no_sigmoid
from toosure.watch.sample import Sample

MAX_FIRST = 1024  # examples of a first look
MAX_LOGITS = 1 << 27  # of a split whose examples have many rows: 512 MB in float32


@dataclass
class Rows:
    """One split as rows: `model(x)` gives logits (n, C), for labels `y`, (n,)."""

    model: nn.Module
    x: Tensor
    y: Tensor
    loss: Criterion
    per_example: float = 1.0  # how many rows an example has: tokens, pixels


class ExtractLogits(nn.Module):
    """A model that gives an object or a dict with `logits`, as those of transformers."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor, **named: Tensor) -> Tensor:
        return logits_in(self.model(*inputs, **named))


class TwoLogits(nn.Module):
    """A model with one logit z per example, as one with two: [0, z].

    The columns come from a frozen linear layer, which certified bounds know.
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
    """A model with K independent logits z per example, as one with two at K places: [0, z]."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, rows: Tensor) -> Tensor:
        logits = self.model(rows)  # (n, K)
        return torch.stack([torch.zeros_like(logits), logits], -1)


class IndexedInputs(nn.Module):
    """A model on inputs that are held here: called with the numbers of rows.

    So several inputs are one tensor to whoever measures. Floating inputs follow the type of the
    weights, which curvature raises to float32.
    """

    def __init__(self, model: nn.Module, inputs: Inputs) -> None:
        super().__init__()
        self.model = unwrapped(model)
        self.inputs = inputs

    def forward(self, rows: Tensor) -> Any:
        dtype = next(self.model.parameters()).dtype
        return called_with(self.model, inputs_as_type(rows_of(self.inputs, rows), dtype))


class PositionLogits(nn.Module):
    """A model with logits at many places of an example (tokens, pixels): called with places.

    A place is numbered `example * places + place`. Each example is passed through once, however
    many of its places are asked.
    """

    def __init__(self, model: nn.Module, shape: torch.Size) -> None:
        super().__init__()
        self.model = model
        self.shape = shape  # of the labels of one example: (T,) or (H, W)

    def forward(self, numbers: Tensor) -> Tensor:
        places = self.shape.numel()
        examples, which = (numbers // places).unique(return_inverse=True)
        logits = classes_last(self.model(examples), self.shape)
        return logits.flatten(1, -2)[which, numbers % places]


def as_rows(
    name: str, model: nn.Module, sample: Sample, loss: Criterion | None, device: torch.device
) -> Rows:
    """Bring a split to the device, as rows with one label and one row of logits each.

    What a model gives is seen from its first two examples.
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
        return rows_of_places(name, held, labels, outputs, loss)
    if isinstance(loss, nn.BCEWithLogitsLoss) and labels.shape[1:] == outputs.shape[1:]:
        return rows_of_labels(name, held, labels, outputs, loss)

    if labels.ndim == 1:
        check_takes_classes(loss, outputs.shape[1])
        kept = not_ignored(name, labels, loss)
        if not bool(kept.all()):
            x = x[kept]
            labels = labels[kept]
    return Rows(model, x, as_labels(labels, len(x), outputs.shape[1]), loss)


def as_logits_model(model: nn.Module, x: Tensor) -> tuple[nn.Module, Tensor, Tensor]:
    """Return a model as one that gives its logits as a tensor; its inputs; its first logits.

    Inputs come in a type that the model takes: their own, or that of its weights. A model whose one
    output is a probability is refused.
    """
    x, outputs = first_outputs(model, x)
    if not isinstance(outputs, Tensor):
        model = ExtractLogits(model)
        outputs = logits_in(outputs)
    if is_one_column(outputs):
        check_no_sigmoid(model, x)
    return model, x, outputs


def check_takes_classes(loss: Criterion, classes: int) -> None:
    """Raise where torch's loss compares outputs (N, C) with labels of that shape, not classes."""
    if isinstance(loss, nn.BCEWithLogitsLoss | nn.MSELoss):
        ours = "toosure.losses.MSELoss()" if isinstance(loss, nn.MSELoss) else "CrossEntropyLoss()"
        raise ValueError(
            f"the model has {classes} outputs per example and the labels are numbers of classes, "
            f"which {type(loss).__name__} does not take: give {ours}, or labels (N, {classes})"
        )


def rows_of_labels(
    name: str, model: nn.Module, labels: Tensor, outputs: Tensor, loss: nn.BCEWithLogitsLoss
) -> Rows:
    """Return independent labels (N, K) as rows of two classes: every label of every example.

    So all quantities are those of the entries pooled, and class 1 is a label that is given.
    """
    if loss.weight is not None or loss.pos_weight is not None:
        raise ValueError(
            "a watch of several labels per example takes a BCEWithLogitsLoss without weights: give "
            "`loss=nn.BCEWithLogitsLoss()` to the watch, and train with your own"
        )
    check_no_sigmoid(model, torch.arange(min(2, len(labels)), device=labels.device))
    given = binary_labels(labels.reshape(-1)).reshape(labels.shape)
    two = torch.stack([torch.zeros_like(outputs), outputs], -1)
    return rows_of_places(name, LabelLogits(model), given, two, nn.CrossEntropyLoss())


def rows_of_places(
    name: str, model: nn.Module, labels: Tensor, outputs: Tensor, loss: Criterion
) -> Rows:
    """Return tokens or pixels as rows, without those that are ignored."""
    shape = labels.shape[1:]
    classes = classes_last(outputs, shape).shape[-1]

    # As many whole examples as have logits that can be kept: they are in random order.
    kept = not_ignored(name, labels, loss).flatten(1)  # (N, places)
    fits = kept.sum(1).cumsum(0) <= MAX_LOGITS // classes
    examples = max(1, int(fits.sum()))
    numbers = kept[:examples].flatten().nonzero().flatten()

    y = as_labels(labels[:examples].flatten()[numbers], len(numbers), classes)
    return Rows(PositionLogits(model, shape), numbers, y, loss, len(numbers) / examples)


def not_ignored(name: str, labels: Tensor, loss: Criterion) -> Tensor:
    """Return which labels count, those that are not the loss's `ignore_index`; raise if none."""
    kept = labels != ignored_label(loss)
    if not bool(kept.any()):
        raise ValueError(f"every label of {name} is ignored: give labels of at least one row")
    return kept


def first_outputs(model: nn.Module, x: Tensor) -> tuple[Tensor, Any]:
    """Return the inputs as a model takes them, and what it gives for the first ones.

    Where it does not take the type of the inputs (float64 of NumPy), that of its weights is tried:
    the loop will convert them, too. And more examples, as it may be made for one size of batch.
    """
    types = dict.fromkeys((x.dtype, next(model.parameters()).dtype))
    with evaluating(model), torch.no_grad(), resharded_after(model):
        for count in (2, MAX_FIRST):
            for dtype in types:
                with suppress(RuntimeError):
                    outputs = model(as_type(x[:count], dtype))
                    return as_type(x, dtype), outputs
        return x, model(x[:MAX_FIRST])  # fails, in the words of the model


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
    for tensor in tensors_of(inputs):
        if not tensor.is_floating_point():
            continue
        bad = (~torch.isfinite(tensor.flatten(1).sum(1))).nonzero()
        if len(bad):
            raise ValueError(
                f"{name} inputs must be finite; example {int(bad[0])} holds NaN or infinity"
            )
