"""Small data sets in the official CIFAR layouts."""

import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest


def write(path: Path, content: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol=2))


def images(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 3072), np.uint8)


@pytest.fixture
def root(tmp_path) -> Path:
    """A data root with 5 x 20 + 20 images of CIFAR-10 and 200 + 100 of CIFAR-100."""
    ten, hundred = tmp_path / "cifar-10-batches-py", tmp_path / "cifar-100-python"
    for number, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        labels = [(number + i) % 10 for i in range(20)]
        write(ten / name, {"data": images(20, number), "labels": labels, "batch_label": name})
    write(ten / "batches.meta", {"label_names": [f"class {i}" for i in range(10)]})
    for count, name in ((200, "train"), (100, "test")):
        fine = [i % 100 for i in range(count)]
        coarse = [i // 5 % 20 for i in range(count)]
        content = {"data": images(count, count), "fine_labels": fine, "coarse_labels": coarse}
        write(hundred / name, content)
    write(hundred / "meta", {"fine_label_names": [f"class {i}" for i in range(100)]})
    return tmp_path


@pytest.fixture
def archive(root) -> Path:
    """The same data root, with CIFAR-10 only as its archive."""
    folder = root / "cifar-10-batches-py"
    packed = root / "cifar-10-python.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        tar.add(folder, folder.name)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    return packed
