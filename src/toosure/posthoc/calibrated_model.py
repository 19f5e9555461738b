"""A model with its calibrator: fitted from a data loader, and wrapped as one module."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, default_collate

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
LOCK = Lock()  # of the modes that `Calibrated` keeps; not in the module, which is pickled


class Calibrated(nn.Module):
    """Apply a calibrator to the outputs of a model.

    The calibrator belongs to the model in evaluation mode, so the model runs in that mode, also
    where it was left in training mode. Only `train()` of this module changes that. Several threads
    may call it at once.

    >>> from toosure.posthoc import Identity
    >>> Calibrated(nn.Linear(4, 3), Identity())(torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(self, model: nn.Module, calibrator: Calibrator) -> None:
        super().__init__()
        self.model = model
        self.calibrator = calibrator
        self.training = False
        self.callers = 0  # threads that the model is held in eval mode for
        self.left_in_training: list[nn.Module] = []  # its modules that were not, before the first

    def forward(self, *inputs: object, **named: object) -> Tensor:
        """Return calibrated logits."""
        with nullcontext() if self.training else self.in_eval_mode():
            outputs = self.model(*inputs, **named)

        logits: Tensor = self.calibrator(logits_in(outputs))
        return logits

    def in_eval_mode(self) -> AbstractContextManager[None]:
        """Hold the model in eval mode; while it is traced, without locks, which Dynamo refuses."""
        if torch.compiler.is_compiling():
            return evaluating(self.model)
        return self.shared_eval_mode()

    @contextmanager
    def shared_eval_mode(self) -> Iterator[None]:
        """Hold the model in eval mode until the last of several threads has left."""
        with LOCK:
            if not self.callers:
                self.left_in_training = [m for m in self.model.modules() if m.training]
            self.callers += 1
            for module in self.left_in_training:
                module.training = False
        try:
            yield
        finally:
            with LOCK:
                self.callers -= 1
                for module in () if self.callers else self.left_in_training:
                    module.training = True

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
    batches, a Dataset or a list of examples, or (inputs, labels) in memory; all of it is used.
    `inputs` and `labels` say which part of a batch is which. The model gives logits (N, C), or one
    logit per example of a binary classifier; as a tensor, a dict with "logits" or an object with
    `.logits`.

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
        for batch in batches_of(data, reader):
            x, y = reader.read("the data", without_rest(batch, reader))
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


def batches_of(data: Any, reader: BatchReader) -> Iterable[Any]:
    """Return the batches of all examples: of tensors in memory, a data set or a loader."""
    batch = one_batch(data)
    if batch is not None:
        return [batch]
    by_index = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    if by_index and (not isinstance(data, tuple | list) or are_examples(data, reader)):
        return DataLoader(data, CHUNK)
    batches: Iterable[Any] = data
    return batches


def are_examples(data: Sequence[Any], reader: BatchReader) -> bool:
    """Whether a list holds examples, as a Dataset does: its first item is no batch, joined it is.

    What is neither is left to the reader, whose errors say what a batch may be.
    """
    with suppress(Exception):
        reader.read("the data", without_rest(data[0], reader))
        return False
    with suppress(Exception):
        reader.read("the data", without_rest(default_collate([data[0]]), reader))
        return True
    return False


def without_rest(batch: Any, reader: BatchReader) -> Any:
    """Return a batch without what comes after inputs and labels, unless parts are named."""
    if isinstance(batch, tuple | list) and reader.inputs is reader.labels is None:
        return batch[:2]
    return batch
