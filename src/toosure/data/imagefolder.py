"""Anybody's images: a folder with one subfolder a class, read into memory."""

from math import ceil
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from toosure.data.dataset import Dataset, Images, Standardise, hold_out, make_dataset

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}


def imagefolder(
    path: Path,
    size: int = 32,
    train: int | None = None,
    val: int = 0,
    test: int | None = None,
    noise: float = 0.0,
    standardise: Standardise = "channel",
    augment: bool = False,
    seed: int = 0,
    limit_gb: float = 4.0,
) -> Dataset:
    """Load PATH/train/CLASS/*.png and PATH/test/CLASS/*.png, or PATH/CLASS/*.png split by seed.

    Images become RGB, their shorter side `size`, cut square in the middle. `val/` is the
    validation set, or the test set where no `test/` is. Without `train/` a fifth of the images,
    or `test` of them, is held out by seed. What would take more than `limit_gb` is refused
    before reading.
    """
    path = Path(path).expanduser()
    folders = {part: path / part for part in ("train", "val", "test") if (path / part).is_dir()}
    if "train" not in folders:
        names = class_names(path)
        files = {"train": files_of(path, names)}
    else:
        names = class_names(folders["train"])
        files = {part: files_of(folder, names) for part, folder in folders.items()}
    check_size(path, sum(map(len, files.values())), size, limit_gb)
    images = gather({part: read_all(found, size) for part, found in files.items()}, names)
    if "train" not in folders:
        held = ceil(len(images.train_y) / 5) if test is None else test
        images, test = hold_out(images, held, seed), None
    return make_dataset(images, train, val, test, noise, standardise, augment, seed)


def class_names(folder: Path) -> tuple[str, ...]:
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}; write imagefolder:PATH")
    names = sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    if len(names) < 2:
        raise ValueError(
            f"{folder} must hold a folder for each of two or more classes; got {names}"
        )
    return tuple(names)


def files_of(folder: Path, names: tuple[str, ...]) -> list[tuple[Path, int]]:
    """List the images below each class folder with the class's number."""
    strangers = sorted(p.name for p in folder.iterdir() if p.is_dir() and p.name not in names)
    if strangers := [name for name in strangers if not name.startswith(".")]:
        raise ValueError(f"{folder} has classes that train/ lacks: {', '.join(strangers[:5])}")
    found = [
        (file, label)
        for label, name in enumerate(names)
        for file in sorted((folder / name).rglob("*"))
        if file.suffix.lower() in SUFFIXES and file.is_file()
    ]
    if not found:
        raise ValueError(f"{folder} holds no images ({', '.join(sorted(SUFFIXES))})")
    return found


def check_size(path: Path, count: int, size: int, limit_gb: float) -> None:
    if size < 1:
        raise ValueError(f"size must be the images' side in pixels, at least 1; got {size}")
    need = count * 3 * size * size * 5 / 1e9  # one byte raw and four standardised
    if need > limit_gb:
        raise ValueError(
            f"{path}: {count:,} images of {size} x {size} take {need:.1f} GB of memory, over the "
            f"limit of {limit_gb:g} GB: lower size, or raise limit_gb"
        )


def read_all(files: list[tuple[Path, int]], size: int) -> tuple[Tensor, Tensor]:
    x = torch.empty(len(files), 3, size, size, dtype=torch.uint8)
    for place, (file, _) in enumerate(files):
        x[place] = read_image(file, size)
    return x, torch.tensor([label for _, label in files])


def read_image(file: Path, size: int) -> Tensor:
    """Read one image as (3, size, size), resized by its shorter side and cut in the middle."""
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise ValueError("imagefolder needs Pillow: pip install 'toosure[images]'") from error
    try:
        with Image.open(file) as image:
            square = ImageOps.fit(image.convert("RGB"), (size, size), Image.Resampling.BILINEAR)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{file} cannot be read as an image: {error}") from error
    return torch.tensor(np.asarray(square)).permute(2, 0, 1)


def gather(parts: dict[str, tuple[Tensor, Tensor]], names: tuple[str, ...]) -> Images:
    train_x, train_y = parts["train"]
    test = parts.get("test") or parts.get("val")
    test_x, test_y = test or (train_x[:0], train_y[:0])
    val = parts.get("val") if "test" in parts else None
    return Images(train_x, train_y, test_x, test_y, names, val=val)
