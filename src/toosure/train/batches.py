"""Which examples each step sees: a function of the seed and the step, so nothing to restore."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from toosure.data import Dataset
from toosure.data.image_files import BatchReader
from toosure.data.seeds import derive_seed
from toosure.objectives import Batch
from toosure.processes import ALONE, Processes


@dataclass
class Batches:
    """Draw the batch of a step: a new order each epoch, whole batches only, on the data's device.

    `size=None` (or more than there is) is the full batch, in order. A rest smaller than a batch
    sits an epoch out. Crops and flips are drawn by the seed and the step. Images that stay on disk
    come in the same order, decoded ahead by worker processes; the `processes` of a run decode a
    share each, and all have the whole batch.

    >>> from toosure.data import digits
    >>> batches = Batches(digits(train=100), size=32, seed=0)
    >>> batches.an_epoch, [len(part) for part in batches.draw(5)]
    (3, [32, 32, 32])
    """

    data: Dataset
    size: int | None
    seed: int
    processes: Processes = ALONE
    epoch: int = -1
    order: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))

    def __post_init__(self) -> None:
        n, stream = self.data.examples, self.data.stream
        self.full = self.size is None or self.size >= n
        self.count = n if self.full else self.size  # examples a step
        assert self.count is not None
        self.an_epoch = n // self.count  # steps an epoch
        self.device = self.data.train.x.device
        self.generator = torch.Generator(self.device)
        self.everything = torch.arange(n, device=self.device if stream is None else "cpu")
        if stream is not None and self.full:
            asked = "" if self.size is None else f" ({self.size:,} asked)"
            raise ValueError(
                f"a full batch of {n:,} streamed images{asked}: give a batch below {n:,}, "
                "or stream=false"
            )
        share = self.processes.rows(self.count)
        self.reader = None if stream is None else BatchReader(stream.x, self.places, share)  # type: ignore[arg-type]

    def draw(self, step: int) -> Batch:
        """Return (inputs, labels, places in the training split) of a step, counted from 0."""
        x, y, at = self.read(step)
        if self.data.augment:
            self.generator.manual_seed(derive_seed(self.seed, 1, step))
        return self.data.augmented(x, self.generator), y, at

    def close(self) -> None:
        """End the processes that decode images, where there are some."""
        if self.reader is not None:
            self.reader.close()

    def read(self, step: int) -> Batch:
        if self.reader is not None and self.data.stream is not None:
            part, at = self.reader.take(step)
            x, at = self.processes.gathered(part, len(at)), at.to(self.device)
            return x, self.data.stream.y[at], at
        train, at = self.data.train, self.places(step)
        return (train.x, train.y, at) if self.full else (train.x[at], train.y[at], at)

    def places(self, step: int) -> Tensor:
        if self.full:
            return self.everything
        epoch, place = divmod(step, self.an_epoch)
        if epoch != self.epoch:
            generator = torch.Generator().manual_seed(derive_seed(self.seed, 0, epoch))
            order = torch.randperm(len(self.everything), generator=generator)
            self.epoch, self.order = epoch, order.to(self.everything.device)
        return self.order[place * self.count : (place + 1) * self.count]  # type: ignore[operator]

    def ends_epoch(self, step: int) -> bool:
        """Whether the step is the last of its epoch."""
        return (step + 1) % self.an_epoch == 0
