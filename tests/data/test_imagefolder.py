"""Image folders are read as PIL shows them; what cannot be read is named."""

import shutil

import numpy as np
import pytest
import torch

from toosure.data import imagefolder
from toosure.data.class_folders import class_names, list_class_folders
from toosure.data.decode import read_image
from toosure.data.folder_dataset import memory_gb

Image = pytest.importorskip("PIL.Image")


def save(folder, name, colour, size=(10, 8), mode="RGB"):
    folder.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(folder / name)


def small(path, parts=("train", "test"), count=4):
    for part in parts:
        for i in range(count):
            save(path / part / "cat", f"{i}.png", (10 * i, 0, 0))
            save(path / part / "dog", f"{i}.jpg", (0, 200, 0))
    return path


def test_train_and_test_folders(tmp_path):
    data = imagefolder(small(tmp_path), size=8, standardise="none")
    assert data.names == ("cat", "dog") and data.inputs == (3, 8, 8) and data.val is None
    assert data.train.y.tolist() == [0] * 4 + [1] * 4 and len(data.test) == 8
    torch.testing.assert_close(data.train.x[2, 0], torch.full((8, 8), 20 / 255))


def test_val_folder_is_validation_or_else_the_test_set(tmp_path):
    small(tmp_path, ("train", "val"))
    assert imagefolder(tmp_path, size=4).val is None
    small(tmp_path, ("test",), count=2)
    data = imagefolder(tmp_path, size=4)
    assert (len(data.train), len(data.val), len(data.test)) == (8, 8, 4)
    assert len(imagefolder(tmp_path, size=4, val=3).val) == 3


def test_plain_classes_are_split_by_seed(tmp_path):
    small(tmp_path, (".",), count=10)
    data = imagefolder(tmp_path, size=4, val=2)
    assert (len(data.train), len(data.val), len(data.test)) == (14, 2, 4)
    assert len(imagefolder(tmp_path, size=4, test=6).test) == 6


def test_resized_by_the_shorter_side_and_cut_in_the_middle(tmp_path):
    small(tmp_path)
    stripes = np.zeros((4, 12, 3), np.uint8)
    stripes[:, 4:8] = 255  # only the middle square is white
    Image.fromarray(stripes).save(tmp_path / "train" / "cat" / "a.png")
    save(tmp_path / "train" / "cat", "b.png", 128, mode="L")
    data = imagefolder(tmp_path, size=4, standardise="none")
    order = [0, 1, 2, 3]  # 0.png .. 3.png come before a.png and b.png
    assert torch.equal(data.train.x[len(order)], torch.ones(3, 4, 4))
    torch.testing.assert_close(data.train.x[len(order) + 1], torch.full((3, 4, 4), 128 / 255))


def test_a_broken_image_is_named(tmp_path):
    small(tmp_path)
    (tmp_path / "train" / "dog" / "1.jpg").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"dog/1\.jpg cannot be read as an image"):
        imagefolder(tmp_path)


def test_grey_of_16_bits_is_read_by_its_upper_byte(tmp_path):
    save(tmp_path, "x.png", 0)
    values = (np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000) + 255
    for name in ("x.png", "x.tif"):
        Image.fromarray(values).save(tmp_path / name)
        pixels = read_image(tmp_path / name, 8)
        np.testing.assert_array_equal(pixels.numpy(), np.stack([values >> 8] * 3))
    many = (b"P5 8 8 65535\n", values.astype(">u2").tobytes())  # PGM, which Pillow calls I
    (tmp_path / "x.pgm").write_bytes(b"".join(many))
    np.testing.assert_array_equal(read_image(tmp_path / "x.pgm", 8)[0].numpy(), values >> 8)
    numbers = [(0.5, np.float32), (200, np.int32), (1 << 20, np.int32), (-3, np.int16)]
    for wrong in (np.full((8, 8), value, kind) for value, kind in numbers):
        Image.fromarray(wrong).save(tmp_path / "x.tif")
        with pytest.raises(ValueError, match=r"x\.tif cannot be read.*neither of 8 nor of 16 bits"):
            read_image(tmp_path / "x.tif", 8)


def test_a_palette_with_transparent_colours_gives_no_warning(tmp_path):
    palette = Image.new("P", (8, 8), 1)
    palette.putpalette([0, 0, 0, 10, 20, 30])
    palette.save(tmp_path / "x.png", transparency=bytes([0, 128]))
    assert read_image(tmp_path / "x.png", 8)[:, 0, 0].tolist() == [10, 20, 30]


def test_names_in_any_script(tmp_path):
    for part in ("train", "test"):
        for name in ("čau", "日本 ", "x" * 60):
            save(tmp_path / part / name, "größe é.PNG", (7, 0, 0))
    (tmp_path / "train" / "x").symlink_to(tmp_path / "train" / ("x" * 60))
    data = imagefolder(tmp_path, size=4, standardise="none", test=3)
    assert data.names == ("x", "x" * 60, "čau", "日本 ") and len(data.train) == 4
    streamed = imagefolder(tmp_path, size=4, standardise="none", stream=True, workers=0)
    assert torch.equal(next(streamed.test.x.split()), data.test.x)


def test_files_come_in_the_order_of_their_names(tmp_path):
    for i in (3, 0, 2, 1):
        save(tmp_path / "train" / "b", f"{i}.png", (40 * i, 0, 0))
        save(tmp_path / "train" / "a", f"{3 - i}.png", (20 * i, 0, 0))
    files = list_class_folders(tmp_path / "train", class_names(tmp_path / "train"))
    names = [f"{c}/{i}.png".encode() for c in "ab" for i in range(4)]
    assert [name[-7:] for name in files.names] == names
    assert files.labels.tolist() == [0] * 4 + [1] * 4


def test_memory_is_counted_for_bytes_and_floats():
    assert memory_gb(1000, 100) == pytest.approx(1000 * 3 * 100 * 100 * (1 + 4) / 1e9)


def test_too_much_is_refused_before_reading(tmp_path):
    small(tmp_path)
    (tmp_path / "train" / "dog" / "1.jpg").write_bytes(b"never opened")
    with pytest.raises(ValueError, match=r"over the limit of 0\.001 GB"):
        imagefolder(tmp_path, size=256, limit_gb=0.001, stream=False)


@pytest.mark.parametrize("size", [0, -3])
def test_sizes_are_positive(tmp_path, size):
    with pytest.raises(ValueError, match="at least 1"):
        imagefolder(small(tmp_path), size=size)


def test_wrong_folders_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"no folder.*absent; write imagefolder:PATH"):
        imagefolder(tmp_path / "absent")
    with pytest.raises(ValueError, match="two or more classes"):
        imagefolder(tmp_path)
    small(tmp_path)
    save(tmp_path / "test" / "horse", "1.png", 0)
    with pytest.raises(ValueError, match="classes that train/ lacks: horse"):
        imagefolder(tmp_path)
    shutil.rmtree(tmp_path / "test" / "horse")
    (tmp_path / "train" / "ape" / "deeper.png").mkdir(parents=True)  # nor is that an image
    (tmp_path / "train" / "ape" / "notes.txt").write_text("no image")
    with pytest.raises(ValueError, match=r"1 of 3 class folders hold no image to train on.* ape:"):
        imagefolder(tmp_path)
    for name in ("cat", "dog"):
        (tmp_path / "empty" / name).mkdir(parents=True)
    with pytest.raises(ValueError, match="holds no images"):
        imagefolder(tmp_path / "empty")
