"""Unknown images: from data sets, files and noise, in the form of the network's inputs."""

import numpy as np
import pytest
import torch

from toosure.data import corrupt, digits
from toosure.shifts.ood_sets import load_ood_set
from toosure.shifts.plan import ShiftPlan

PLAN = ShiftPlan(("fog", "contrast"), (1, 5))
RGB = (3, 8, 8)


def test_the_test_images_of_a_data_set_come_back_as_they_were():
    found = load_ood_set("digits:test=30", PLAN, (1, 8, 8))
    data = digits(test=30, train=1, val=0, standardise="none")
    assert found.name == "digits" and found.note == ""
    assert torch.equal(found.pixels, (data.test.x * 255).round().byte())


def test_images_are_brought_to_the_size_and_the_channels_of_the_inputs():
    grey = load_ood_set("digits:test=30", PLAN, (3, 8, 8))
    assert grey.pixels.shape == (30, 3, 8, 8) and grey.note == "grey repeated as colours"
    assert torch.equal(grey.pixels[:, 0], grey.pixels[:, 2])
    large = load_ood_set("digits:test=30", PLAN, (1, 16, 12))
    assert large.pixels.shape == (30, 1, 16, 12) and large.note == "resized from 8 x 8"


def test_with_c_each_image_is_under_one_corruption_in_turn():
    clean = load_ood_set("digits:test=30", PLAN, (1, 8, 8)).pixels
    found = load_ood_set("digits-c:test=30", PLAN, (1, 8, 8))
    assert found.name == "digits-c" and "in turn" in found.note
    # The fourth pair is contrast at severity 5.
    assert torch.equal(found.pixels[3::4], corrupt(clean[3::4], "contrast", 5))
    assert torch.equal(found.pixels[::4], corrupt(clean[::4], "fog", 1))


def test_a_part_of_the_images_is_drawn_by_seed():
    whole = load_ood_set("digits:test=30", PLAN, (1, 8, 8)).pixels
    parts = [
        load_ood_set("digits:test=30", ShiftPlan(images=7, seed=seed), (1, 8, 8))
        for seed in (0, 0, 1)
    ]
    assert parts[0].note == "7 of 30 images" and len(parts[0].pixels) == 7
    assert torch.equal(parts[0].pixels, parts[1].pixels)
    assert not torch.equal(parts[0].pixels, parts[2].pixels)
    same = (whole[None] == parts[0].pixels[:, None]).flatten(2).all(2)
    assert same.any(1).all()


def test_noise_is_uniform():
    pixels = load_ood_set("noise", ShiftPlan(images=200), RGB).pixels
    assert pixels.shape == (200, *RGB) and pixels.min() == 0 and pixels.max() == 255
    assert abs(float(pixels.float().mean()) - 127.5) < 5 * 73.9 / pixels.numel() ** 0.5


IMAGES = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 3), dtype=np.uint8)
EXPECTED = torch.from_numpy(IMAGES).permute(0, 3, 1, 2)


def test_a_name_of_ones_own_for_a_data_set():
    plain = load_ood_set("digits-c:test=30", PLAN, (1, 8, 8))
    named = load_ood_set("mine=digits-c:test=30", PLAN, (1, 8, 8))
    assert (named.name, named.source) == ("mine", "digits-c:test=30")
    assert torch.equal(named.pixels, plain.pixels) and named.note == plain.note


@pytest.mark.parametrize("kind", ["images", "one", "first", "float", "npy", "pt"])
def test_files_of_images(tmp_path, kind):
    path = tmp_path / f"mine.{kind if kind in ('npy', 'pt') else 'npz'}"
    if kind == "npy":
        np.save(path, IMAGES)
    elif kind == "pt":
        torch.save({"x": EXPECTED.clone(), "y": torch.zeros(5)}, path)
    else:
        arrays = {"images": IMAGES, "labels": np.zeros(5)}
        arrays = {"one": {"anything": IMAGES}, "first": {"x": IMAGES.transpose(0, 3, 1, 2)}}.get(
            kind, arrays
        )
        arrays = {"x": IMAGES / 255} if kind == "float" else arrays
        np.savez(path, **arrays)

    found = load_ood_set(f"svhn={path}", PLAN, RGB)
    assert found.name == "svhn" and torch.equal(found.pixels, EXPECTED)
    assert load_ood_set(str(path), PLAN, RGB).name == "mine"


@pytest.mark.parametrize(
    ("name", "arrays", "message"),
    [
        ("none.npz", None, "there is no such file"),
        ("torn.npz", "text", "cannot be read as images"),
        ("two.npz", {"a": IMAGES, "b": IMAGES}, "call the images 'images'"),
        ("flat.npz", {"x": IMAGES[0, 0]}, r"got \(8, 3\)"),
        ("one.npz", {"x": IMAGES[0]}, r"got \(8, 8, 3\)"),  # and not 8 grey ones of 8 x 3
        ("levels.npz", {"x": IMAGES.astype(int) * 0 + 9}, "got int64 from 9 to 9"),
        ("scaled.npz", {"x": IMAGES / 10}, r"floats in \[0, 1\]"),
        ("empty.npz", {"x": IMAGES[:0]}, r"got \(0, 3, 8, 8\)"),
    ],
)
def test_wrong_files_are_named(tmp_path, name, arrays, message):
    path = tmp_path / name
    if isinstance(arrays, dict):
        np.savez(path, **arrays)
    elif arrays:
        path.write_text(arrays)
    with pytest.raises(ValueError, match=message) as error:
        load_ood_set(str(path), PLAN, RGB)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("cifar7", "Known: .*cifar100.*noise, or a file of images"),
        ("svhn", "holds no svhn/train_32x32.mat"),
        ("cifar100:tost=3", "--ood cifar100:tost=3: .*did you mean"),
    ],
)
def test_wrong_words_are_named(tmp_path, word, message):
    with pytest.raises(ValueError, match=message):
        load_ood_set(word, PLAN, RGB, root=tmp_path)


def test_the_svhn_images_at_hand(real_data):
    file = real_data / "ood" / "svhn_train_prefix_unlabeled.npz"
    found = load_ood_set(f"svhn={file}", ShiftPlan(images=50), (3, 32, 32))
    assert found.pixels.shape == (50, 3, 32, 32) and found.note == "50 of 1,083 images"
