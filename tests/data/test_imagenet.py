"""Tiny ImageNet, ImageNet and ImageNet-C, written as they are published and read back."""

import os
import shutil

import numpy as np
import pytest
import torch

from toosure.data import imagenet, imagenet_c, tiny_imagenet

Image = pytest.importorskip("PIL.Image")
WNIDS = ("n01443537", "n01629819", "n01641577")


def save(path, colour, size=(64, 64)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path, quality=95)


@pytest.fixture
def tiny(tmp_path):
    """Three classes of four training images and two of validation; class k has red 80 k."""
    folder, lines = tmp_path / "tiny-imagenet-200", []
    for k, wnid in enumerate(WNIDS):
        for i in range(4):
            save(folder / "train" / wnid / "images" / f"{wnid}_{i}.JPEG", (80 * k, 0, 0))
        (folder / "train" / wnid / f"{wnid}_boxes.txt").write_text(f"{wnid}_0.JPEG\t0\t0\t9\t9\n")
        for i in range(2):
            name = f"val_{2 - k + 3 * i}.JPEG"  # not in the order of the classes
            save(folder / "val" / "images" / name, (80 * k, 0, 0))
            lines.append(f"{name}\t{wnid}\t0\t32\t44\t62\n")
    save(folder / "test" / "images" / "test_0.JPEG", (1, 2, 3))
    (folder / "wnids.txt").write_text("\n".join(reversed(WNIDS)))
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    return folder


@pytest.mark.parametrize("stream", [None, True])
def test_tiny_imagenet(tiny, stream):
    data = tiny_imagenet(tiny.parent, val=3, standardise="none", stream=stream, workers=0)
    assert data.names == WNIDS and data.inputs == (3, 64, 64) and data.examples == 9
    assert (len(data.val), len(data.test)) == (3, 6)
    whole = torch.cat(list(data.test.x.split(4)))
    red = whole[:, 0, 5, 5] * 255
    torch.testing.assert_close(red, 80.0 * data.test.y, rtol=0, atol=3)
    assert data.test.y.tolist() == [0, 0, 1, 1, 2, 2]


def test_tiny_imagenet_whose_validation_set_somebody_sorted(tiny):
    (tiny / "val" / "val_annotations.txt").unlink()
    shutil.rmtree(tiny / "val" / "images")
    for k, wnid in enumerate(WNIDS):
        save(tiny / "val" / wnid / "val_0.JPEG", (80 * k, 0, 0))
    assert tiny_imagenet(tiny.parent, val=3, size=8).test.y.tolist() == [0, 1, 2]


@pytest.mark.parametrize("left", [True, False])
def test_tiny_imagenet_sorted_as_the_usual_scripts_do(tiny, left):
    """They move val/images/* to val/WNID/images/, and keep the annotations."""
    by_file = tiny_imagenet(tiny.parent, val=3, size=8)
    for line in (tiny / "val" / "val_annotations.txt").read_text().splitlines():
        file, wnid = line.split("\t")[:2]
        (tiny / "val" / wnid / "images").mkdir(parents=True, exist_ok=True)
        (tiny / "val" / "images" / file).rename(tiny / "val" / wnid / "images" / file)
    if not left:
        (tiny / "val" / "images").rmdir()
    by_folder = tiny_imagenet(tiny.parent, val=3, size=8)
    assert torch.equal(by_folder.test.y, by_file.test.y)
    assert torch.equal(by_folder.test.x, by_file.test.x)  # images of one class are alike here


def test_blank_lines_of_the_annotations_are_passed_over(tiny):
    annotations = tiny / "val" / "val_annotations.txt"
    annotations.write_text("\n" + annotations.read_text().replace("\n", "\r\n") + "\n  \n")
    assert len(tiny_imagenet(tiny.parent, val=3, size=8).test) == 6


def test_annotations_name_each_image_once(tiny):
    annotations = tiny / "val" / "val_annotations.txt"
    lines = annotations.read_text().splitlines(keepends=True)
    annotations.write_text("".join(lines[:-1]))  # cut at the end of a line
    with pytest.raises(
        ValueError, match=r"val_annotations\.txt names 5 of 6 images, not val_3\.JPEG"
    ):
        tiny_imagenet(tiny.parent, val=3)
    annotations.write_text("".join([*lines, lines[2]]))
    with pytest.raises(ValueError, match=r"val_annotations\.txt, line 7: expected .* each once"):
        tiny_imagenet(tiny.parent, val=3)
    annotations.unlink()
    with pytest.raises(ValueError, match=r"there is no .*val_annotations\.txt to say the classes"):
        tiny_imagenet(tiny.parent, val=3)


@pytest.mark.parametrize(
    "line",
    [
        "val_0.JPEG\tn999\t0",
        "val_\udcff.JPEG\tn01443537",
        "absent.JPEG\tn01443537",
        "../../train/x.JPEG\tn01443537",
        "val_0.JPEG",
    ],
)
def test_wrong_annotations_are_named(tiny, line):
    save(tiny.parent / "tiny-imagenet-200" / "train" / "x.JPEG", (0, 0, 0))
    (tiny / "val" / "val_annotations.txt").write_bytes(os.fsencode(f"{line}\n"))
    with pytest.raises(ValueError, match=r"val_annotations\.txt, line 1: expected an image"):
        tiny_imagenet(tiny.parent, val=3)


def test_nothing_there_says_how_to_get_it(tmp_path):
    with pytest.raises(ValueError, match=r"no tiny-imagenet-200.*248 MB from http://cs231n"):
        tiny_imagenet(tmp_path)
    with pytest.raises(ValueError, match=r"no imagenet/train, imagenet/val.*image-net\.org"):
        imagenet(tmp_path)
    with pytest.raises(ValueError, match=r"no imagenet-c.*zenodo"):
        imagenet_c("fog", 3, tmp_path)


@pytest.fixture
def large(tmp_path):
    for k, wnid in enumerate(WNIDS):
        for i in range(4):
            name = f"{wnid}_{i}.JPEG"
            save(tmp_path / "imagenet" / "train" / wnid / name, (80 * k, 0, 0), (50, 40))
        name = f"ILSVRC2012_val_0000000{k}.JPEG"
        save(tmp_path / "imagenet" / "val" / wnid / name, (80 * k, 0, 0), (30, 60))
        for severity in (1, 5):
            grey = (30 * severity, 30 * severity, 30 * severity)
            save(tmp_path / "imagenet-c" / "fog" / str(severity) / wnid / name, grey, (30, 30))
    return tmp_path


@pytest.mark.parametrize("stream", [None, True])
def test_imagenet_and_its_corrupted_twin(large, stream):
    settings = {"size": 16, "val": 2, "standardise": "none", "stream": stream, "workers": 0}
    data = imagenet(large, **settings)
    assert data.examples == 10 and data.inputs == (3, 16, 16) and data.test.y.tolist() == [0, 1, 2]
    shifted = imagenet_c("fog", 5, large, **settings).shifted()
    assert shifted.y.tolist() == [0, 1, 2]
    levels = np.concatenate([part.numpy() for part in shifted.x.split(2)]) * 255
    assert np.abs(levels - 150).max() <= 2
    with pytest.raises(ValueError, match=r"no folder.*snow/3; .* holds fog"):
        imagenet_c("snow", 3, large, **settings)


@pytest.mark.parametrize("stream", [None, True])
def test_imagenet_and_its_corrupted_twin_show_the_same(large, stream):
    """ImageNet-C was made of images scaled to 256 by the shorter side and cut to 224."""
    ramp = np.linspace(0, 255, 512).astype(np.uint8)
    tall = np.stack([np.tile(ramp[:, None], (1, 320)), np.tile(ramp[:320], (512, 1))] * 2, -1)
    photograph = Image.fromarray(np.ascontiguousarray(tall[..., :3]))  # its shorter side is 320
    small = photograph.resize((256, round(512 * 256 / 320)), Image.Resampling.BILINEAR)
    left, top = (256 - 224) // 2, (small.height - 224) // 2
    cut = small.crop((left, top, left + 224, top + 224))
    for wnid in WNIDS:
        for folder, image in (("imagenet/val", photograph), ("imagenet-c/fog/3", cut)):
            shutil.rmtree(large / folder / wnid, ignore_errors=True)
            (large / folder / wnid).mkdir(parents=True)
            image.save(large / folder / wnid / "1.png")
    for size in (224, 56):
        data = imagenet_c(
            "fog", 3, large, size, val=2, stream=stream, standardise="none", workers=0
        )
        clean, published = (next(iter(x.split(9))) for x in (data.test.x, data.shifted().x))
        assert clean.shape == published.shape == (3, 3, size, size)
        assert (clean - published).abs().max() < 2.5 / 255
        whole = imagenet(large, size, resize=size, val=2, standardise="none").test.x
        # Uncut, it shows 20 more of 512 rows at either end of the ramp: ten levels.
        assert (whole - published).abs().max() > 8 / 255
    with pytest.raises(ValueError, match="resize must be at least the size of 64 pixels; got 63"):
        imagenet(large, 64, resize=63)


@pytest.fixture
def published(large):
    """Ten validation images per class in place of one, each with a corrupted twin as a PNG."""
    for k, wnid in enumerate(WNIDS):
        shutil.rmtree(large / "imagenet-c" / "fog" / "5" / wnid)
        shutil.rmtree(large / "imagenet" / "val" / wnid)
        for i in range(10):
            level = 20 * i + k
            save(large / "imagenet" / "val" / wnid / f"{i}.png", (level, level, level), (30, 30))
            twin = large / "imagenet-c" / "fog" / "5" / wnid / f"{i}.PNG"
            save(twin, (level, level, level), (30, 30))
    return large


def levels_of(split):
    return sorted((torch.cat(list(split.x.split(7)))[:, 0, 3, 3] * 255).round().int().tolist())


@pytest.mark.parametrize("stream", [False, True])
def test_a_share_of_the_published_images_validates_and_leaves_imagenet_c(published, stream):
    """Each image has a grey level of its own: which are where is read from the pixels."""
    settings = {"size": 16, "val": 0, "standardise": "none", "stream": stream, "workers": 0}
    data = imagenet_c("fog", 5, published, val_share=0.2, **settings)
    assert (len(data.val), len(data.test), data.examples) == (6, 24, 12)
    validating, testing = set(levels_of(data.val)), set(levels_of(data.test))
    assert not validating & testing and len(validating | testing) == 30
    assert set(levels_of(data.shifted())) == testing

    again = imagenet(published, val_share=0.2, **settings)
    assert set(levels_of(again.val)) == validating
    other = imagenet(published, val_share=0.2, **{**settings, "seed": 1})
    assert set(levels_of(other.val)) != validating
    assert len(imagenet_c("fog", 5, published, **settings).shifted()) == 30


def test_a_wrong_share_says_so(published):
    with pytest.raises(ValueError, match="say val=0"):
        imagenet(published, val=2, val_share=0.2)
    with pytest.raises(ValueError, match=r"in \(0, 1\); got 1.5"):
        imagenet(published, val=0, val_share=1.5)
