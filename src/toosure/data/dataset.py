"""`Dataset`: the splits a training run reads, made from raw images by size, seed and scale."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from toosure.data.augment import crop_and_flip
from toosure.data.corruptions import Shift, check_shift, corrupt
from toosure.data.seeds import DataStream, derive_seed
from toosure.data.standardise import Standardise, pixel_statistics, standardised


@dataclass(frozen=True)
class Images:
    """Hold a data set as it was published: uint8 images, labels and class names."""

    train_x: Tensor  # (N, C, H, W) uint8
    train_y: Tensor  # (N,) int64
    test_x: Tensor
    test_y: Tensor
    names: tuple[str, ...]
    white: int = 255  # the largest value a pixel can have
    val: tuple[Tensor, Tensor] | None = None  # a published validation set, if there is one
    mirror: bool = True  # whether a mirrored image keeps its label; a mirrored digit does not


@dataclass(frozen=True)
class Split:
    """Hold the examples of one split; iterating gives (x, y)."""

    x: Tensor  # (N, C, H, W) float32; an `ImageFiles` where the images stay on disk
    y: Tensor  # (N,) int64, after label noise
    clean: Tensor  # (N,) int64, before label noise
    indices: Tensor  # (N,) index among the published training or test images

    @property
    def flipped(self) -> Tensor:
        """Return a mask of the labels that the noise changed."""
        return self.y != self.clean

    def __len__(self) -> int:
        return len(self.y)

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.x, self.y))

    def to(self, device: torch.device | str) -> "Split":
        """Copy to a device."""
        return Split(*(t.to(device) for t in (self.x, self.y, self.clean, self.indices)))

    def take(self, rows: Tensor) -> "Split":
        """Return some of the examples, in memory or on disk, in the order of `rows`."""
        if isinstance(self.x, Tensor):
            x = self.x[rows.to(self.x.device)]
        else:  # on disk
            x = replace(self.x, names=self.x.names[rows.cpu().numpy()])
        own = rows.to(self.y.device)
        return Split(x, self.y[own], self.clean[own], self.indices[own])


@dataclass(frozen=True)
class Dataset:
    """Hold the splits of a data set in memory, standardised: x = (pixel / white - mean) / std.

    If the images stay on disk, `stream` holds all training images, `train` the ones in memory that
    are measured, and `test` is on disk, too (its x is an `ImageFiles`). `shift` is a corruption to
    apply to the test set, or a published corrupted test set.
    """

    train: Split
    val: Split | None
    test: Split
    names: tuple[str, ...]
    mean: Tensor  # (C, 1, 1), or (C, H, W) for the mean image
    std: Tensor  # (C, 1, 1), or (1, 1, 1)
    augment: bool = False
    mirror: bool = True  # whether the augmentation flips images
    shift: Shift | Split | None = None
    stream: Split | None = None

    @property
    def examples(self) -> int:
        """Return the number of training examples."""
        return len(self.train if self.stream is None else self.stream)

    @property
    def classes(self) -> int:
        return len(self.names)

    @property
    def inputs(self) -> tuple[int, ...]:
        """Return the shape of one example."""
        return tuple(self.train.x.shape[1:])

    def augmented(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Crop and flip a training batch if the data set asks for it.

        The border is black in the original pixels, as in the published recipes, not in the
        standardised ones. The generator lives on the device of `x`. A batch of uint8 pixels, as it
        comes from disk, is standardised as well.
        """
        if x.dtype == torch.uint8:
            if self.augment:
                x = crop_and_flip(x, generator, flip=self.mirror)
            return standardised(x, self.mean, self.std)

        if not self.augment:
            return x

        # Cropping fills with 0, so black has to be 0 while it happens.
        black = self.mean / self.std
        return crop_and_flip(x + black, generator, flip=self.mirror) - black

    def shifted(self, shift: Shift | Split | None = None, seed: int = 0) -> Split | None:
        """Return the test set under `shift` (default: the data set's own), on its device.

        >>> from toosure.data import digits
        >>> data = digits(shift=("gaussian_noise", 3))
        >>> bool((data.shifted().x != data.test.x).any()), data.shifted(("fog", 1)).x.shape
        (True, torch.Size([500, 1, 8, 8]))
        """
        if shift is None:
            shift = self.shift
        if shift is None:
            return None

        if isinstance(shift, Split):  # published images, stored in single precision
            in_float64 = self.mean.dtype.itemsize == 8
            return replace(shift, x=shift.x.double()) if in_float64 else shift

        check_shift(shift, torch.empty(0, *self.inputs))
        if not isinstance(self.test.x, Tensor):  # on disk: corrupted as it is read
            return replace(self.test, x=replace(self.test.x, shift=shift, seed=seed))

        pixels = self.test.x * self.std + self.mean
        low, high = pixels.aminmax()
        if low < -0.01 or high > 1.01:
            raise ValueError(
                "corruptions are of images with pixels in [0, 1]; these inputs go from "
                f"{float(low):.3g} to {float(high):.3g}"
            )
        x = (corrupt(pixels.clamp(0, 1), *shift, seed=seed) - self.mean) / self.std
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
    training labels moved to another class. `standardise` is "channel" (mean and standard deviation
    per channel), "global" (the mean image, then one standard deviation) or "none" ([0, 1]).
    `shift`, as in ("fog", 3), is the corruption that `data.shifted()` applies to the test set.

    >>> x, y = torch.arange(40, dtype=torch.uint8).view(10, 1, 2, 2), torch.arange(10) % 2
    >>> data = make_dataset(Images(x, y, x, y, ("even", "odd")), train=6, val=3, noise=0.5)
    >>> len(data.train), len(data.val), len(data.test), int(data.train.flipped.sum())
    (6, 3, 10, 3)
    """
    if shift is not None:  # a wrong shift should fail now, not after training
        check_shift(shift, images.test_x[:0])

    val_indices, train_indices = draw_val_and_train(len(images.train_y), val, train, seed)
    (test_indices,) = draw_indices("test", len(images.test_y), [test], seed)
    mean, std = pixel_statistics(images.train_x[train_indices], images.white, standardise)

    def split(x: Tensor, y: Tensor, indices: Tensor) -> Split:
        pixels = torch.empty((len(indices), *x.shape[1:]), device=x.device)
        # In parts, so that no second copy of the whole split is ever in memory.
        for target, part in zip(pixels.split(256), indices.split(256), strict=True):
            target.copy_(x[part]).div_(images.white).sub_(mean).div_(std)
        return Split(pixels, y[indices], y[indices], indices)

    train_split = split(images.train_x, images.train_y, train_indices)
    noisy_labels = flip_labels(train_split.y, len(images.names), noise, seed)

    val_split = None
    if val:
        val_split = split(images.train_x, images.train_y, val_indices)
    elif images.val:
        val_split = split(*images.val, torch.arange(len(images.val[1])))

    return Dataset(
        train=replace(train_split, y=noisy_labels),
        val=val_split,
        test=split(images.test_x, images.test_y, test_indices),
        names=images.names,
        mean=mean,
        std=std,
        augment=augment,
        mirror=images.mirror,
        shift=shift,
    )


def hold_out(images: Images, test: int, seed: int) -> Images:
    """Move `test` images, drawn by seed, from the training to the test set."""
    if test == 0:
        raise ValueError("test=0 leaves nothing to judge a run on: at least 1")

    available = len(images.train_y)
    test_seed = derive_seed(seed, DataStream.TEST_SPLIT)
    test_indices, train_indices = draw_indices("labelled", available, [test, None], test_seed)
    return replace(
        images,
        train_x=images.train_x[train_indices],
        train_y=images.train_y[train_indices],
        test_x=images.train_x[test_indices],
        test_y=images.train_y[test_indices],
    )


def draw_val_and_train(available: int, val: int, train: int | None, seed: int) -> list[Tensor]:
    """Draw the indices of the validation and of the training images."""
    if train == 0:
        raise ValueError("train=0 leaves nothing to learn from; leave it out to use all images")
    return draw_indices("training", available, [val, train], seed)


def draw_indices(kind: str, available: int, sizes: list[int | None], seed: int) -> list[Tensor]:
    """Draw disjoint sets of indices by seed, each in rising order; a size of None takes the rest.

    `kind` names the images in the error about sizes that cannot be drawn.
    """
    rest = available - sum(size or 0 for size in sizes)
    negative = any(size is not None and size < 0 for size in sizes)
    if rest < 0 or (rest == 0 and None in sizes) or negative:
        requested = " + ".join("the rest" if s is None else f"{s:,}" for s in sizes)
        raise ValueError(
            f"the data set has {available:,} {kind} images; {requested} were asked for"
        )

    counts = [rest if size is None else size for size in sizes]
    order = torch.randperm(available, generator=torch.Generator().manual_seed(seed))
    return [part.sort().values for part in order[: sum(counts)].split(counts)]


def flip_labels(labels: Tensor, classes: int, share: float, seed: int) -> Tensor:
    """Move exactly round(share * N) labels, drawn by seed, each to another class at random.

    >>> flip_labels(torch.zeros(4, dtype=torch.int64), 2, 0.5, seed=0).sum()
    tensor(2)
    """
    if not 0 <= share <= 1 or (share and classes < 2):
        raise ValueError(f"noise must be a share in [0, 1] of two or more classes; got {share}")

    generator = torch.Generator().manual_seed(derive_seed(seed, DataStream.LABEL_NOISE))
    flipped = torch.randperm(len(labels), generator=generator)[: round(share * len(labels))]
    noisy = labels.clone()
    if not len(flipped):
        return noisy

    # Adding 1 to classes - 1 modulo classes reaches every class but the label's own.
    step = torch.randint(1, classes, flipped.shape, generator=generator)
    noisy[flipped] = (labels[flipped] + step) % classes
    return noisy
