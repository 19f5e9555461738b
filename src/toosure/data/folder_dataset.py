"""Make a data set from lists of image files: in memory if it fits, else streamed from disk."""

from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from toosure.data.class_folders import SUFFIXES, LabelledFiles
from toosure.data.corruptions import Shift, check_shift
from toosure.data.dataset import (
    Dataset,
    Images,
    Split,
    draw_indices,
    draw_val_and_train,
    flip_labels,
    make_dataset,
)
from toosure.data.image_files import ImageFiles
from toosure.data.seeds import DataStream, derive_seed
from toosure.data.standardise import Standardise, pixel_statistics, standardised

MIN_IMAGES_FOR_WORKERS = 500  # fewer are not worth starting processes for


@dataclass(frozen=True)
class DecodeOptions:
    """How images are read: their size, whether they stay on disk, and who decodes them."""

    size: int  # pixels per side
    resize: int | None  # the shorter side before the cut to `size`; None: `size`
    stream: bool | None  # None: stream what would take more than `limit_gb`
    watched: int  # training images to keep in memory and measure, when streaming
    limit_gb: float
    workers: int | None


@dataclass(frozen=True)
class SplitOptions:
    """The arguments of `make_dataset` that every data set has."""

    train: int | None
    val: int
    test: int | None
    noise: float
    standardise: Standardise
    augment: bool
    seed: int
    shift: Shift | None


def folder_dataset(
    files: dict[str, LabelledFiles],
    names: tuple[str, ...],
    reading: DecodeOptions,
    splitting: SplitOptions,
) -> Dataset:
    """Make a data set of the files of "train", "test" and, where published, "val".

    Without "test", a fifth of the images, or `splitting.test` of them, is held out by seed.
    """
    size = reading.size
    if reading.resize is not None and reading.resize < size:
        raise ValueError(f"resize must be at least the size of {size} pixels; got {reading.resize}")
    check_classes(files["train"], names)
    count = sum(map(len, files.values()))
    needed_gb = memory_gb(count, size)
    if splitting.shift is not None:
        check_shift(splitting.shift, torch.empty(0, 3, size, size))

    stream = needed_gb > reading.limit_gb if reading.stream is None else reading.stream
    if not stream and needed_gb > reading.limit_gb:
        raise ValueError(
            f"{count:,} images of {size} x {size} take {needed_gb:.1f} GB of memory, over the "
            f"limit of {reading.limit_gb:g} GB: lower size, raise limit_gb, or stream=true"
        )

    if "test" not in files:
        files = files | hold_out_files(files["train"], splitting.test, splitting.seed)
        splitting = replace(splitting, test=None)
    if stream:
        return streamed_dataset(files, names, reading, splitting)

    pixels = {part: (decode_all(each, reading), each.labels) for part, each in files.items()}
    images = Images(*pixels["train"], *pixels["test"], names, val=pixels.get("val"))
    return make_dataset(images, **vars(splitting))


def check_classes(train: LabelledFiles, names: tuple[str, ...]) -> None:
    """Raise if a class has no training image: a stray folder, or one that cannot be read."""
    counts = train.labels.bincount(minlength=len(names)).tolist()
    if empty := [name for name, count in zip(names, counts, strict=True) if not count]:
        raise ValueError(
            f"{len(empty)} of {len(names)} class folders hold no image to train on, such as "
            f"{empty[0]}: fill or remove them ({', '.join(sorted(SUFFIXES))} are read)"
        )


def memory_gb(count: int, size: int) -> float:
    """Return the gigabytes that images take: one byte per raw value, four per standardised one."""
    if size < 1:
        raise ValueError(f"size must be the images' side in pixels, at least 1; got {size}")
    return count * 3 * size * size * 5 / 1e9


def hold_out_files(files: LabelledFiles, test: int | None, seed: int) -> dict[str, LabelledFiles]:
    """Hold out a test set by seed if none is published, as `hold_out` does with images."""
    count = -(-len(files) // 5) if test is None else test
    test_seed = derive_seed(seed, DataStream.TEST_SPLIT)
    test_indices, train_indices = draw_indices("labelled", len(files), [count, None], test_seed)
    return {"train": files.select(train_indices), "test": files.select(test_indices)}


def decode_all(files: LabelledFiles, reading: DecodeOptions) -> Tensor:
    """Read images into memory, uint8 (N, 3, size, size)."""
    size = reading.size
    workers = 0 if len(files) < MIN_IMAGES_FOR_WORKERS else reading.workers
    unused = torch.zeros(3, 1, 1)  # mean and deviation: raw batches are not standardised
    source = ImageFiles(files.names, size, unused, unused, workers, resize=reading.resize)

    pixels = torch.empty(len(files), 3, size, size, dtype=torch.uint8)
    start = 0
    for batch in source.read_batches():
        pixels[start : start + len(batch)] = batch
        start += len(batch)
    return pixels


def streamed_dataset(
    files: dict[str, LabelledFiles],
    names: tuple[str, ...],
    reading: DecodeOptions,
    splitting: SplitOptions,
) -> Dataset:
    """Keep training and test images on disk, and `watched` of the training images in memory.

    Those are drawn by seed; they are measured, and they give the mean and standard deviation.
    Splits and label noise are the same as in memory.
    """
    watched = reading.watched
    if watched < 1:
        raise ValueError(f"watched must be how many training images to measure; got {watched}")

    val = splitting.val
    seed = splitting.seed
    val_indices, train_indices = draw_val_and_train(len(files["train"]), val, splitting.train, seed)
    (test_indices,) = draw_indices("test", len(files["test"]), [splitting.test], seed)
    train = files["train"].select(train_indices)
    test = files["test"].select(test_indices)
    noisy = flip_labels(train.labels, len(names), splitting.noise, seed)

    watched_seed = derive_seed(seed, DataStream.WATCHED)
    (in_memory,) = draw_indices("watched", len(train), [min(watched, len(train))], watched_seed)
    pixels = decode_all(train.select(in_memory), reading)
    mean, std = pixel_statistics(pixels, 255, splitting.standardise)

    # Validation images are held out, or those that were published, or none.
    held_out = files["train"].select(val_indices) if val else files.get("val")
    val_split = None
    if held_out is not None and len(held_out):
        indices = val_indices if val else torch.arange(len(held_out))
        val_split = split_in_memory(held_out, indices, mean, std, reading)

    return Dataset(
        train=Split(
            standardised(pixels, mean, std),
            noisy[in_memory],
            train.labels[in_memory],
            train_indices[in_memory],
        ),
        val=val_split,
        test=split_on_disk(test, test.labels, test_indices, mean, std, reading),
        names=names,
        mean=mean,
        std=std,
        augment=splitting.augment,
        shift=splitting.shift,
        stream=split_on_disk(train, noisy, train_indices, mean, std, reading),
    )


def split_in_memory(
    files: LabelledFiles, indices: Tensor, mean: Tensor, std: Tensor, reading: DecodeOptions
) -> Split:
    """Make a split of images that are decoded now; its labels have no noise."""
    x = standardised(decode_all(files, reading), mean, std)
    return Split(x, files.labels, files.labels, indices)


def split_on_disk(
    files: LabelledFiles,
    y: Tensor,
    indices: Tensor,
    mean: Tensor,
    std: Tensor,
    reading: DecodeOptions,
) -> Split:
    """Make a split whose x is an `ImageFiles`; `y` are the labels after noise."""
    x = ImageFiles(files.names, reading.size, mean, std, reading.workers, resize=reading.resize)
    # `Split.x` is annotated as a tensor, which it nearly always is; code for both kinds checks.
    return Split(cast(Tensor, x), y, files.labels, indices)
