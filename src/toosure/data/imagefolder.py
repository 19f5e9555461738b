"""Any folder of images with one subfolder per class."""

from pathlib import Path

from toosure.data.class_folders import class_names, list_class_folders
from toosure.data.corruptions import Shift
from toosure.data.dataset import Dataset
from toosure.data.folder_dataset import DecodeOptions, SplitOptions, folder_dataset
from toosure.data.standardise import Standardise


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
    """Load `PATH/train/CLASS/*` and `PATH/test/CLASS/*`, or `PATH/CLASS/*` split by seed.

    Images become RGB; their shorter side is resized to `size`, and the middle square is cut out.
    `val/` is the validation set, or the test set if there is no `test/`. Without `train/`, a fifth
    of the images, or `test` of them, is held out by seed. What would take more than `limit_gb` of
    memory is streamed from disk (`stream`), with `watched` training images in memory to measure.
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
    files = {part: list_class_folders(folder, names) for part, folder in folders.items()}
    reading = DecodeOptions(size, None, stream, watched, limit_gb, workers)
    splitting = SplitOptions(train, val, test, noise, standardise, augment, seed, shift)
    return folder_dataset(files, names, reading, splitting)
