"""Streamed images are the very batches that memory gives, in any number of processes."""

import gc
import multiprocessing
import os
import signal
import struct
import subprocess
import sys
import zlib
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch

import toosure.data.image_files as files_module
from toosure.config import RunConfig
from toosure.data import imagefolder
from toosure.data.class_folders import labelled_files
from toosure.data.decode import read_image
from toosure.data.image_files import ImageFiles, StreamedBatches
from toosure.shifts.judge import judge_shifts
from toosure.shifts.ood_sets import load_ood_set
from toosure.shifts.plan import ShiftPlan
from toosure.train import Runtime, train
from toosure.train.batches import Batches
from toosure.train.laplace import laplace_of_run
from toosure.watch.split import logits_of
from waiting import wait_until

Image = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three classes of 20 images to train on and 6 to test on, all different."""
    path = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(0)
    for part, count in (("train", 20), ("test", 6)):
        for name in ("cat", "dog", "emu"):
            (path / part / name).mkdir(parents=True)
            for i in range(count):
                pixels = random.integers(0, 256, (12, 10, 3), np.uint8)
                Image.fromarray(pixels).save(path / part / name / f"{i}.png")
    return path


def both(folder, **settings):
    """The same data set in memory and streamed, standardised alike."""
    settings = {"size": 8, "val": 6, "noise": 0.2, "seed": 3, **settings}
    memory = imagefolder(folder, **settings)
    stream = imagefolder(folder, **settings, stream=True, watched=1000, workers=0)
    return memory, stream


def test_splits_are_those_of_memory(folder):
    memory, stream = both(folder)
    assert memory.stream is None and stream.examples == memory.examples == 54
    for part in ("train", "val"):
        ours, theirs = getattr(stream, part), getattr(memory, part)
        for one, other in zip(vars(ours).values(), vars(theirs).values(), strict=True):
            assert torch.equal(one, other)
    assert torch.equal(stream.stream.y, memory.train.y)
    assert torch.equal(stream.stream.clean, memory.train.clean)
    whole = torch.cat(list(stream.test.x.split(4)))
    assert torch.equal(whole, memory.test.x) and torch.equal(stream.test.y, memory.test.y)
    assert stream.test.x.shape == memory.test.x.shape and stream.inputs == (3, 8, 8)


def test_folders_without_a_test_part_are_split_alike(folder):
    memory, stream = both(folder / "train", val=3)
    assert torch.equal(stream.test.y, memory.test.y)
    assert torch.equal(torch.cat(list(stream.test.x.split(99))), memory.test.x)
    assert torch.equal(stream.stream.indices, memory.train.indices)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("augment", [False, True])
def test_batches_are_those_of_memory_over_epochs_and_from_any_step(folder, workers, augment):
    memory, stream = both(folder, augment=augment)
    split = replace(stream.stream, x=replace(stream.stream.x, workers=workers))
    stream = replace(stream, stream=split)
    expected = Batches(memory, 16, seed=5)
    for first in (0, 2):  # a run from the start, and one that goes on within an epoch
        batches = Batches(stream, 16, seed=5)
        assert batches.per_epoch == 3
        for step in range(first, 8):
            ours, theirs = batches.draw(step), expected.draw(step)
            torch.testing.assert_close(ours[0], theirs[0], rtol=0, atol=1e-6 if augment else 0)
            assert torch.equal(ours[1], theirs[1]) and torch.equal(ours[2], theirs[2])
        assert batches.ends_epoch(5)
        batches.close()
        wait_until(lambda: not multiprocessing.active_children())  # they take a moment to end


@pytest.mark.parametrize("workers", [0, 1])
def test_a_reader_jumps_to_any_step(folder, workers):
    memory, stream = both(folder)
    split = replace(stream.stream, x=replace(stream.stream.x, workers=workers))
    expected, batches = Batches(memory, 16, seed=5), Batches(replace(stream, stream=split), 16, 5)
    for step in (0, 1, 5, 2, 2, 3):
        for ours, theirs in zip(batches.draw(step), expected.draw(step), strict=True):
            assert torch.equal(ours, theirs)
    batches.close()


def test_a_reader_decodes_its_share_and_knows_all_places(folder):
    memory, stream = both(folder)
    reader = StreamedBatches(stream.stream.x, lambda step: torch.arange(5) + step, slice(1, 3))
    pixels, places = reader.take(4)
    reader.close()
    assert places.tolist() == [4, 5, 6, 7, 8]
    shown = ((memory.train.x[5:7] * memory.std + memory.mean) * 255).round().byte()
    assert torch.equal(pixels, shown)


def test_workers_draw_nothing_from_torchs_generator(folder):
    _, stream = both(folder)
    files = replace(stream.stream.x, workers=1)
    before = torch.get_rng_state()
    next(files.split(4))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux's /proc")
def test_workers_leave_interrupts_to_the_main_process(folder):
    _, stream = both(folder)
    wait_until(lambda: not multiprocessing.active_children())  # of other tests
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have ignored it
    parts = replace(stream.stream.x, workers=1).split(4)
    next(parts)
    signal.signal(signal.SIGINT, before)
    (worker,) = multiprocessing.active_children()
    with open(f"/proc/{worker.pid}/status") as status:
        ignored = next(line.split()[1] for line in status if line.startswith("SigIgn"))
    parts.close()
    assert int(ignored, 16) >> (signal.SIGINT - 1) & 1


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers inherit nothing")
def test_workers_collect_nothing_of_the_main_process(folder, tmp_path, monkeypatch):
    """A CUDA tensor that a forked worker collects ends it; any finalizer shows it here."""
    _, stream = both(folder)
    note = tmp_path / "collected by"

    class Kept:
        def __del__(self):
            note.write_text(str(os.getpid()))

    def read_and_collect(*arguments):
        gc.collect()
        return read_image(*arguments)

    monkeypatch.setattr(files_module, "read_image", read_and_collect)
    gc.disable()
    try:
        lost = Kept()
        lost.itself = lost
        del lost
        assert next(replace(stream.stream.x, workers=1).split(4)).shape[0] == 4
        assert not note.exists()
    finally:
        gc.enable()
    gc.collect()
    assert note.read_text() == str(os.getpid())


def test_only_what_is_watched_is_in_memory(folder):
    data = imagefolder(folder, size=8, stream=True, watched=10, workers=0)
    assert len(data.train) == 10 and len(data.stream) == 60 and data.examples == 60
    assert set(data.train.indices.tolist()) < set(data.stream.indices.tolist())
    assert isinstance(data.stream.x, ImageFiles) and isinstance(data.test.x, ImageFiles)
    x = data.train.x.double()
    torch.testing.assert_close(x.mean((0, 2, 3)), torch.zeros(3).double(), rtol=0, atol=1e-6)
    again = imagefolder(folder, size=8, stream=True, watched=10, workers=0)
    assert torch.equal(again.train.x, data.train.x)
    other = imagefolder(folder, size=8, stream=True, watched=10, workers=0, seed=1)
    assert not torch.equal(other.train.indices, data.train.indices)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shift": ("fogg", 3)}, "did you mean 'fog'"),
        ({"train": 0}, "train=0 leaves nothing"),
        ({"watched": 0}, "watched must be.*got 0"),
        ({"watched": -1}, "watched must be.*got -1"),
    ],
)
def test_something_is_trained_on_and_watched(folder, settings, message):
    with pytest.raises(ValueError, match=message):
        imagefolder(folder, size=8, stream=True, workers=0, **settings)


def test_places_are_those_of_the_published_images(folder):
    data = imagefolder(folder, size=8, val=30, test=5, stream=True, watched=10, workers=0)
    whole = imagefolder(folder, size=8)
    for split, published in ((data.train, whole.train), (data.stream, whole.train)):
        assert torch.equal(split.clean, published.y[split.indices])
    assert torch.equal(data.test.y, whole.test.y[data.test.indices])
    pixels = [d.x * e.std + e.mean for d, e in ((data.train, data), (whole.train, whole))]
    torch.testing.assert_close(pixels[0], pixels[1][data.train.indices])
    shown = next(data.test.x.split()) * data.std + data.mean
    torch.testing.assert_close(shown, (whole.test.x * whole.std + whole.mean)[data.test.indices])


def test_large_folders_are_streamed_by_themselves(folder):
    assert imagefolder(folder, size=8).stream is None
    assert imagefolder(folder, size=8, limit_gb=1e-6, workers=0).stream is not None


def test_the_shifted_test_set_is_made_as_it_is_read(folder):
    memory, stream = both(folder, shift=("contrast", 4))
    shifted = torch.cat(list(stream.shifted().x.split(100)))
    torch.testing.assert_close(shifted, memory.shifted().x, rtol=0, atol=1e-5)
    assert not torch.equal(shifted, memory.test.x)


@pytest.mark.parametrize("name", ["gaussian_noise", "glass_blur", "fog"])
def test_a_shift_is_that_of_memory_whatever_the_parts(folder, name, monkeypatch):
    monkeypatch.setattr("toosure.data.corruptions.registry.MAX_PIXELS", 7 * 8 * 8)  # 7 images
    memory, stream = both(folder)
    for seed in (0, 1):
        expected = memory.shifted((name, 3), seed).x
        for chunk in (1, 5, 7, 100):
            parts = list(stream.shifted((name, 3), seed).x.split(chunk))
            assert max(map(len, parts)) <= chunk
            torch.testing.assert_close(torch.cat(parts), expected, rtol=0, atol=1e-5)
    first, second = (memory.shifted((name, 3), seed).x for seed in (0, 1))
    assert not torch.allclose(first, second)


def test_double_precision(folder):
    _, stream = both(folder)
    assert next(stream.test.x.double().split(3)).dtype == torch.float64


def test_logits_of_images_on_disk(folder):
    memory, stream = both(folder)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 3))
    assert torch.equal(logits_of(model, stream.test.x), logits_of(model, memory.test.x))


def test_a_broken_image_is_named_from_a_worker(folder, tmp_path):
    files = [*(folder / "train" / "cat").iterdir(), tmp_path / "broken.png"]
    (tmp_path / "broken.png").write_bytes(b"no image")
    zero = torch.zeros(3, 1, 1)
    names = labelled_files([(file, 0) for file in files]).names
    for workers in (0, 1):
        with pytest.raises(ValueError, match=r"^\S+broken\.png cannot be read as an image"):
            list(ImageFiles(names, 8, zero, zero + 1, workers).split(4))


def test_image_bombs_are_refused_before_they_are_decoded(tmp_path):
    def png(width, height):
        chunk = b"IHDR" + struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
        start = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk
        return start + struct.pack(">I", zlib.crc32(chunk)) + b"\0\0\0\0IDAT" + bytes(40)

    for width, height in ((10_000, 10_000), (50_000, 50_000), (2**31 - 1, 2**31 - 1)):
        (tmp_path / "bomb.png").write_bytes(png(width, height))
        with pytest.raises(ValueError, match=r"bomb\.png cannot be read as an image"):
            read_image(tmp_path / "bomb.png", 8)
    (tmp_path / "bomb.png").write_bytes(png(8_200, 8_200))  # of which Pillow does not even warn
    with pytest.raises(ValueError, match=r"bomb\.png cannot .* it claims 8,200 x 8,200 pixels"):
        read_image(tmp_path / "bomb.png", 8)


def test_files_that_are_no_plain_images_are_refused(tmp_path):
    (tmp_path / "x.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n")
    with pytest.raises(ValueError, match=r"x\.png cannot be read as an image"):
        read_image(tmp_path / "x.png", 8)
    Image.new("RGB", (8, 8)).save(tmp_path / "x.png", format="TGA")  # Pillow itself would read it
    with pytest.raises(ValueError, match=r"x\.png cannot be read as an image"):
        read_image(tmp_path / "x.png", 8)


def test_jpegs_keep_twice_the_detail_asked_for(tmp_path):
    coarse = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    Image.fromarray(coarse).resize((512, 512), Image.Resampling.BOX).save(tmp_path / "x.jpg")
    exact = Image.open(tmp_path / "x.jpg").resize((64, 64), Image.Resampling.BILINEAR)
    found = read_image(tmp_path / "x.jpg", 64).permute(1, 2, 0).numpy().astype(int)
    assert np.abs(found - np.asarray(exact).astype(int)).mean() < 3


def test_large_jpegs_are_read_small_and_look_the_same(tmp_path):
    ramp = np.linspace(0, 255, 256).astype(np.uint8)
    pixels = np.stack([np.tile(ramp, (256, 1)), np.tile(ramp[:, None], (1, 256))] * 2, -1)[..., :3]
    Image.fromarray(pixels).save(tmp_path / "x.jpg", quality=95)
    exact = Image.open(tmp_path / "x.jpg").resize((16, 16), Image.Resampling.BILINEAR)
    found = read_image(tmp_path / "x.jpg", 16).permute(1, 2, 0).numpy().astype(int)
    assert np.abs(found - np.asarray(exact).astype(int)).max() <= 3


def config(folder, **settings):
    word = f"imagefolder:{folder},size=8,val=6,stream=true,watched=20,augment=true"
    return RunConfig(data=word, batch=16, steps=8, every=4, model="mlp:width=8", **settings)


def test_laplace_of_a_streamed_run_reads_all_training_images(folder, tmp_path):
    streamed = config(folder)
    in_memory = replace(
        streamed, data=streamed.data.replace("stream=true,watched=20", "stream=false")
    )
    found = [
        laplace_of_run(train(each, tmp_path).path, Runtime()) for each in (in_memory, streamed)
    ]
    assert found[0].evidence == pytest.approx(found[1].evidence, rel=0.02)
    assert found[0].precision == pytest.approx(found[1].precision, rel=0.1)


def test_a_run_trains_on_the_stream_and_says_how_it_did_on_the_shift(folder, tmp_path):
    run = train(replace(config(folder), data=config(folder).data + ",shift=fog:2"), tmp_path)
    wait_until(lambda: not multiprocessing.active_children())  # they take a moment to end
    assert run.status == "complete" and run.rows[-1]["epoch"] == pytest.approx(8 / 3)
    kept = np.load(run.path / "predictions.npz")
    assert kept["shift_logits"].shape == kept["test_logits"].shape == (18, 3)
    np.testing.assert_array_equal(kept["shift_labels"], kept["test_labels"])
    assert not np.array_equal(kept["shift_logits"], kept["test_logits"])


def test_what_needs_everything_in_memory_says_so(folder, tmp_path):
    with pytest.raises(ValueError, match="full batch of 54 streamed images"):
        train(replace(config(folder), batch=None), tmp_path)
    with pytest.raises(ValueError, match="ar_adals needs the training set in memory"):
        train(replace(config(folder), objective="ar_adals"), tmp_path)


KILLED = """
import os, signal, sys
from toosure.config import RunConfig
from toosure.train import ProgressListener, Runtime, train

class Kill(ProgressListener):
    def row(self, row):
        if row["step"] == 20:
            os.kill(os.getpid(), signal.SIGKILL)

train(RunConfig.read(sys.argv[1]), sys.argv[2], Runtime("cpu", checkpoint=0.0), Kill())
"""


def test_a_killed_run_resumes_within_an_epoch_to_the_same_numbers(folder, tmp_path):
    asked = replace(config(folder), steps=30, every=10)
    (tmp_path / "config.json").write_text(asked.to_json())
    command = [
        sys.executable,
        "-c",
        KILLED,
        str(tmp_path / "config.json"),
        str(tmp_path / "killed"),
    ]
    with (tmp_path / "said").open("w") as said:  # no pipe: processes that read live on a moment
        killed = subprocess.run(command, stderr=said)
    assert killed.returncode == -signal.SIGKILL, (tmp_path / "said").read_text()
    where = tmp_path / "killed" / asked.name / "checkpoints"
    last = max(int(p.stem) for p in where.glob("*.pt"))
    assert last in (19, 20)  # within an epoch, which has three steps
    resumed, straight = train(asked, tmp_path / "killed"), train(asked, tmp_path / "straight")
    first, second = (np.load(run.path / "predictions.npz") for run in (resumed, straight))
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])
    assert resumed.rows[-1]["train/loss"] == straight.rows[-1]["train/loss"]


def test_a_reader_can_be_left_in_the_middle(folder):
    _, stream = both(folder)
    parts = replace(stream.stream.x, workers=2).split(2)
    assert len(list(islice(parts, 3))) == 3
    parts.close()


@pytest.mark.parametrize("images", [None, 11])
def test_shifts_of_streamed_images_are_those_of_memory(folder, images):
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 3))
    plan = ShiftPlan(("gaussian_noise", "contrast"), (1, 4), images=images)
    records = []
    for data in both(folder):
        unknown = load_ood_set(f"imagefolder:{folder},size=8", plan, data.inputs)
        judged = judge_shifts(lambda x: logits_of(network, x), data, plan, [unknown])
        records.append(replace(judged, seconds=0))
    assert records[0] == records[1] and records[0].images == (images or 18)
    known = records[0].ood["imagefolder"]  # the very test images: chance
    assert images or known.auroc["energy"] == pytest.approx(0.5)
