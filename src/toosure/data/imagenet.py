"""ImageNet, its corrupted validation set, and Tiny ImageNet, from their folders of JPEG files."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from toosure.data.catalogue import locate
from toosure.data.corruptions import Shift
from toosure.data.corruptions.table import Severity
from toosure.data.dataset import Dataset, Split, Standardise
from toosure.data.files import Files
from toosure.data.folders import (
    SUFFIXES,
    Listing,
    class_names,
    files_of,
    folder_dataset,
    listing,
)


def tiny_imagenet(
    root: Path = Path("data"),
    size: int = 64,
    train: int | None = None,
    val: int = 5000,
    test: int | None = None,
    noise: float = 0.0,
    standardise: Standardise = "channel",
    augment: bool = False,
    seed: int = 0,
    shift: Shift | None = None,
    stream: bool | None = None,
    watched: int = 2000,
    limit_gb: float = 8.0,
    workers: int | None = None,
    download: bool = False,
) -> Dataset:
    """Load Tiny ImageNet: 95,000 training, 5,000 validation and 10,000 test images unless told.

    The test images are its published validation set; the published test set has no labels. In
    memory it takes 6.8 GB; `stream` and `watched` are as `imagefolder`'s.
    Reference: Le and Yang (2015), Tiny ImageNet visual recognition challenge, Stanford CS 231N.
    """
    (folder,) = locate("tiny_imagenet", root, download)
    names = class_names(folder / "train")
    parts = {"train": files_of(folder / "train", names), "test": tiny_test(folder / "val", names)}
    return folder_dataset(
        parts, names, size, stream, watched, limit_gb, workers,
        train=train, val=val, test=test, noise=noise, standardise=standardise, augment=augment,
        seed=seed, shift=shift,
    )  # fmt: skip


def tiny_test(folder: Path, names: tuple[str, ...]) -> Listing:
    """List val/images by val_annotations.txt, or class folders where somebody has sorted them."""
    images = images_in(folder / "images")
    return annotated(folder, images, names) if images else files_of(folder, names, {"images"})


def images_in(folder: Path) -> set[str]:
    files = folder.iterdir() if folder.is_dir() else ()
    return {file.name for file in files if file.suffix.lower() in SUFFIXES and file.is_file()}


def annotated(folder: Path, images: set[str], names: tuple[str, ...]) -> Listing:
    """List each of val/images once, in the order of val_annotations.txt, which must name them all.

    Its lines are a file, its class, and more that is not used, between tabs.
    """
    annotations = folder / "val_annotations.txt"
    if not annotations.is_file():
        raise ValueError(f"there is no {annotations} to say the classes of val/images")
    number = {name: label for label, name in enumerate(names)}
    found: dict[str, int] = {}
    text = annotations.read_text(encoding="utf-8", errors="replace")
    for at, line in enumerate(text.splitlines(), 1):
        file, label = (*line.split("\t"), "")[:2]
        if not line.strip():
            continue
        if label not in number or file not in images or file in found:
            raise ValueError(
                f"{annotations}, line {at}: expected an image of images/, each once, and a class "
                f"of train/; got {line[:80]!r}"
            )
        found[file] = number[label]
    if rest := images - found.keys():
        raise ValueError(
            f"{annotations} names {len(found):,} of {len(images):,} images, not {min(rest)}: "
            "cut short, or of another set"
        )
    return listing([(folder / "images" / file, label) for file, label in found.items()])


def imagenet(
    root: Path = Path("data"),
    size: int = 224,
    resize: int | None = None,
    train: int | None = None,
    val: int = 2000,
    test: int | None = None,
    noise: float = 0.0,
    standardise: Standardise = "channel",
    augment: bool = False,
    seed: int = 0,
    shift: Shift | None = None,
    stream: bool | None = None,
    watched: int = 2000,
    limit_gb: float = 8.0,
    workers: int | None = None,
) -> Dataset:
    """Load ImageNet from imagenet/train/WNID/ and imagenet/val/WNID/, streamed where it is large.

    The test images are its published validation set; `val` of the training images are held out.
    The shorter side becomes `resize` pixels (None: 256 for a `size` of 224, in proportion else),
    of which the middle `size` are cut: the standard evaluation, and ImageNet-C's field of view.
    Reference: Russakovsky et al. (2015), ImageNet large scale visual recognition challenge,
    arXiv 1409.0575.
    """
    train_folder, test_folder = locate("imagenet", root)
    names = class_names(train_folder)
    parts = {"train": files_of(train_folder, names), "test": files_of(test_folder, names)}
    return folder_dataset(
        parts, names, size, stream, watched, limit_gb, workers,
        resize=round(size * 256 / 224) if resize is None else resize,
        train=train, val=val, test=test, noise=noise, standardise=standardise, augment=augment,
        seed=seed, shift=shift,
    )  # fmt: skip


def imagenet_c(
    corruption: str,
    severity: Severity = 3,
    root: Path = Path("data"),
    size: int = 224,
    resize: int | None = None,
    train: int | None = None,
    val: int = 2000,
    test: int | None = None,
    noise: float = 0.0,
    standardise: Standardise = "channel",
    augment: bool = False,
    seed: int = 0,
    stream: bool | None = None,
    watched: int = 2000,
    limit_gb: float = 8.0,
    workers: int | None = None,
) -> Dataset:
    """Load ImageNet with the published images of one corruption as its shifted test set.

    They are read from imagenet-c/CORRUPTION/SEVERITY/WNID/, all of them, whatever `test` says, and
    whole: they were cut from ImageNet's as `imagenet` cuts its own.
    Reference: Hendrycks and Dietterich (2019), Benchmarking neural network robustness to common
    corruptions and perturbations, arXiv 1903.12261.
    """
    (folder,) = locate("imagenet_c", root)
    if severity not in range(1, 6):
        raise ValueError(f"severity must be a whole number from 1 to 5; got {severity!r}")
    place = folder / corruption / str(int(severity))
    if not place.is_dir():
        known = ", ".join(sorted(p.name for p in folder.iterdir() if p.is_dir()))
        raise ValueError(f"there is no folder {place}; {folder} holds {known or 'nothing'}")
    data = imagenet(
        root, size, resize, train, val, test, noise, standardise, augment, seed, None, stream,
        watched, limit_gb, workers,
    )  # fmt: skip
    files = files_of(place, data.names)
    x: Any = Files(files.names, size, data.mean, data.std, workers)
    return replace(data, shift=Split(x, files.labels, files.labels, torch.arange(len(files))))
