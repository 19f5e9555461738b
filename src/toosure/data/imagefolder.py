"""Anybody's images: a folder with one subfolder a class."""

from pathlib import Path

from toosure.data.corruptions import Shift
from toosure.data.dataset import Dataset, Standardise
from toosure.data.folders import class_names, files_of, folder_dataset


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
    shift: Shift | None = None,
    stream: bool | None = None,
    watched: int = 2000,
    limit_gb: float = 4.0,
    workers: int | None = None,
) -> Dataset:
    """Load PATH/train/CLASS/*.png and PATH/test/CLASS/*.png, or PATH/CLASS/*.png split by seed.

    Images become RGB, their shorter side `size`, cut square in the middle. `val/` is the
    validation set, or the test set where no `test/` is. Without `train/` a fifth of the images,
    or `test` of them, is held out by seed. What would take more than `limit_gb` of memory is
    streamed from disk (`stream`), with `watched` training images in memory to be measured.
    """
    path = Path(path).expanduser()
    if not path.is_dir():
        raise ValueError(f"there is no folder {path}; write imagefolder:PATH")
    folders = {part: path / part for part in ("train", "val", "test") if (path / part).is_dir()}
    if "train" not in folders:
        folders = {"train": path}
    elif "test" not in folders and "val" in folders:
        folders["test"] = folders.pop("val")
    names = class_names(folders["train"])
    parts = {part: files_of(folder, names) for part, folder in folders.items()}
    return folder_dataset(
        parts, names, size, stream, watched, limit_gb, workers,
        train=train, val=val, test=test, noise=noise, standardise=standardise, augment=augment,
        seed=seed, shift=shift,
    )  # fmt: skip
