"""The batch of each step, a function of the seed and the step: resuming restores nothing."""

from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor

from toosure.data import Dataset
from toosure.data.image_files import ImageFiles, StreamedBatches
from toosure.data.seeds import RunStream, derive_seed
from toosure.objectives import Batch
from toosure.processes import ALONE, Processes


@dataclass
class Batches:
    """Draw the batch of a step: a new order every epoch, full batches only, on the data's device.

    `size=None`, or a size above the number of examples, takes the whole training set, in order.
    Examples that do not fill the last batch of an epoch are left out. Crops and flips are drawn by
    the seed and the step. Images on disk come in the same order, decoded ahead by worker processes;
    each of the `processes` of a run decodes a share, and all get the whole batch. With `in_shares`
    each process gets only its share of the batch, and draws its own crops and flips.

    >>> from toosure.data import digits
    >>> batches = Batches(digits(train=100), size=32, seed=0)
    >>> batches.per_epoch, [len(part) for part in batches.draw(5)]
    (3, [32, 32, 32])
    """

    data: Dataset
    size: int | None
    seed: int
    processes: Processes = ALONE
    in_shares: bool = False
    epoch: int = -1  # the epoch that `order` is of
    order: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))

    def __post_init__(self) -> None:
        n = self.data.examples
        stream = self.data.stream
        full = self.size is None or self.size >= n
        if stream is not None and full:
            asked = "" if self.size is None else f" ({self.size:,} asked)"
            raise ValueError(
                f"a full batch of {n:,} streamed images{asked}: give a batch below {n:,}, "
                "or stream=false"
            )

        self.full = full
        self.count: int = n if self.size is None or full else self.size  # examples per step
        self.per_epoch = n // self.count  # steps per epoch
        self.own = self.processes.rows(self.count)  # rows of a batch, if it is drawn in shares
        if self.in_shares:
            check_shares(self.count, self.processes.count)
        self.device = self.data.train.x.device
        self.generator = torch.Generator(self.device)
        self.all_indices = torch.arange(n, device=self.device if stream is None else "cpu")

        self.reader = None
        if stream is not None:
            files = cast(ImageFiles, stream.x)  # a streamed split keeps its images on disk
            self.reader = StreamedBatches(files, self.indices, self.own)

    def draw(self, step: int) -> Batch:
        """Return (inputs, labels, indices into the training split) of a step, counted from 0."""
        x, y, indices = self.read(step)
        if self.data.augment:
            share = (self.processes.rank,) if self.in_shares else ()
            own_seed = derive_seed(self.seed, RunStream.AUGMENTATION, step, *share)
            self.generator.manual_seed(own_seed)
        return self.data.augmented(x, self.generator), y, indices

    def close(self) -> None:
        """End the processes that decode images, if there are some."""
        if self.reader is not None:
            self.reader.close()

    def read(self, step: int) -> Batch:
        """Return the batch of a step before augmentation."""
        if self.reader is not None and self.data.stream is not None:
            x, indices = self.reader.take(step)
            indices = indices.to(self.device)
            if self.in_shares:
                indices = indices[self.own]
            else:
                x = self.processes.gathered(x, len(indices))
            return x, self.data.stream.y[indices], indices

        train = self.data.train
        indices = self.indices(step)
        if self.in_shares:
            indices = indices[self.own]
        elif self.full:
            return train.x, train.y, indices
        return train.x[indices], train.y[indices], indices

    def indices(self, step: int) -> Tensor:
        """Return the indices of the examples of a step."""
        if self.full:
            return self.all_indices

        epoch, place = divmod(step, self.per_epoch)
        if epoch != self.epoch:
            own_seed = derive_seed(self.seed, RunStream.EPOCH_ORDER, epoch)
            generator = torch.Generator().manual_seed(own_seed)
            order = torch.randperm(len(self.all_indices), generator=generator)
            self.order = order.to(self.all_indices.device)
            self.epoch = epoch
        return self.order[place * self.count : (place + 1) * self.count]

    def ends_epoch(self, step: int) -> bool:
        """Whether the step is the last of its epoch."""
        return (step + 1) % self.per_epoch == 0

    def epochs_after(self, steps: int) -> float:
        """Return the number of epochs after a number of steps."""
        return steps / self.per_epoch


def check_shares(examples: int, processes: int) -> None:
    """Raise if a batch cannot be cut into equal shares: DDP averages over the processes."""
    if examples % processes:
        raise ValueError(
            f"a batch of {examples} cannot be cut into {processes} equal shares, and DDP averages "
            f"over processes: give a batch that is a multiple of {processes}, or --exact"
        )
