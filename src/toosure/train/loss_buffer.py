"""The losses of the last steps, kept on the device until there are many."""

from collections.abc import Callable

import torch
from torch import Tensor

MAX_UNREAD = 64


class LossBuffer:
    """Keep losses on the device: reading one at every step would make the host wait for it.

    >>> losses = LossBuffer(torch.device("cpu"))
    >>> for value in (0.5, float("nan"), 0.4):
    ...     losses.append(torch.tensor(value))
    >>> losses.read(lambda values: values), len(losses)
    (2, 0)
    """

    def __init__(self, device: torch.device) -> None:
        self.values = torch.zeros(MAX_UNREAD, device=device)
        self.count = 0

    def __len__(self) -> int:
        return self.count

    @property
    def is_full(self) -> bool:
        return self.count == MAX_UNREAD

    def append(self, loss: Tensor) -> None:
        """Store the loss of a step, without reading it."""
        self.values[self.count] = loss
        self.count += 1

    def read(self, of_all: Callable[[Tensor], Tensor]) -> int | None:
        """Forget the losses; return how many steps ago the first that is not finite was.

        `of_all` makes the losses of all processes out of those of this one.
        """
        count, self.count = self.count, 0
        bad = (~torch.isfinite(of_all(self.values[:count]))).nonzero()
        return count - int(bad[0]) if len(bad) else None
