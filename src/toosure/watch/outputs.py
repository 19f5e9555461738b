"""The outputs on a split, and the numbers computed from them."""

import math
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from toosure import margins
from toosure.metrics.confidence import top_label_of_checked
from toosure.quantities import Quantity


class Outputs:
    """Logits and labels of a split; what several quantities share is computed once.

    Entries of the table of quantities name these attributes in `takes`.
    """

    def __init__(self, logits: Tensor, labels: Tensor, bins: int = 15) -> None:
        self.logits = logits  # (N, C)
        self.labels = labels  # (N,)
        self.bins = bins
        # Probability of the predicted class, and whether it is the label: (N,) each.
        self.confidence, self.correct = top_label_of_checked(logits, labels)

    @cached_property
    def margins(self) -> Tensor:
        """True margin z_y - max z_j in float64, (N,)."""
        return margins.true_margin(self.logits, self.labels).double()

    @cached_property
    def sorted_margins(self) -> Tensor:
        """The margins in rising order, (N,)."""
        return self.margins.sort().values


def values_of(outputs: Outputs, quantities: Sequence[Quantity]) -> dict[str, float]:
    """Compute quantities from outputs, and read the device once, for all of them.

    >>> from toosure.quantities import QUANTITIES
    >>> logits = torch.tensor([[2, 0.5, -1], [0.2, 1, 0.1], [-0.5, 0, 3], [1.2, 1, -0.3]])
    >>> outputs = Outputs(logits, torch.tensor([0, 2, 2, 1]))
    >>> round(values_of(outputs, [QUANTITIES["ece"]])["ece"], 6)
    0.329259
    """
    values = {}
    for quantity in quantities:
        arguments = [getattr(outputs, name) for name in quantity.takes]
        values[quantity.key] = quantity.function(*arguments, **quantity.options)

    device = outputs.logits.device
    stacked = torch.stack(
        [torch.as_tensor(value, dtype=torch.float64, device=device) for value in values.values()]
    )
    return dict(zip(values, stacked.tolist(), strict=True))


def mean(values: Tensor) -> Tensor:
    """Return the mean in float64."""
    return values.double().mean()


def quantile(ordered: Tensor, share: float) -> Tensor:
    """Interpolate between order statistics like torch.quantile, but also above 2^24 values."""
    place = share * (len(ordered) - 1)
    below = ordered[math.floor(place)]
    above = ordered[math.ceil(place)]
    return below + (above - below) * (place - math.floor(place))
