"""Batches as a loader gives them: which part is the inputs, which the labels, and all as one."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from toosure.batches.inputs import Inputs, first_of, tensors_of
from toosure.processes.wrappers import unwrapped

Examples = tuple[Inputs, Tensor]  # inputs and labels, the same number of each
InputsOf = str | int | Sequence[str] | Sequence[int] | Callable[[Any], Any] | None
LabelsOf = str | int | Callable[[Any], Any] | None

LABEL_KEYS = ("labels", "label", "targets", "target", "y")


class BatchReader:
    """Take the batches of a loop apart, and join them.

    `inputs` and `labels` say where they are: a key or place of the batch, or a function of it.
    `inputs` may be several keys, by which the model is then called, or several places, called in
    their order, as is what a function returns as several tensors. Without them a batch is
    (inputs, labels), or a dict with "labels" (or another usual name) whose other entries are what
    the model's forward takes. The labels of a causal language model of transformers are shifted
    here, as the model does itself: the output at a place predicts the next one.
    """

    def __init__(self, inputs: InputsOf = None, labels: LabelsOf = None) -> None:
        self.inputs = inputs
        self.labels = labels
        self.takes: tuple[str, ...] | None = None
        self.shifts = False
        self.padding = 0
        self.ignored = -100

    def learn_from(self, model: nn.Module, ignored: int) -> None:
        """Note what a model takes and how its labels lie; `ignored` is the label of no row."""
        model = unwrapped(model)
        self.takes = names_of_arguments(model)
        self.shifts = not callable(self.labels) and predicts_next_token(model)
        self.padding = getattr(getattr(model, "config", None), "pad_token_id", None) or 0
        self.ignored = ignored

    def read(self, name: str, batch: Any) -> Examples:
        """Return the inputs and labels of a batch of the split `name`."""
        labels = as_tensor(f"the labels of {name}", self._labels_of(name, batch))
        inputs = self._inputs_of(name, batch)
        checked: Inputs
        if isinstance(inputs, Mapping):
            checked = {str(k): as_tensor(f"{k} of {name}", v) for k, v in inputs.items()}
        elif are_tensors(inputs):
            checked = dict(enumerate(inputs))
        else:
            checked = as_tensor(f"the inputs of {name}", inputs)

        if self.shifts:
            labels = F.pad(labels[:, 1:], (0, 1), value=self.ignored)
        sizes = {len(t) for t in (labels, *tensors_of(checked))}
        if len(sizes) > 1:
            raise ValueError(
                f"{name} must have one label per example; got {len(first_of(checked))} examples "
                f"and {len(labels)} labels"
            )
        return checked, labels

    def _labels_of(self, name: str, batch: Any) -> Any:
        """Return the labels of a batch: as asked, the second of a pair, or by a usual key."""
        if self.labels is not None:
            return chosen(name, "labels", batch, self.labels)
        if not isinstance(batch, Mapping):
            return pair_of(name, batch)[1]

        key = label_key(batch)
        if key is not None:
            return batch[key]
        if self.shifts and "input_ids" in batch:  # a language model predicts its own inputs
            seen = torch.as_tensor(batch.get("attention_mask", 1)).bool()
            return torch.as_tensor(batch["input_ids"]).masked_fill(~seen, self.ignored)
        raise ValueError(
            f"a batch of {name} has the keys {list(batch)} and none of {list(LABEL_KEYS)}: "
            'name that of the labels, labels="..."'
        )

    def _inputs_of(self, name: str, batch: Any) -> Any:
        """Return the inputs of a batch: as asked, the first of a pair, or what the model takes."""
        if isinstance(self.inputs, str | int) or callable(self.inputs):
            return chosen(name, "inputs", batch, self.inputs)
        if self.inputs is not None:
            parts = {key: chosen(name, "inputs", batch, key) for key in self.inputs}
            if all(isinstance(key, str) for key in parts):
                return parts
            return [as_tensor(f"part {key} of {name}", part) for key, part in parts.items()]
        if not isinstance(batch, Mapping):
            return pair_of(name, batch)[0]

        used = self.labels if isinstance(self.labels, str) else label_key(batch)
        others = [key for key in batch if key != used]
        known = others if self.takes is None else [key for key in others if key in self.takes]
        if known:
            return {key: batch[key] for key in known}
        if len(others) == 1:  # {"image": ..., "label": ...}: the model is called with one tensor
            return batch[others[0]]
        raise ValueError(
            f"a batch of {name} has the keys {list(batch)}, and the model takes "
            f'{list(self.takes or ())}: say which are its inputs, inputs="..." or a list of keys'
        )

    def join(self, name: str, parts: Sequence[Examples]) -> Examples:
        """Join batches; sequences of different lengths are padded to the longest."""
        labels = joined(name, "labels", [y for _, y in parts], self.ignored)
        first = parts[0][0]
        if isinstance(first, Tensor):
            return joined(name, "inputs", [x for x, _ in parts if isinstance(x, Tensor)]), labels

        dicts = [x for x, _ in parts if isinstance(x, dict)]
        masked = "attention_mask" in first
        fills = {key: self.padding if key == "input_ids" else 0 for key in first}
        tensors = {
            key: joined(name, str(key), [x[key] for x in dicts], fill if masked else None)
            for key, fill in fills.items()
        }
        return tensors, labels


def joined(name: str, what: str, tensors: Sequence[Tensor], fill: int | None = None) -> Tensor:
    """Concatenate tensors; pad the second axis with `fill` if given."""
    if fill is not None and tensors[0].ndim > 1:
        longest = max(t.shape[1] for t in tensors)
        before = (0, 0) * (tensors[0].ndim - 2)  # of the axes behind the second
        tensors = [F.pad(t, (*before, 0, longest - t.shape[1]), value=fill) for t in tensors]

    shapes = sorted({tuple(t.shape[1:]) for t in tensors})
    if len(shapes) > 1:
        raise ValueError(
            f"{what} of {name} differ in shape, {shapes[0]} and {shapes[1]}, and cannot be kept as "
            'one tensor: let the loader make them equal (padding="max_length", a resize), or give '
            "sequences an attention_mask, by which they can be padded here"
        )
    return torch.cat(list(tensors))


def chosen(name: str, what: str, batch: Any, choice: Any) -> Any:
    """Return the part of a batch that a key, an index or a function selects."""
    if callable(choice):
        return choice(batch)
    try:
        return batch[choice]
    except (KeyError, IndexError, TypeError):
        has = f"the keys {list(batch)}" if isinstance(batch, Mapping) else described(batch)
        raise ValueError(
            f"{what}={choice!r} is not in a batch of {name}, which has {has}"
        ) from None


def pair_of(name: str, batch: Any) -> tuple[Any, Any]:
    """Return the two parts of a batch; raise with a hint if it is no pair."""
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    raise ValueError(
        f"a batch of {name} must be (inputs, labels) or a dict; got {described(batch)}: say which "
        "part is which, as in inputs=0, labels=2, or by functions of the batch"
    )


def described(batch: object) -> str:
    """Name a batch by its type, with the number of its parts."""
    parts = f" of {len(batch)} parts" if isinstance(batch, tuple | list) else ""
    return f"{type(batch).__name__}{parts}"


def label_key(batch: Mapping[str, Any]) -> str | None:
    """Return the usual name under which a dict has its labels, if there is one."""
    return next((key for key in LABEL_KEYS if key in batch), None)


def as_tensor(what: str, values: Any) -> Tensor:
    """Return numbers as a tensor with examples along its first axis."""
    if not isinstance(values, Tensor | np.ndarray | list | tuple):
        raise ValueError(
            f"{what} must be a tensor or an array; got {type(values).__name__}: give a function, "
            "inputs=... or labels=..., that returns one from the batch"
        )
    try:
        tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{what} cannot become a tensor ({error})") from None

    if tensor.ndim == 0:
        raise ValueError(f"{what} must have examples along their first axis; got one number")
    return tensor.detach()


def one_batch(data: Any) -> Any:
    """Return data that are one batch of tensors or arrays; None if they are something else.

    The labels may be a list.
    """
    if isinstance(data, Mapping):
        return data
    arrays = Tensor | np.ndarray
    inputs, labels = arrays | Mapping, arrays | list
    parts = list(data) if isinstance(data, tuple | list) else []
    if len(parts) == 2 and isinstance(parts[0], inputs) and isinstance(parts[1], labels):
        return tuple(parts)
    return None


def are_tensors(inputs: Any) -> bool:
    """Whether inputs are several tensors, to call a model with in this order."""
    several = isinstance(inputs, tuple | list) and len(inputs) > 0
    return several and all(isinstance(t, Tensor) and t.ndim > 0 for t in inputs)


def names_of_arguments(model: nn.Module) -> tuple[str, ...] | None:
    """Return the names of what a model's forward takes; None if it takes any."""
    kinds = inspect.signature(model.forward).parameters
    names = [n for n, p in kinds.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    return tuple(names) if names else None


def predicts_next_token(model: nn.Module) -> bool:
    """Whether a model of transformers shifts its labels: one that generates, without encoder."""
    can_generate = getattr(model, "can_generate", None)
    if not callable(can_generate) or not can_generate():
        return False
    return not getattr(getattr(model, "config", None), "is_encoder_decoder", False)
