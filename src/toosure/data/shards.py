"""Images in tar shards, as WebDataset writes them: NAME.jpg with NAME.cls or NAME.json."""

import glob
import os
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np
import torch
from torch import Tensor

from toosure.data.class_folders import LabelledFiles
from toosure.data.corruptions import Shift
from toosure.data.dataset import Dataset
from toosure.data.folder_dataset import DecodeOptions, SplitOptions, folder_dataset
from toosure.data.shard_index import NUMBER, index_of, member_places
from toosure.data.standardise import Standardise

MAX_SHARDS = 100_000
BRACES = re.compile(r"\{([^{}]*)\}")
RANGE = re.compile(r"([0-9]+)\.\.([0-9]+)")
ADDRESS = re.compile(r"pipe:|[A-Za-z0-9+.-]{2,}:/")


def shards(
    path: Path,
    test_path: Path | None = None,
    val_path: Path | None = None,
    label: str = "label",
    size: int = 32,
    resize: int | None = None,
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
    """Load images from tar shards as WebDataset writes them, such as train-{000..146}.tar.

    A path is a pattern (`*`, `?`, `{000..146}`), a shard, or a folder of shards; a folder may hold
    train/, val/ and test/, read as `imagefolder` does. A sample is NAME.jpg, .png or another image
    with NAME.cls, or NAME.json, in which `label` is the key. Labels are whole numbers from 0 on,
    or names of classes. The shorter side becomes `resize` pixels (None: `size`), and the middle
    `size` are cut out; `stream`, `watched` and `limit_gb` are those of `imagefolder`.
    Reference: Aizman, Maltby and Breuel (2019), High performance I/O for large scale deep learning,
    arXiv 2001.01858.
    """
    patterns = patterns_of_parts(path, val_path, test_path)
    tars = {part: expand(pattern) for part, pattern in patterns.items()}
    check_once([tar for listed in tars.values() for tar in listed])

    indexed = {part: read_indices(listed, label) for part, listed in tars.items()}
    names = class_names(indexed["train"][1])
    files = {
        part: LabelledFiles(places, class_indices(labels, names, part))
        for part, (places, labels) in indexed.items()
    }
    reading = DecodeOptions(size, resize, stream, watched, limit_gb, workers)
    splitting = SplitOptions(train, val, test, noise, standardise, augment, seed, shift)
    return folder_dataset(files, names, reading, splitting)


def patterns_of_parts(path: Path, val_path: Path | None, test_path: Path | None) -> dict[str, Path]:
    """Return the pattern of each part: as given, else one that the folder holds."""
    path = Path(path).expanduser()
    parts = {part: path / part for part in ("train", "val", "test") if (path / part).is_dir()}
    if "train" not in parts:
        parts = {"train": path}

    given = {"val": val_path, "test": test_path}
    parts |= {part: Path(each).expanduser() for part, each in given.items() if each is not None}
    if "test" not in parts and "val" in parts and val_path is None:
        parts["test"] = parts.pop("val")
    return parts


def expand(pattern: Path) -> list[Path]:
    """Return the shards of a pattern, a folder or a path, in a fixed order."""
    if ADDRESS.match(str(pattern)):
        raise ValueError(f"shards are read from local paths; got {pattern}")
    if pattern.is_dir():
        return shards_in(pattern)
    if pattern.is_file():
        return [pattern]

    tars: list[Path] = []
    for name in expand_braces(str(pattern)):
        listed = sorted(glob.glob(name)) if glob.has_magic(name) else [name]
        tars += map(Path, listed)
    if missing := [tar for tar in tars if not tar.is_file()]:
        raise ValueError(f"there is no folder or shard {missing[0]}; write shards:PATTERN")
    if not tars:
        raise ValueError(f"there is no folder or shard that matches {pattern}")
    return tars


def shards_in(folder: Path) -> list[Path]:
    """Return the shards of a folder, which must be of one set: train-000.tar, train-001.tar."""
    tars = sorted(path for path in folder.glob("*.tar") if path.is_file())
    if not tars:
        raise ValueError(f"{folder} holds no shards (*.tar)")

    kinds = sorted({re.sub(r"[0-9]+", "*", tar.name) for tar in tars})
    if len(kinds) > 1:
        raise ValueError(
            f"{folder} holds shards of several sets, {', '.join(kinds[:5])}: name them by "
            f"patterns, shards:{folder / kinds[0]},test_path={folder / kinds[1]}"
        )
    return tars


def expand_braces(pattern: str) -> list[str]:
    """Expand {000..002} and {a,b} as a shell does.

    >>> expand_braces("{train,more}-{09..10}.tar")
    ['train-09.tar', 'train-10.tar', 'more-09.tar', 'more-10.tar']
    """
    expanded = list(islice(expansions(pattern), MAX_SHARDS + 1))
    if len(expanded) > MAX_SHARDS:
        raise ValueError(f"{pattern} stands for more than {MAX_SHARDS:,} shards")
    return list(dict.fromkeys(expanded))  # inner braces repeat the choices beside them


def expansions(pattern: str) -> Iterator[str]:
    """Yield every text that a pattern with braces stands for, one pair of braces after another."""
    braces = BRACES.search(pattern)
    if braces is None:
        yield pattern
        return
    for choice in choices_of(braces[1]):
        yield from expansions(pattern[: braces.start()] + choice + pattern[braces.end() :])


def choices_of(inside: str) -> list[str]:
    """Return the choices in braces: numbers as wide as the first, or words between commas."""
    if not (ends := RANGE.fullmatch(inside)):
        return inside.split(",")
    first, last = ends.groups()
    count = int(last) - int(first) + 1
    if not 0 < count <= MAX_SHARDS:
        raise ValueError(f"{{{inside}}} must count upwards, over at most {MAX_SHARDS:,} shards")
    return [f"{int(first) + i:0{len(first)}}" for i in range(count)]


def check_once(tars: list[Path]) -> None:
    """Raise if a shard is named twice: its images would be in two parts, or count twice."""
    tar, count = Counter(tar.resolve() for tar in tars).most_common(1)[0]
    if count > 1:
        raise ValueError(f"{tar} is named {count} times: the parts must be of different shards")


def read_indices(tars: list[Path], label: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of the images in some shards, and their labels as text."""
    # Each process has its own order: several make the missing indices of many shards together.
    order = Random(os.getpid()).sample(tars, len(tars))
    index_by_tar = {tar: index_of(tar, label) for tar in order}
    indices = [index_by_tar[tar] for tar in tars]
    return member_places(tars, indices), np.concatenate([index.labels for index in indices])


def class_names(labels: np.ndarray) -> tuple[str, ...]:
    """Return the classes: 0, 1, 2 ... where all labels are numbers, else the sorted names."""
    known = set(labels.tolist())
    if len(known) < 2:
        raise ValueError(f"shards must hold images of two or more classes; got {sorted(known)}")
    if not all(NUMBER.fullmatch(each) for each in known):
        return tuple(sorted(known))

    names = tuple(map(str, range(len(known))))
    if gaps := [name for name in names if name not in known]:
        raise ValueError(
            f"labels in shards must count from 0 without gaps; no training image has {gaps[0]}, "
            f"and one has {max(map(int, known))}"
        )
    return names


def class_indices(labels: np.ndarray, names: tuple[str, ...], part: str) -> Tensor:
    """Return labels as indices of classes."""
    index = {name: number for number, name in enumerate(names)}
    texts = labels.tolist()
    if unknown := sorted(set(texts) - index.keys()):
        raise ValueError(
            f"the shards of {part} have classes that those of train lack: {', '.join(unknown[:5])}"
        )
    return torch.tensor([index[text] for text in texts], dtype=torch.int64)
