"""A model with its calibrator: fitted from a data loader, and wrapped as one module."""

from collections.abc import Iterable
from contextlib import nullcontext, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from toosure.batches.inputs import Inputs, called_with, inputs_as_type, moved, rows_of
from toosure.batches.outputs import logits_in
from toosure.batches.reader import BatchReader, InputsOf, LabelsOf, one_batch
from toosure.binary import is_one_column, two_columns
from toosure.eval_mode import evaluating
from toosure.posthoc.all_calibrators import CALIBRATORS
from toosure.posthoc.calibrator import Calibrator
from toosure.posthoc.select import choose

CHUNK = 1024  # examples of a forward pass
IGNORED = -100  # label of rows to leave out


class Calibrated(nn.Module):
    """Apply a calibrator to the outputs of a model.

    The calibrator belongs to the model in evaluation mode, so the model runs in that mode, also
    where it was left in training mode. Only `train()` of this module changes that.

    >>> from toosure.posthoc import Identity
    >>> Calibrated(nn.Linear(4, 3), Identity())(torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(self, model: nn.Module, calibrator: Calibrator) -> None:
        super().__init__()
        self.model = model
        self.calibrator = calibrator
        self.training = False

    def forward(self, *inputs: object, **named: object) -> Tensor:
        """Return calibrated logits."""
        left_in_training = not self.training and any(m.training for m in self.model.modules())
        with evaluating(self.model) if left_in_training else nullcontext():
            outputs = self.model(*inputs, **named)

        logits: Tensor = self.calibrator(logits_in(outputs))
        return logits

    def predict_proba(self, *inputs: object, **named: object) -> Tensor:
        """Return calibrated probabilities, (N, C); (N, 2) of a model with one output."""
        logits: Tensor = self(*inputs, **named)
        return (two_columns(logits) if is_one_column(logits) else logits).softmax(1)


def calibrate(
    model: nn.Module,
    loader: Any,
    method: str | Calibrator = "auto",
    folds: int = 5,
    seed: int = 0,
    *,
    inputs: InputsOf = None,
    labels: LabelsOf = None,
) -> Calibrated:
    """Fit a calibrator on rows that were not trained on, and wrap the model.

    `loader` is what `Watch.of` takes (docs/watch.md): a loader of (inputs, labels, ...) or dict
    batches, a Dataset, or (inputs, labels) in memory; all of it is used. `inputs` and `labels` say
    which part of a batch is which. The model gives logits (N, C), or one logit per example of a
    binary classifier; as a tensor, a dict with "logits" or an object with `.logits`.

    "auto" tries all and takes the one with the lowest NLL on rows it was not fitted on, or the
    identity if none helps. Or name one ("temperature"), or give one (`Dirichlet(lam=0.1)`).

    >>> x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    >>> y = torch.multinomial((x / 2).softmax(1), 1).squeeze(1)
    >>> calibrate(nn.Flatten(), (x, y), "temperature").calibrator.note
    ''
    """
    logits, truth = collect_logits(model, loader, BatchReader(inputs, labels))
    if isinstance(method, Calibrator):
        return Calibrated(model, method.fit(logits, truth))

    if method == "auto":
        calibrator = choose(logits, truth, CALIBRATORS, folds, seed).calibrator
    elif method in CALIBRATORS:
        calibrator = CALIBRATORS[method]().fit(logits, truth)
    else:
        raise ValueError(f"method must be auto or one of {', '.join(CALIBRATORS)}; got {method!r}")
    return Calibrated(model, calibrator)


@torch.no_grad()
def collect_logits(model: nn.Module, data: Any, reader: BatchReader) -> tuple[Tensor, Tensor]:
    """Return the logits and labels of all rows, with the model in eval mode meanwhile.

    Rows with label -100 are left out, as in torch's losses.
    """
    reader.learn_from(model, IGNORED)
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    logits: list[Tensor] = []
    labels: list[Tensor] = []
    with evaluating(model):
        for batch in batches_of(data):
            if isinstance(batch, tuple | list) and reader.inputs is reader.labels is None:
                batch = batch[:2]  # ignore what comes after inputs and labels
            x, y = reader.read("the data", batch)
            for rows in torch.arange(len(y)).split(CHUNK):
                logits.append(logits_in(outputs_of(model, moved(rows_of(x, rows), device))))
            labels.append(y.to(device))

    if not logits:
        raise ValueError("the loader gave no batches: it must yield (inputs, labels)")
    truth = torch.cat(labels)
    kept = truth != IGNORED if truth.ndim == 1 else slice(None)
    return torch.cat(logits)[kept], truth[kept]


def outputs_of(model: nn.Module, inputs: Inputs) -> Any:
    """Call a model on inputs; convert them to the type of its weights if it refuses theirs.

    Arrays of NumPy are often float64, and a loop converts them before it calls the model.
    """
    dtype = next((p.dtype for p in model.parameters()), None)
    if dtype is not None:
        with suppress(RuntimeError):
            return called_with(model, inputs)
        inputs = inputs_as_type(inputs, dtype)
    return called_with(model, inputs)


def batches_of(data: Any) -> Iterable[Any]:
    """Return the batches of all examples: of tensors in memory, a data set or a loader."""
    batch = one_batch(data)
    if batch is not None:
        return [batch]
    by_index = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    if by_index and not isinstance(data, tuple | list):
        return DataLoader(data, CHUNK)
    batches: Iterable[Any] = data
    return batches
