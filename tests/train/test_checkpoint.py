"""Damaged checkpoints and rows: found before anything is loaded, stepped over with a sentence."""

import os
import random
import zipfile

import pytest
import torch
from test_resume import CPU, SMALL, Cut, CutAt, same_run

from toosure.config import RunConfig
from toosure.runs import Run, RunError, RunWriter
from toosure.train import ProgressListener, Runtime, train
from toosure.train.checkpoint import checkpoints, load_checkpoint, read_checkpoint, save_checkpoint
from toosure.train.checksum import LENGTH, MARK

CONFIG = RunConfig(**SMALL, steps=12, every=3)


class Sayings(ProgressListener):
    def __init__(self):
        self.said = []

    def message(self, message):
        self.said.append(message)


@pytest.fixture
def cut(tmp_path):
    """A run that ended at step 8 by a power cut, with the checkpoints of steps 7 and 8."""
    with pytest.raises(Cut):
        train(CONFIG, tmp_path / "cut", Runtime("cpu", checkpoint=0.0), CutAt(9))
    return tmp_path / "cut" / CONFIG.name


def resumed(folder):
    listener = Sayings()
    run = train(CONFIG, folder.parent, CPU, listener)
    return run, listener.said


def flip(file, bit):
    data = bytearray(file.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    file.write_bytes(data)


# -- bit flips ------------------------------------------------------------------------------


def test_no_bit_flip_is_accepted(cut):
    file = checkpoints(cut)[-1]
    whole = file.read_bytes()
    assert read_checkpoint(file) is not None

    moments = random.Random(0)
    for _ in range(150):
        flip(file, moments.randrange(8 * len(whole)))
        assert read_checkpoint(file) is None
        file.write_bytes(whole)


@pytest.mark.parametrize("bit", range(0, 8 * LENGTH, 5))
def test_no_bit_flip_in_the_checksum_itself_is_accepted(cut, bit):
    file = checkpoints(cut)[-1]
    flip(file, 8 * (file.stat().st_size - LENGTH) + bit)
    assert read_checkpoint(file) is None


def test_a_flipped_bit_in_a_weight_is_stepped_over_with_a_sentence(cut, tmp_path):
    file = checkpoints(cut)[-1]
    weights = next(iter(read_checkpoint(file)["model"].values()))
    flip(file, 8 * file.read_bytes().index(weights.numpy().tobytes()) + 3)

    run, said = resumed(cut)
    assert said == ["checkpoints/8.pt is damaged; resumed at step 7"]
    same_run(run, train(CONFIG, tmp_path / "whole", CPU))


def test_torch_and_zipfile_read_a_checkpoint_with_a_checksum(cut):
    file = checkpoints(cut)[-1]
    assert torch.load(file, weights_only=True)["step"] == 8
    assert torch.load(file, weights_only=True, mmap=True)["step"] == 8
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None and archive.comment.startswith(MARK)


def test_checkpoints_that_were_stepped_over_are_not_kept_in_place_of_sound_ones(tmp_path):
    with RunWriter(tmp_path) as writer:
        for step in (100, 200, 150, 160):  # 200 was damaged, and the run resumed at 100
            save_checkpoint(writer, step, {"step": step})
    assert [file.stem for file in checkpoints(tmp_path)] == ["150", "160"]


# -- rows -----------------------------------------------------------------------------------


def cut_rows(path):
    path.write_bytes(path.read_bytes()[:-40])


def lose_the_last_row(path):
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def change_a_digit(path):
    data = path.read_bytes()
    place = data.rindex(b'"val/ece": 0.') + len(b'"val/ece": 0.')
    path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])


def zero_a_page(path):
    data = path.read_bytes()
    path.write_bytes(data[:-100] + bytes(100))


@pytest.mark.parametrize("damage", [cut_rows, lose_the_last_row, change_a_digit, zero_a_page])
def test_a_run_steps_back_to_the_checkpoint_whose_rows_are_there(tmp_path, damage):
    config = RunConfig(**SMALL, steps=12, every=1)
    with pytest.raises(Cut):
        train(config, tmp_path / "cut", Runtime("cpu", checkpoint=0.0), CutAt(9))
    rows = tmp_path / "cut" / config.name / "metrics.jsonl"
    lines = rows.read_bytes().splitlines(keepends=True)
    rows.write_bytes(b"".join(lines[:9]))  # the last is the row of step 8
    damage(rows)

    listener = Sayings()
    run = train(config, tmp_path / "cut", CPU, listener)
    sentence = "rows up to checkpoints/8.pt are missing or damaged in metrics.jsonl; "
    assert listener.said == [f"{sentence}resumed at step 7"]
    same_run(run, train(config, tmp_path / "whole", CPU))


def test_rows_that_are_gone_altogether_are_an_error_that_changes_nothing(cut):
    (cut / "metrics.jsonl").unlink()
    with pytest.raises(RunError, match=r"no checkpoint can be used \(rows up to .*move the folder"):
        train(CONFIG, cut.parent, CPU)
    assert [file.stem for file in checkpoints(cut)] == ["7", "8"]
    assert load_checkpoint(cut)[0]["step"] == 8  # the weights alone are still read


def test_rows_are_on_the_disk_before_their_checkpoint(tmp_path, monkeypatch):
    synced = []
    original = os.fsync

    def fsync(place):
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{place}")))
        original(place)

    monkeypatch.setattr(os, "fsync", fsync)
    train(RunConfig(**SMALL, steps=2, every=1), tmp_path, Runtime("cpu", checkpoint=0.0))
    files = [name for name in synced if name == "metrics.jsonl" or ".pt." in name]
    assert files[::2] == ["metrics.jsonl"] * 2 and all(".pt." in name for name in files[1::2])


def test_rows_go_on_in_the_file_that_was_cut_back(tmp_path):
    with RunWriter(tmp_path) as writer:
        for step in range(4):
            writer.append({"step": step})
        writer.cut_back(1)
        writer.append({"step": 2, "again": 1})
        digest = writer.sync_rows()
    assert Run(tmp_path).rows == [{"step": 0}, {"step": 1}, {"step": 2, "again": 1}]
    assert digest["count"] == 3
