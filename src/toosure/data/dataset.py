"""What training reads: splits of tensors, made from raw images by size, seed, noise and scale."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from toosure.data.augment import crop_and_flip
from toosure.data.corruptions import Shift, check_shift, corrupt
from toosure.data.seeds import mixed

Standardise = Literal["channel", "global", "none"]


@dataclass(frozen=True)
class Images:
    """Hold a data set as it was published: uint8 images, labels, and the classes' names."""

    train_x: Tensor  # (N, C, H, W) uint8
    train_y: Tensor  # (N,) int64
    test_x: Tensor
    test_y: Tensor
    names: tuple[str, ...]
    white: int = 255  # the largest value a pixel can have
    val: tuple[Tensor, Tensor] | None = None  # a published validation set, where there is one
    mirror: bool = True  # whether a mirrored image keeps its label, as a digit does not


@dataclass(frozen=True)
class Split:
    """Hold the examples of one split; iterating gives (x, y)."""

    x: Tensor  # (N, C, H, W) float32; a `Files` where the images stay on disk
    y: Tensor  # (N,) int64, after label noise
    clean: Tensor  # (N,) int64, before label noise
    indices: Tensor  # (N,) place in the training or test images they were drawn from

    @property
    def flipped(self) -> Tensor:
        """Say which labels the noise changed."""
        return self.y != self.clean

    def __len__(self) -> int:
        return len(self.y)

    def __iter__(self):
        return iter((self.x, self.y))

    def to(self, device: torch.device | str) -> "Split":
        """Copy to a device."""
        return Split(*(t.to(device) for t in (self.x, self.y, self.clean, self.indices)))


@dataclass(frozen=True)
class Dataset:
    """Hold the splits of a data set in memory, standardised: x = (pixel / white - mean) / std.

    Where the images stay on disk, `stream` holds those to train on, `train` a part of them to be
    measured, and `test` stays on disk too (its x is a `Files`). `shift` is a corruption of the
    test set to be made, or a corrupted test set as published.
    """

    train: Split
    val: Split | None
    test: Split
    names: tuple[str, ...]
    mean: Tensor  # (C, 1, 1), or (C, H, W) for the mean image
    std: Tensor  # (C, 1, 1), or (1, 1, 1)
    augment: bool = False
    mirror: bool = True  # flips are part of the augmentation
    shift: Shift | Split | None = None
    stream: Split | None = None

    @property
    def examples(self) -> int:
        """Return how many examples there are to train on."""
        return len(self.train if self.stream is None else self.stream)

    @property
    def classes(self) -> int:
        return len(self.names)

    @property
    def inputs(self) -> tuple[int, ...]:
        """Return the shape of one example."""
        return tuple(self.train.x.shape[1:])

    def augmented(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Crop and flip a training batch where the data set asks for it.

        The border is black in the original pixels, as in the published recipes, not in the
        standardised ones. The generator lives on the device of `x`. Pixels as they come from disk
        (uint8) are standardised, too.
        """
        if x.dtype == torch.uint8:
            x = crop_and_flip(x, generator, flip=self.mirror) if self.augment else x
            return x.to(self.mean.dtype).div_(255).sub_(self.mean).div_(self.std)
        if not self.augment:
            return x
        black = self.mean / self.std
        return crop_and_flip(x + black, generator, flip=self.mirror) - black

    def shifted(self, shift: Shift | Split | None = None, seed: int = 0) -> Split | None:
        """Return the corrupted test set, made where the test set lies: `shift`, or the data's own.

        >>> from toosure.data import digits
        >>> data = digits(shift=("gaussian_noise", 3))
        >>> bool((data.shifted().x != data.test.x).any()), data.shifted(("fog", 1)).x.shape
        (True, torch.Size([500, 1, 8, 8]))
        """
        shift = self.shift if shift is None else shift
        if shift is None:
            return None
        if isinstance(shift, Split):
            return replace(shift, x=shift.x.double()) if self.mean.dtype.itemsize == 8 else shift
        check_shift(shift, torch.empty(0, *self.inputs))
        if not isinstance(self.test.x, Tensor):  # on disk: made as it is read
            return replace(self.test, x=replace(self.test.x, shift=shift, seed=seed))
        pixels = (self.test.x * self.std + self.mean).clamp(0, 1)
        x = (corrupt(pixels, *shift, seed=seed) - self.mean) / self.std
        return replace(self.test, x=x)

    def to(self, device: torch.device | str) -> "Dataset":
        """Copy everything to a device."""
        return replace(
            self,
            train=self.train.to(device),
            val=self.val and self.val.to(device),
            test=self.test.to(device),
            mean=self.mean.to(device),
            std=self.std.to(device),
            shift=self.shift.to(device) if isinstance(self.shift, Split) else self.shift,
            stream=self.stream and self.stream.to(device),
        )


def make_dataset(
    images: Images,
    train: int | None = None,
    val: int = 0,
    test: int | None = None,
    noise: float = 0.0,
    standardise: Standardise = "channel",
    augment: bool = False,
    seed: int = 0,
    shift: Shift | None = None,
) -> Dataset:
    """Draw disjoint splits by seed, flip labels, and standardise by the training split.

    Validation images are drawn first, then `train` of the remaining published training images
    (None: all); `test` images of the published test set (None: all). `noise` is the share of
    training labels moved to another class. `standardise` is by "channel" (mean and standard
    deviation of each), "global" (the mean image, then one standard deviation) or "none" ([0, 1]).
    `shift`, as ("fog", 3), is the corruption that `data.shifted()` makes of the test set.

    >>> x, y = torch.arange(40, dtype=torch.uint8).view(10, 1, 2, 2), torch.arange(10) % 2
    >>> data = make_dataset(Images(x, y, x, y, ("even", "odd")), train=6, val=3, noise=0.5)
    >>> len(data.train), len(data.val), len(data.test), int(data.train.flipped.sum())
    (6, 3, 10, 3)
    """
    if shift is not None:  # now, and not when the run has ended
        check_shift(shift, images.test_x[:0])
    val_at, train_at = draw_training(len(images.train_y), val, train, seed)
    (test_at,) = draw("test", len(images.test_y), [test], seed)
    mean, std = scale(images.train_x[train_at], images.white, standardise)

    def split(x: Tensor, y: Tensor, at: Tensor) -> Split:
        pixels = torch.empty((len(at), *x.shape[1:]), device=x.device)
        for out, some in zip(pixels.split(256), at.split(256), strict=True):  # no second copy
            out.copy_(x[some]).div_(images.white).sub_(mean).div_(std)
        return Split(pixels, y[at], y[at], at)

    training = split(images.train_x, images.train_y, train_at)
    held_out = split(images.train_x, images.train_y, val_at) if val else None
    if images.val and not val:
        held_out = split(*images.val, torch.arange(len(images.val[1])))
    return Dataset(
        train=replace(training, y=flip_labels(training.y, len(images.names), noise, seed)),
        val=held_out,
        test=split(images.test_x, images.test_y, test_at),
        names=images.names,
        mean=mean,
        std=std,
        augment=augment,
        mirror=images.mirror,
        shift=shift,
    )


def hold_out(images: Images, test: int, seed: int) -> Images:
    """Move `test` images, drawn by seed, from the training to the test set."""
    test_at, train_at = draw("labelled", len(images.train_y), [test, None], mixed(seed, 2))
    x, y = images.train_x, images.train_y
    train, test_x, test_y = (x[train_at], y[train_at]), x[test_at], y[test_at]
    return replace(images, train_x=train[0], train_y=train[1], test_x=test_x, test_y=test_y)


def draw_training(available: int, val: int, train: int | None, seed: int) -> list[Tensor]:
    """Draw the places of validation and training images."""
    if train == 0:
        raise ValueError("train=0 leaves nothing to learn from; leave it out to use all images")
    return draw("training", available, [val, train], seed)


def draw(what: str, available: int, sizes: list[int | None], seed: int) -> list[Tensor]:
    """Draw disjoint sets of places by seed, each in rising order; the size None takes the rest."""
    rest = available - sum(size or 0 for size in sizes)
    if rest < 0 or (rest == 0 and None in sizes) or any(s is not None and s < 0 for s in sizes):
        asked = " + ".join("the rest" if s is None else f"{s:,}" for s in sizes)
        raise ValueError(f"the data set has {available:,} {what} images; {asked} were asked for")
    counts = [rest if size is None else size for size in sizes]
    order = torch.randperm(available, generator=torch.Generator().manual_seed(seed))
    return [part.sort().values for part in order[: sum(counts)].split(counts)]


def scale(pixels: Tensor, white: int, standardise: Standardise) -> tuple[Tensor, Tensor]:
    """Return the mean and standard deviation of raw pixels (N, C, H, W) in units of white."""
    if standardise == "none":
        return torch.zeros(pixels.shape[1], 1, 1), torch.ones(pixels.shape[1], 1, 1)
    if standardise == "channel":
        moments = torch.stack([raw_moments(channel) for channel in pixels.unbind(1)])  # (C, 2)
        mean = moments[:, 0].view(-1, 1, 1)
        std = (moments[:, 1].view(-1, 1, 1) - mean.square()).sqrt()
    elif standardise == "global":
        # In parts: torch makes int64 copies of what it sums, eight times the images.
        total = torch.zeros(pixels.shape[1:], dtype=torch.int64, device=pixels.device)
        for part in pixels.split(64):
            total += part.sum(0, dtype=torch.int64)
        mean = total.double() / len(pixels)  # (C, H, W)
        std = (raw_moments(pixels)[1] - mean.square().mean()).sqrt().view(1, 1, 1)
    else:
        raise ValueError(f"standardise must be channel, global or none; got {standardise!r}")
    std = torch.where(std > 0, std, torch.ones_like(std))  # constant pixels stay 0
    return (mean / white).float(), (std / white).float()


def raw_moments(pixels: Tensor) -> Tensor:
    """Return the means of v and v^2 over uint8 values, from exact counts of each value."""
    counts = torch.bincount(pixels.flatten(), minlength=256).double()
    value = torch.arange(256, dtype=torch.float64, device=pixels.device)
    return torch.stack([counts @ value, counts @ value.square()]) / pixels.numel()


def flip_labels(labels: Tensor, classes: int, share: float, seed: int) -> Tensor:
    """Move exactly round(share * N) labels, drawn by seed, each to another class at random.

    >>> flip_labels(torch.zeros(4, dtype=torch.int64), 2, 0.5, seed=0).sum()
    tensor(2)
    """
    if not 0 <= share <= 1 or (share and classes < 2):
        raise ValueError(f"noise must be a share in [0, 1] of two or more classes; got {share}")
    generator = torch.Generator().manual_seed(mixed(seed, 1))
    chosen = torch.randperm(len(labels), generator=generator)[: round(share * len(labels))]
    step = torch.randint(1, classes, chosen.shape, generator=generator) if len(chosen) else chosen
    noisy = labels.clone()
    noisy[chosen] = (labels[chosen] + step) % classes
    return noisy
