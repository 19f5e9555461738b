"""Binary classifiers: one logit or one probability per example, written as two classes.

Everything here measures and trains on (N, C). A binary classifier gives one number per example,
(N,) or (N, 1), and this module is the only one that knows how it becomes two columns.
"""

from collections.abc import Sequence
from typing import TypeGuard

import torch
from torch import Tensor, nn


def is_one_column(outputs: object) -> TypeGuard[Tensor]:
    """Return whether outputs are one number per example, of shape (N,) or (N, 1).

    >>> [is_one_column(torch.zeros(shape)) for shape in ([4], [4, 1], [4, 2], [4, 1, 1])]
    [True, True, False, False]
    """
    if not isinstance(outputs, Tensor):
        return False
    return outputs.ndim == 1 or (outputs.ndim == 2 and outputs.shape[1] == 1)


def two_columns(logits: Tensor) -> Tensor:
    """Return the logits z of P(class 1), (N,) or (N, 1), as [0, z], (N, 2).

    softmax([0, z]) is [1 - sigmoid(z), sigmoid(z)], so the cross-entropy, its gradient and its
    Gauss-Newton matrix are those of `BCEWithLogitsLoss`.

    >>> two_columns(torch.tensor([2.0, -1.0])).tolist()
    [[0.0, 2.0], [0.0, -1.0]]
    """
    column = as_column(logits, "logits")
    return torch.cat([torch.zeros_like(column), column], 1)


def class_columns(logits: Tensor) -> Tensor:
    """Return logits (N, C) unchanged, and one logit per example, (N,) or (N, 1), as two columns.

    >>> [tuple(class_columns(torch.zeros(shape)).shape) for shape in ([4], [4, 1], [4, 3])]
    [(4, 2), (4, 2), (4, 3)]
    """
    return two_columns(logits) if is_one_column(logits) else logits


def two_column_probs(probs: Tensor) -> Tensor:
    """Return the probabilities p of class 1, (N,) or (N, 1), as [1 - p, p], (N, 2).

    >>> two_column_probs(torch.tensor([0.75, 0.5])).tolist()
    [[0.25, 0.75], [0.5, 0.5]]
    """
    column = as_column(probs, "probs")
    if column.dtype in (torch.float16, torch.bfloat16):
        column = column.float()  # 1 - p would be rounded to three digits
    return torch.cat([1 - column, column], 1)


def one_column(logits: Tensor) -> Tensor:
    """Return the logit of P(class 1), (N,), of two columns (N, 2): the inverse of `two_columns`.

    >>> one_column(torch.tensor([[0.0, 2.0], [1.0, 0.0]])).tolist()
    [2.0, -1.0]
    """
    if logits.ndim != 2 or logits.shape[1] != 2:
        raise ValueError(f"one logit stands for two classes; got logits {tuple(logits.shape)}")
    return logits[:, 1] - logits[:, 0]


def binary_labels(labels: Tensor | Sequence[float], n: int | None = None) -> Tensor:
    """Return 0/1 labels, (N,) or (N, 1), of any type as int64 (N,); raise on any other value.

    `n`, where given, is how many there must be.

    >>> binary_labels(torch.tensor([[True], [False]])).tolist()
    [1, 0]
    """
    labels = torch.as_tensor(labels)
    if not is_one_column(labels) or (n is not None and len(labels) != n):
        count = "N" if n is None else n
        raise ValueError(
            f"labels of a binary classifier have shape ({count},) or ({count}, 1); "
            f"got {tuple(labels.shape)}"
        )

    labels = labels.reshape(-1)
    if labels.dtype == torch.bool:
        return labels.long()

    valid = (labels == 0) | (labels == 1)
    if not bool(valid.all()):
        row = int((~valid).nonzero()[0])
        raise ValueError(
            "labels of a binary classifier (one output per example) are 0 and 1, or booleans; "
            f"got {labels[row].item():g} in row {row}"
        )
    return labels.long()


def as_column(outputs: Tensor, name: str = "outputs") -> Tensor:
    """Return outputs (N,) or (N, 1) as (N, 1); raise on other shapes."""
    if not is_one_column(outputs):
        raise ValueError(
            f"{name} of a binary classifier are one number per example, of shape (N,) or (N, 1); "
            f"got {tuple(outputs.shape)}"
        )
    return outputs.reshape(-1, 1)


class TwoColumns(nn.Module):
    """Wrap a model with one logit per example as a model with two: [0, z].

    Its parameters and buffers are the model's own, so training one trains the other.

    >>> TwoColumns(nn.Linear(3, 1))(torch.zeros(4, 3)).shape
    torch.Size([4, 2])
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor, **options: Tensor) -> Tensor:
        """Return the two columns of the model's output."""
        return two_columns(self.model(*inputs, **options))
