"""MNIST's idx, SVHN's .mat and CIFAR-C's .npy files, written as published and read back."""

import gzip
import io
import struct
import sys
import zlib

import numpy as np
import pytest
import torch
from scipy.io import savemat

from toosure.data import (
    cifar10_c,
    cifar100_c,
    fashion_mnist,
    load_cifar10,
    load_cifar10_c,
    load_fashion_mnist,
    load_mnist,
    load_svhn,
    mnist,
    svhn,
)
from toosure.data.idx import read_idx

RANDOM = np.random.default_rng(0)


def idx(array):
    return b"\0\0\x08" + struct.pack(f">B{array.ndim}I", array.ndim, *array.shape) + array.tobytes()


def write_idx(folder, zipped, counts=(30, 10)):
    """Write the four files of MNIST, and return the images of both splits."""
    folder.mkdir(parents=True)
    written = []
    for part, count in zip(("train", "t10k"), counts, strict=True):
        x = RANDOM.integers(0, 256, (count, 28, 28), np.uint8)
        y = np.arange(count, dtype=np.uint8) % 10
        for name, array in ((f"{part}-images-idx3-ubyte", x), (f"{part}-labels-idx1-ubyte", y)):
            if zipped:
                (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
            else:
                (folder / name).write_bytes(idx(array))
        written.append(x)
    return written


@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw"])
@pytest.mark.parametrize("zipped", [True, False])
def test_mnist(tmp_path, folder, zipped):
    train, test = write_idx(tmp_path / folder, zipped)
    images = load_mnist(tmp_path)
    assert images.train_x.shape == (30, 1, 28, 28) and images.test_y.tolist() == list(range(10))
    np.testing.assert_array_equal(images.train_x[:, 0].numpy(), train)
    np.testing.assert_array_equal(images.test_x[:, 0].numpy(), test)
    data = mnist(tmp_path, train=20, val=5, augment=True)
    assert (len(data.train), len(data.val), len(data.test)) == (20, 5, 10)
    assert not data.mirror  # a mirrored 2 is none


def test_fashion_mnist(tmp_path):
    write_idx(tmp_path / "FashionMNIST/raw", True)
    assert load_fashion_mnist(tmp_path).names[5] == "sandal"
    assert fashion_mnist(tmp_path, val=5).mirror


def test_nothing_there_names_a_file_and_the_way(tmp_path):
    with pytest.raises(ValueError, match=r"mnist/train-images-idx3-ubyte\.gz.*toosure data mnist"):
        load_mnist(tmp_path)


X = np.zeros((3, 28, 28), np.uint8)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "first bytes"),
        (b"\0\0\x0d\x01" + bytes(8), "first bytes"),
        (b"\0\0\x08\xff" + bytes(2000), "first bytes"),
        (b"\0\0\x08\x03\0\0\0\x03\0\0", "within its header"),
        (idx(X)[:-1], "cut short or too long"),
        (idx(X) + b"x", "cut short or too long"),
        (b"\0\0\x08\x03" + struct.pack(">3I", 2**32 - 1, 28, 28), "header claims"),
        (b"\0\0\x08\x04" + struct.pack(">4I", 2**16, 2**16, 2**16, 2**16), "header claims"),
        (idx(X[:0]), "header claims"),
        (b"\0\0\x08\x03" + struct.pack(">3I", 0, 2**32 - 1, 2**32 - 1), "header claims"),
        (gzip.compress(idx(X), mtime=0)[:-9], "damaged"),
        (gzip.compress(b"\0\0\x08\x01\0\0\0\x01" + bytes(10**6), mtime=0), "cut short or too long"),
    ],
)
def test_idx_files_that_lie_are_named(tmp_path, content, message):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match=f"{tmp_path / 'file'}.*{message}"):
        read_idx(tmp_path / "file")


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("train-images-idx3-ubyte", np.zeros((30, 28, 27), np.uint8), "28 x 28"),
        ("train-labels-idx1-ubyte", np.zeros(29, np.uint8), "30 labels"),
        ("t10k-labels-idx1-ubyte", np.full(10, 10, np.uint8), "from 0 to 9"),
    ],
)
def test_idx_files_that_do_not_belong_together_are_named(tmp_path, name, array, message):
    write_idx(tmp_path / "mnist", False)
    (tmp_path / "mnist" / name).write_bytes(idx(array))
    with pytest.raises(ValueError, match=rf"{name} must hold.*{message}"):
        load_mnist(tmp_path)


def test_a_folder_in_place_of_a_file_is_named(tmp_path):
    write_idx(tmp_path / "mnist", False)
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte").unlink()
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").mkdir()
    with pytest.raises(ValueError, match=r"t10k-labels-idx1-ubyte\.gz cannot be read"):
        load_mnist(tmp_path)


def write_mat(path, count, **changes):
    x = RANDOM.integers(0, 256, (32, 32, 3, count), np.uint8)
    y = (np.arange(count) % 10 + 1).astype(np.uint8)[:, None]  # 1 to 10, as published
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, {"X": x, "y": y, **changes}, do_compression=True)
    return x


@pytest.mark.parametrize("folder", ["svhn", "."])
def test_svhn(tmp_path, folder):
    x = write_mat(tmp_path / folder / "train_32x32.mat", 20)
    other = write_mat(tmp_path / folder / "test_32x32.mat", 10)
    images = load_svhn(tmp_path)
    np.testing.assert_array_equal(images.test_x.numpy(), other.transpose(3, 2, 0, 1))
    assert images.test_y.tolist() == [*range(1, 10), 0]
    assert images.train_x.shape == (20, 3, 32, 32) and images.train_x[7, 2, 3, 4] == x[3, 4, 2, 7]
    assert images.train_y[:10].tolist() == [*range(1, 10), 0]  # 10 means 0
    data = svhn(tmp_path, val=5)
    assert (len(data.train), len(data.val), len(data.test), data.mirror) == (15, 5, 10, False)
    with pytest.raises(ValueError, match=r"no .*extra_32x32\.mat: .* from http.*/extra_32x32\.mat"):
        svhn(tmp_path, extra=True)
    write_mat(tmp_path / folder / "extra_32x32.mat", 40)
    assert len(svhn(tmp_path, val=5, extra=True).train) == 55


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": np.zeros((32, 32, 3, 20))}, r"X must be uint8 \(32, 32, 3, N\)"),
        ({"X": np.zeros((32, 32, 20), np.uint8)}, r"X must be uint8 \(32, 32, 3, N\)"),
        ({"X": {"a": 1}}, "not the numbers X and y"),
        ({"y": np.array([{}, "x"], object)}, "not the numbers X and y"),
        ({"y": np.zeros((19, 1), np.uint8)}, "a digit from 0 to 10 for each of 20"),
        ({"y": np.full((20, 1), 11, np.uint8)}, "a digit from 0 to 10"),
        ({"y": np.full((20, 1), 0.5)}, "a digit from 0 to 10"),
    ],
)
def test_mat_files_with_other_contents_are_named(tmp_path, changes, message):
    write_mat(tmp_path / "train_32x32.mat", 20, **changes)
    write_mat(tmp_path / "test_32x32.mat", 10)
    with pytest.raises(ValueError, match=rf"train_32x32\.mat.*{message}"):
        load_svhn(tmp_path)


def test_mat_files_that_are_none_are_named(tmp_path):
    whole = tmp_path / "train_32x32.mat"
    write_mat(whole, 20)
    content = whole.read_bytes()
    write_mat(tmp_path / "test_32x32.mat", 10)
    lying = content[:132] + struct.pack("<I", 2**31) + content[136:]
    for wrong in (b"", content[:5000], lying, b"\x89HDF\r\n\x1a\n" + bytes(600), bytes(1000)):
        whole.write_bytes(wrong)
        with pytest.raises(ValueError, match=r"train_32x32\.mat cannot be read"):
            load_svhn(tmp_path)


def test_a_mat_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["toosure.data.svhn"], "MAX_BYTES", 1_000_000)
    write_mat(tmp_path / "test_32x32.mat", 10)
    header = (tmp_path / "test_32x32.mat").read_bytes()[:128]
    packed = zlib.compress(struct.pack("<2I", 14, 50_000_000) + bytes(50_000_000))
    bomb = header + struct.pack("<2I", 15, len(packed)) + packed
    (tmp_path / "train_32x32.mat").write_bytes(bomb)
    assert len(bomb) < 60_000
    with pytest.raises(ValueError, match="unpacks to far more"):
        load_svhn(tmp_path)


@pytest.fixture
def corrupted(root):
    """CIFAR-10-C of the small CIFAR-10: fog whose images say their severity and number."""
    folder = root / "CIFAR-10-C"
    folder.mkdir()
    labels = load_cifar10(root).test_y.numpy().astype(np.uint8)
    x = np.zeros((100, 32, 32, 3), np.uint8)
    x[:] = np.arange(100, dtype=np.uint8)[:, None, None, None]
    x[:, 1, 2, 0] = 7
    np.save(folder / "fog.npy", x)
    np.save(folder / "labels.npy", np.tile(labels, 5))
    return folder


def test_cifar_c_is_five_blocks(root, corrupted):
    for severity in (1, 3, 5):
        x, y = load_cifar10_c(root, "fog", severity)
        assert x[:, 0, 0, 0].tolist() == list(range(20 * severity - 20, 20 * severity))
        assert (x[:, 0, 1, 2] == 7).all() and torch.equal(y, load_cifar10(root).test_y)


def test_cifar_c_as_the_shift_of_cifar(root, corrupted):
    data = cifar10_c("fog", 2, root, val=10, test=8, standardise="none")
    shifted = data.shifted()
    assert torch.equal(shifted.y, data.test.y) and torch.equal(shifted.indices, data.test.indices)
    torch.testing.assert_close(shifted.x[:, 1, 0, 0] * 255, 20.0 + data.test.indices)
    assert torch.equal(data.to("cpu").shifted().x, shifted.x)
    np.save(corrupted / "labels.npy", np.zeros(100, np.uint8))
    with pytest.raises(ValueError, match="their labels differ"):
        cifar10_c("fog", 2, root, val=10)


def test_cifar100_c(root):
    folder = root / "CIFAR-100-C"
    folder.mkdir()
    np.save(folder / "spatter.npy", np.zeros((500, 32, 32, 3), np.uint8))
    np.save(folder / "labels.npy", np.tile(np.arange(100), 5))
    assert len(cifar100_c("spatter", 5, root, val=10).shifted()) == 100


class Calls:
    def __reduce__(self):
        return exec, ("raise SystemExit('it ran')",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (np.array([Calls()], object), "cannot be read"),
        (np.zeros((7, 32, 32, 3), np.uint8), r"\(5 N, 32, 32, 3\)"),
        (np.zeros((10, 32, 32, 3)), r"\(5 N, 32, 32, 3\)"),
        (np.zeros((10, 32, 32, 3), np.uint8), "must hold 10 integers"),
    ],
)
def test_npy_files_with_other_contents_are_named(root, corrupted, content, message):
    np.save(corrupted / "fog.npy", content, allow_pickle=True)
    with pytest.raises(ValueError, match=message):
        load_cifar10_c(root, "fog")


def test_labels_outside_the_classes_are_named(root, corrupted):
    labels = np.load(corrupted / "labels.npy").astype(int)
    for wrong in (-1, 10):
        labels[47] = wrong  # in the block of severity 3
        np.save(corrupted / "labels.npy", labels)
        with pytest.raises(ValueError, match=r"labels\.npy must lie in \[0, 10\)"):
            load_cifar10_c(root, "fog", 3)
        load_cifar10_c(root, "fog", 2)


def test_each_block_has_its_own_labels(root, corrupted):
    np.save(corrupted / "labels.npy", np.arange(100) % 10)
    labels = np.load(corrupted / "labels.npy")
    labels[40:60] = 7
    np.save(corrupted / "labels.npy", labels)
    assert load_cifar10_c(root, "fog", 3)[1].unique().tolist() == [7]
    assert load_cifar10_c(root, "fog", 3.0)[1].tolist() == [7] * 20
    assert load_cifar10_c(root, "fog", 4)[1].tolist() == [*range(10)] * 2


def test_npy_files_that_are_none_are_named(root, corrupted):
    file = corrupted / "fog.npy"
    content = file.read_bytes()
    lying = content.replace(b"(100, 32, 32, 3)", b"(999, 999, 9, 3)")
    archive = io.BytesIO()
    np.savez(archive, x=np.zeros(3))
    for wrong in (b"", content[:50], content[:9000], lying, archive.getvalue()):
        file.write_bytes(wrong)
        with pytest.raises(ValueError, match=r"fog\.npy cannot be read"):
            load_cifar10_c(root, "fog")
    with pytest.raises(ValueError, match=r"no snow\.npy; it has fog"):
        load_cifar10_c(root, "snow")
    with pytest.raises(ValueError, match="from 1 to 5; got 6"):
        load_cifar10_c(root, "fog", 6)
