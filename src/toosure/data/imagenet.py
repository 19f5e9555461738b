"""ImageNet, its corrupted validation set, and Tiny ImageNet, from their folders of JPEG files."""

import os
from dataclasses import replace
from pathlib import Path

import torch

from toosure.data.class_folders import (
    LabelledFiles,
    class_names,
    is_image,
    labelled_files,
    list_class_folders,
)
from toosure.data.corruptions import Severity, Shift, check_severity
from toosure.data.dataset import Dataset, Split, draw_indices
from toosure.data.folder_dataset import (
    MIN_IMAGES_FOR_WORKERS,
    DecodeOptions,
    SplitOptions,
    folder_dataset,
    split_on_disk,
)
from toosure.data.locate import locate
from toosure.data.seeds import DataStream, derive_seed
from toosure.data.standardise import Standardise


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
    """Load Tiny ImageNet: by default 95,000 training, 5,000 validation and 10,000 test images.

    The test images are its published validation set; the published test set has no labels. In
    memory it takes 6.8 GB; `stream` and `watched` are those of `imagefolder`.
    Reference: Le and Yang (2015), Tiny ImageNet visual recognition challenge, Stanford CS 231N.
    """
    (folder,) = locate("tiny_imagenet", root, download)
    names = class_names(folder / "train")
    files = {
        "train": list_class_folders(folder / "train", names),
        "test": list_tiny_test(folder / "val", names),
    }
    reading = DecodeOptions(size, None, stream, watched, limit_gb, workers)
    splitting = SplitOptions(train, val, test, noise, standardise, augment, seed, shift)
    return folder_dataset(files, names, reading, splitting)


def list_tiny_test(folder: Path, names: tuple[str, ...]) -> LabelledFiles:
    """List val/images by val_annotations.txt, or by class folders if they were sorted."""
    images = folder / "images"
    paths = images.iterdir() if images.is_dir() else ()
    unsorted = {path.name for path in paths if is_image(path)}
    if unsorted:
        return list_annotated(folder, unsorted, names)
    return list_class_folders(folder, names, ignored={"images"})


def list_annotated(folder: Path, images: set[str], names: tuple[str, ...]) -> LabelledFiles:
    """List each of val/images once, in the order of val_annotations.txt, which must name them all.

    Its lines hold a file, its class, and unused columns, separated by tabs.
    """
    annotations = folder / "val_annotations.txt"
    if not annotations.is_file():
        raise ValueError(f"there is no {annotations} to say the classes of val/images")

    class_index = {name: index for index, name in enumerate(names)}
    labels: dict[str, int] = {}
    text = annotations.read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        file, name = (*line.split("\t"), "")[:2]
        if name not in class_index or file not in images or file in labels:
            raise ValueError(
                f"{annotations}, line {number}: expected an image of images/, each once, and a "
                f"class of train/; got {line[:80]!r}"
            )
        labels[file] = class_index[name]

    if unnamed := images - labels.keys():
        raise ValueError(
            f"{annotations} names {len(labels):,} of {len(images):,} images, not {min(unnamed)}: "
            "cut short, or of another set"
        )
    return labelled_files([(folder / "images" / file, label) for file, label in labels.items()])


def imagenet(
    root: Path = Path("data"),
    size: int = 224,
    resize: int | None = None,
    train: int | None = None,
    val: int = 2000,
    test: int | None = None,
    val_share: float = 0.0,
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
    """Load ImageNet from imagenet/train/WNID/ and imagenet/val/WNID/, streamed if it is large.

    The test images are its published validation set; `val` of the training images are held out.
    With `val=0`, `val_share` of the published validation images (0.2), drawn by seed, validate
    instead, and the others are the test images, as Minderer et al. (2021) do. The shorter side is
    resized to `resize` pixels (None: 256 for a `size` of 224, otherwise in proportion), and the
    middle `size` are cut out: the standard evaluation, and the field of view of ImageNet-C.
    Reference: Russakovsky et al. (2015), ImageNet large scale visual recognition challenge,
    arXiv 1409.0575.
    """
    train_folder, test_folder = locate("imagenet", root)
    names = class_names(train_folder)
    published = list_class_folders(test_folder, names)
    files = {"train": list_class_folders(train_folder, names), "test": published}
    if val_share:
        if val:
            raise ValueError(
                f"val_share takes validation images from the published ones, but val={val} from "
                "the training images: say val=0"
            )
        files["val"], files["test"] = share_published(published, val_share, seed)

    if resize is None:
        resize = round(size * 256 / 224)
    reading = DecodeOptions(size, resize, stream, watched, limit_gb, workers)
    splitting = SplitOptions(train, val, test, noise, standardise, augment, seed, shift)
    return folder_dataset(files, names, reading, splitting)


def share_published(
    files: LabelledFiles, share: float, seed: int
) -> tuple[LabelledFiles, LabelledFiles]:
    """Split the published validation images by seed into validation and test images."""
    if not 0 < share < 1:
        raise ValueError(
            f"val_share must be a share of the published images, in (0, 1); got {share}"
        )
    count = round(share * len(files))
    own_seed = derive_seed(seed, DataStream.SHARED_VALIDATION)
    val, test = draw_indices("validation", len(files), [count, None], own_seed)
    return files.select(val), files.select(test)


def imagenet_c(
    corruption: str,
    severity: Severity = 3,
    root: Path = Path("data"),
    size: int = 224,
    resize: int | None = None,
    train: int | None = None,
    val: int = 2000,
    test: int | None = None,
    val_share: float = 0.0,
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

    They are read from imagenet-c/CORRUPTION/SEVERITY/WNID/: all of them, whatever `test` is, and
    uncut, because they were cut like `imagenet`'s own. With `val_share`, twins of validation images
    are left out.
    Reference: Hendrycks and Dietterich (2019), Benchmarking neural network robustness to common
    corruptions and perturbations, arXiv 1903.12261.
    """
    files = corrupted_files(corruption, severity, root, val_share, seed)
    data = imagenet(
        root=root,
        size=size,
        resize=resize,
        train=train,
        val=val,
        test=test,
        val_share=val_share,
        noise=noise,
        standardise=standardise,
        augment=augment,
        seed=seed,
        stream=stream,
        watched=watched,
        limit_gb=limit_gb,
        workers=workers,
    )
    return replace(data, shift=corrupted_split(files, data, size, workers))


def corrupted_files(
    corruption: str, severity: int, root: Path, val_share: float = 0.0, seed: int = 0
) -> LabelledFiles:
    """List the published images of one corruption, except twins of validation images.

    An image and its corrupted twin have the same class and, except for the suffix, the same name.
    """
    (folder,) = locate("imagenet_c", root)
    check_severity(severity)
    corrupted = folder / corruption / str(int(severity))
    if not corrupted.is_dir():
        known = ", ".join(sorted(p.name for p in folder.iterdir() if p.is_dir()))
        raise ValueError(f"there is no folder {corrupted}; {folder} holds {known or 'nothing'}")

    train_folder, test_folder = locate("imagenet", root)
    names = class_names(train_folder)
    files = list_class_folders(corrupted, names)
    if not val_share:
        return files

    validating, _ = share_published(list_class_folders(test_folder, names), val_share, seed)
    excluded = set(image_keys(validating))
    kept = [i for i, key in enumerate(image_keys(files)) if key not in excluded]
    return files.select(torch.tensor(kept, dtype=torch.int64))


def image_keys(files: LabelledFiles) -> list[tuple[int, str]]:
    """Return the class and the name without its suffix, of each file."""
    stems = [Path(os.fsdecode(name)).stem for name in files.names]
    return list(zip(files.labels.tolist(), stems, strict=True))


def corrupted_split(
    files: LabelledFiles, data: Dataset, size: int, workers: int | None = None
) -> Split:
    """Return corrupted images as a split of a data set, standardised as its own are."""
    few = len(files) < MIN_IMAGES_FOR_WORKERS
    reading = DecodeOptions(size, None, None, 0, 0.0, 0 if few else workers)
    indices = torch.arange(len(files))
    return split_on_disk(files, files.labels, indices, data.mean, data.std, reading)
