"""CIFAR is read from the official layouts; whatever is wrong with them is named."""

import pickle
import shutil
import subprocess
import sys
import tarfile

import numpy as np
import pytest
import torch

from toosure.data import cifar as room
from toosure.data import cifar10, cifar100, load_cifar10, load_cifar100


def test_folder_in_the_official_order(root):
    images = load_cifar10(root)
    assert images.train_x.shape == (100, 3, 32, 32) and images.train_x.dtype == torch.uint8
    assert images.test_x.shape == (20, 3, 32, 32) and images.train_y.dtype == torch.int64
    second = pickle.loads((root / "cifar-10-batches-py" / "data_batch_2").read_bytes())
    # A row is 1024 red, 1024 green, 1024 blue values, each row by row.
    assert images.train_x[25, 1, 3, 7] == second["data"][5, 1024 + 3 * 32 + 7]
    assert images.train_y[20:40].tolist() == second["labels"]
    assert images.names[3] == "class 3"


def test_archive_equals_folder(root, archive):
    from_archive = load_cifar10(root)
    assert not (root / "cifar-10-batches-py").exists()
    with tarfile.open(archive) as tar:
        tar.extractall(root, filter="data")
    from_folder = load_cifar10(root)
    assert torch.equal(from_archive.train_x, from_folder.train_x)
    assert torch.equal(from_archive.test_y, from_folder.test_y)


def test_cifar100_reads_the_fine_labels(root):
    images = load_cifar100(root)
    assert images.train_y[99] == 99 and len(images.names) == 100
    data = cifar100(root, val=50, test=30)
    assert (len(data.train), len(data.val), len(data.test)) == (150, 50, 30)


def test_nothing_there_says_where_it_comes_from(tmp_path):
    with pytest.raises(
        ValueError, match=r"no cifar-10-batches-py:.*download=True.*cs\.toronto\.edu"
    ):
        load_cifar10(tmp_path)


def test_a_missing_file_is_named(root):
    (root / "cifar-10-batches-py" / "data_batch_3").unlink()
    with pytest.raises(ValueError, match=r"holds no cifar-10-batches-py/data_batch_3: .*download"):
        load_cifar10(root)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "'data' must be a uint8 array"),
        ({"data": np.zeros((2, 3072)), "labels": [0, 1]}, "'data' must be a uint8 array"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [0]}, "one integer for each image"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [0, "x"]}, "one integer for each image"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [0, 10]}, r"must lie in \[0, 10\)"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [[0], [1]]}, "one integer for each"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": "01"}, "one integer for each image"),
        (
            {"data": np.zeros((2, 3072), np.uint8), "labels": [0, True]},
            "one integer for each image",
        ),
    ],
)
def test_wrong_content_is_named(root, content, message):
    (root / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps(content))
    with pytest.raises(ValueError, match=rf"test_batch.*{message}"):
        load_cifar10(root)


def test_lists_in_lists_fill_no_memory(root):
    labels = [1, 1]
    for _ in range(60):  # as an array, 2^61 numbers
        labels = [labels, labels]
    folder = root / "cifar-10-batches-py"
    whole = pickle.loads((folder / "test_batch").read_bytes())
    (folder / "test_batch").write_bytes(pickle.dumps({**whole, "labels": labels}))
    with pytest.raises(ValueError, match=r"test_batch.*one integer for each image"):
        load_cifar10(root)
    (folder / "test_batch").write_bytes(pickle.dumps(whole))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [labels] * 10}))
    with pytest.raises(ValueError, match=r"batches\.meta.*must list 10 names"):
        load_cifar10(root)


def test_a_file_cut_at_any_length_says_what_is_wrong(root):
    file = root / "cifar-10-batches-py" / "data_batch_4"
    content = file.read_bytes()
    for length in (0, 1, 2, 5000, len(content) - 1):
        file.write_bytes(content[:length])
        with pytest.raises(
            ValueError, match=r"data_batch_4 cannot be read.*: \w[^;]+; move it away"
        ):
            load_cifar10(root)


@pytest.mark.parametrize("lost", [0.9, 0.5, 0.02, 9, 8, 1])
def test_a_truncated_archive_is_named(root, archive, lost):
    content = archive.read_bytes()
    archive.write_bytes(content[: -int(lost * len(content) if lost < 1 else lost)])
    with pytest.raises(ValueError, match=r"cifar-10-python\.tar\.gz is damaged or cut short"):
        load_cifar10(root)


def test_a_flipped_bit_never_changes_a_pixel(root, archive):
    """Random pixels do not compress: most of the file is them, and only the checksum knows."""
    content, whole = archive.read_bytes(), load_cifar10(root)
    places = np.random.default_rng(0)
    named = 0
    for at, bit in zip(
        places.integers(0, len(content), 25), places.integers(0, 8, 25), strict=True
    ):
        damaged = bytearray(content)
        damaged[at] ^= 1 << int(bit)
        archive.write_bytes(damaged)
        try:
            found = load_cifar10(root)
        except ValueError as error:
            assert "cifar-10-python.tar.gz" in str(error)  # noqa: PT017
            named += 1
        else:
            assert torch.equal(found.train_x, whole.train_x)
            assert torch.equal(found.test_x, whole.test_x)
    assert named >= 24  # but for the header's date and name, every byte counts


@pytest.mark.parametrize("prefix", ["./", "././"])
def test_an_archive_packed_from_here_is_read(root, prefix):
    folder, expected = root / "cifar-10-batches-py", load_cifar10(root)
    with tarfile.open(root / "cifar-10-python.tar.gz", "w:gz") as tar:
        for file in folder.iterdir():
            tar.add(file, f"{prefix}{folder.name}/{file.name}")
    shutil.rmtree(folder)
    assert torch.equal(load_cifar10(root).train_x, expected.train_x)


def test_links_and_strange_members_are_refused(root, archive):
    secret = root / "secret"
    secret.write_text("secret")
    link = tarfile.TarInfo("cifar-10-batches-py/data_batch_1")
    link.type, link.linkname = tarfile.SYMTYPE, str(secret)
    outside = tarfile.TarInfo("../outside")
    for member, message in ((link, "not a file"), (outside, "leads out of its folder")):
        with tarfile.open(archive, "w:gz") as tar:
            tar.addfile(member)
        with pytest.raises(ValueError, match=rf"cifar-10-python\.tar\.gz is refused.*{message}"):
            load_cifar10(root)


@pytest.mark.parametrize("labels", [[0, -1], [10, 0]])
def test_labels_out_of_range_are_named(root, labels):
    content = {"data": np.zeros((2, 3072), np.uint8), "labels": labels}
    (root / "cifar-10-batches-py" / "data_batch_2").write_bytes(pickle.dumps(content))
    with pytest.raises(ValueError, match=r"data_batch_2.*must lie in \[0, 10\)"):
        load_cifar10(root)


def test_a_folder_in_place_of_a_file_is_named(root):
    file = root / "cifar-10-batches-py" / "data_batch_3"
    file.unlink()
    file.mkdir()
    with pytest.raises(ValueError, match="lacks data_batch_3"):
        load_cifar10(root)


def test_an_archive_that_claims_too_much_is_refused(root, archive, monkeypatch):
    monkeypatch.setattr(room, "MAX_BYTES", 1000)
    with pytest.raises(ValueError, match="claims"):
        load_cifar10(root)


def unpack(real_data, dest, *what):
    command = [sys.executable, str(real_data / "unpack"), str(dest), *what]
    subprocess.run(command, check=True, capture_output=True)


@pytest.mark.slow
def test_real_cifar100(real_data, tmp_path):
    unpack(real_data, tmp_path, "cifar100")
    images = load_cifar100(tmp_path)
    if (real_data / "cifar100" / "train_1.webp").is_file():
        assert images.train_x.shape == (50_000, 3, 32, 32)
        assert images.test_x.shape == (10_000, 3, 32, 32)
        assert torch.equal(images.train_y.bincount(), torch.full((100,), 500))
        assert torch.equal(images.test_y.bincount(), torch.full((100,), 100))
    else:  # the folder may hold the official test set alone, in two halves
        assert images.train_x.shape == images.test_x.shape == (5000, 3, 32, 32)
        both = torch.cat([images.train_y, images.test_y])
        assert torch.equal(both.bincount(), torch.full((100,), 100))
    data = cifar100(tmp_path, val=0, standardise="global")
    assert data.val is None and data.train.x.std().item() == pytest.approx(1, abs=1e-3)


@pytest.mark.slow
def test_real_cifar10(real_data, tmp_path):
    unpack(real_data, tmp_path, "cifar10")
    images = load_cifar10(tmp_path)
    assert torch.equal(images.train_y.bincount(), torch.full((10,), 5000))
    assert torch.equal(images.test_y.bincount(), torch.full((10,), 1000))
    data = cifar10(tmp_path, val=0)
    # The means and deviations everybody quotes for the 50,000 training images.
    assert data.mean.flatten().tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)
    assert data.std.flatten().tolist() == pytest.approx([0.2470, 0.2435, 0.2616], abs=1e-4)
    assert len(cifar10(tmp_path).train) == 45_000


def test_one_cifar_is_unknown_to_the_other(root):
    """As `--ood cifar100` of a run on CIFAR-10 reads it, clean and corrupted."""
    from toosure.shifts.ood_sets import load_ood_set
    from toosure.shifts.plan import ShiftPlan

    expected = load_cifar100(root).test_x
    found = load_ood_set("cifar100", ShiftPlan(), (3, 32, 32), root)
    assert found.name == "cifar100" and torch.equal(found.pixels, expected)
    corrupted = load_ood_set("cifar100-c", ShiftPlan(), (3, 32, 32), root)
    changed = (corrupted.pixels != expected).flatten(1).any(1)
    assert corrupted.name == "cifar100-c" and changed.float().mean() > 0.9
