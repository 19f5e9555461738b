"""Images in tar shards are those of the same folder, image for image, in shares and resumed."""

import gzip
import io
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tarfile

import numpy as np
import pytest
import torch
from test_streamed_folders import KILLED

import toosure.data.shard_index as index_module
from toosure.config import RunConfig
from toosure.data import imagefolder, shards
from toosure.data.image_files import ImageFiles
from toosure.data.shard_index import index_of, member_places, read_member
from toosure.data.shards import expand_braces
from toosure.processes import Processes
from toosure.train import ProgressListener, Runtime, train
from toosure.train.batches import Batches
from toosure.words import parse
from waiting import wait_until

Image = pytest.importorskip("PIL.Image")
CLASSES = ("cat", "dog", "emu")
DEFAULTS = {"size": 8, "val": 6, "noise": 0.2, "seed": 3}


def write_tar(path, members):
    """Write (name, content) pairs in order."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.mtime = 1700000000.5  # as WebDataset: a header more before each member
            tar.addfile(info, io.BytesIO(content))
    return path


def png(seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (12, 10, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def samples(count, label=lambda i: str(i % 2)):
    """Members of samples with a .cls each."""
    for i in range(count):
        yield f"{i:05}.png", png(i)
        yield f"{i:05}.cls", label(i).encode()


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A folder of images, and the same in shards of seven, in the order of the folder's list."""
    folder, tars = tmp_path_factory.mktemp("images"), tmp_path_factory.mktemp("shards")
    for part, count in (("train", 20), ("test", 6)):
        members = []
        for label, name in enumerate(CLASSES):
            (folder / part / name).mkdir(parents=True)
            for i in range(count):
                content = png([label, i, count])
                (folder / part / name / f"{i:02}.png").write_bytes(content)
                key = f"{name}/{i:02}"
                members.append([(f"{key}.png", content), (f"{key}.cls", name.encode())])
        for start in range(0, len(members), 7):
            chosen = [member for sample in members[start : start + 7] for member in sample]
            write_tar(tars / part / f"{part}-{start // 7:03}.tar", chosen)
    return folder, tars


def assert_same(one, other):
    for mine, theirs in zip(vars(one).values(), vars(other).values(), strict=True):
        if isinstance(mine, ImageFiles):
            mine, theirs = (torch.cat(list(x.split(5))) for x in (mine, theirs))
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("stream", [False, True])
def test_shards_are_the_folder_image_for_image(places, stream):
    folder, tars = places
    settings = {**DEFAULTS, "stream": stream, "watched": 20, "workers": 0}
    expected, data = imagefolder(folder, **settings), shards(tars, **settings)
    assert data.names == expected.names == CLASSES and data.examples == 54
    assert torch.equal(data.mean, expected.mean) and torch.equal(data.std, expected.std)
    for part in ("train", "val", "test", *(["stream"] if stream else [])):
        assert_same(getattr(data, part), getattr(expected, part))


def test_patterns_are_the_folder(places):
    _, tars = places
    whole = shards(tars, **DEFAULTS)
    for pattern in ("train-*.tar", "train-{000..008}.tar", "train-00{0,2,4,6,8}.tar"):
        data = shards(tars / "train" / pattern, test_path=tars / "test" / "test-*.tar", **DEFAULTS)
        if "{0,2" not in pattern:
            assert_same(data.train, whole.train)
            assert_same(data.test, whole.test)
    assert len(data.train) == 4 * 7 + 4 - 6
    held_out = shards(tars / "train", size=8)
    assert len(held_out.test) == 12 and len(held_out.train) == 48


def test_a_validation_set_of_its_own(places):
    _, tars = places
    data = shards(
        tars / "train" / "train-00[0-5].tar",
        val_path=tars / "train" / "train-00{6..8}.tar",
        test_path=tars / "test",
        size=8,
    )
    assert [len(s) for s in (data.train, data.val, data.test)] == [42, 18, 18]


def test_val_is_the_test_set_unless_one_is_named(places, tmp_path):
    _, tars = places
    (tmp_path / "train").symlink_to(tars / "train")
    (tmp_path / "val").symlink_to(tars / "test")
    data = shards(tmp_path, size=8)
    assert data.val is None and len(data.test) == 18
    other = write_tar(tmp_path / "other.tar", samples(4, lambda i: CLASSES[i % 3]))
    data = shards(tmp_path, test_path=other, size=8)
    assert len(data.val) == 18 and len(data.test) == 4
    data = shards(tmp_path / "train", val_path=other, size=8)  # a fifth is held out
    assert [len(s) for s in (data.train, data.val, data.test)] == [48, 4, 12]


def test_the_word_keeps_its_pattern():
    text = "shards:tars/train-{000..146}.tar,test_path=tars/val-*.tar,size=64"
    assert str(parse("data", text)) == text
    quoted = parse("data", 'shards:"tars/{a,b}.tar"')
    assert str(quoted.settings["path"]) == "tars/{a,b}.tar" and "{a,b}" in str(quoted)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a.tar", ["a.tar"]),
        ("{8..11}", ["8", "9", "10", "11"]),
        ("{08..10}.tar", ["08.tar", "09.tar", "10.tar"]),
        ("{a,b}{0..1}", ["a0", "a1", "b0", "b1"]),
        ("{a,{b,c}}", ["a", "b", "c"]),
    ],
)
def test_braces(pattern, names):
    assert expand_braces(pattern) == names


@pytest.mark.parametrize("pattern", ["{3..1}", "{0..9999999999}", "{0..999}{0..999}"])
def test_braces_that_stand_for_no_shards_or_too_many(pattern):
    with pytest.raises(ValueError, match=r"must count upwards|more than 100,000 shards"):
        expand_braces(pattern)


def test_labels_of_json_and_numbers(tmp_path):
    members = []
    for i in range(12):
        content = {"label": i % 3, "fine": f"kind {i % 2}", "width": 10}
        members += [(f"{i}.json", json.dumps(content).encode()), (f"{i}.png", png(i))]
        members += [(f"{i}.seg.png", b"not read"), (f"{i}.txt", b"not read")]
    tar = write_tar(tmp_path / "x.tar", members)
    data = shards(tar, size=8, test=4)
    assert data.names == ("0", "1", "2")
    labels = torch.cat([data.train.clean, data.test.clean])
    order = torch.cat([data.train.indices, data.test.indices])
    assert len(labels) == 12 and set(labels.tolist()) == {0, 1, 2} and len(order) == 12
    assert shards(tar, size=8, label="fine").names == ("kind 0", "kind 1")

    counted = ((name.replace("json", "cls"), b"007\n") for name, _ in members[::4])
    tar = write_tar(tmp_path / "both.tar", [*members, *counted])
    assert set(index_of(tar, "label").labels) == {"7"}  # a .cls counts before a .json


# -- the index ------------------------------------------------------------------------------


def test_the_index_is_made_once_and_again_when_the_shard_changes(tmp_path, monkeypatch):
    scanned = []
    scan = index_module.scan_shard
    monkeypatch.setattr(
        index_module, "scan_shard", lambda *words: (scanned.append(1), scan(*words))[1]
    )
    tar = write_tar(tmp_path / "x.tar", samples(6))
    first, second = index_of(tar, "label"), index_of(tar, "label")
    assert len(scanned) == 1 and sorted(p.name for p in tmp_path.iterdir()) == [
        "x.tar",
        "x.tar.index.npz",
    ]
    for name in ("offsets", "sizes", "labels"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))

    os.utime(tar, ns=(1, 1))  # another time
    assert len(index_of(tar, "label")) == 6 and len(scanned) == 2
    write_tar(tar, samples(30))
    os.utime(tar, ns=(1, 1))  # another size
    assert len(index_of(tar, "label")) == 30 and len(scanned) == 3
    index_of(tar, "another key")
    assert len(scanned) == 4
    for damage in (b"", b"PK\x03\x04 cut short", b"no archive"):
        (tmp_path / "x.tar.index.npz").write_bytes(damage)
        assert len(index_of(tar, "label")) == 30
    assert len(scanned) == 7 and len(list(tmp_path.iterdir())) == 2


def test_a_folder_that_cannot_be_written_needs_no_index_file(tmp_path, monkeypatch):
    tar = write_tar(tmp_path / "x.tar", samples(6))

    def refuse(*words):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(index_module, "save_index", refuse)
    assert len(index_of(tar, "label")) == 6 and list(tmp_path.iterdir()) == [tar]


def test_long_names_are_found(tmp_path):
    """Names past 100 characters have headers of their own, in either format."""
    for kind in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        with tarfile.open(tmp_path / "x.tar", "w", format=kind) as tar:
            for name, content in samples(2):
                info = tarfile.TarInfo("long" * 70 + name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        index = index_of(tmp_path / "x.tar", "label")
        listed = member_places([tmp_path / "x.tar"], [index])
        assert [read_member(place).read() for place in listed] == [png(0), png(1)]
        os.remove(tmp_path / "x.tar")


# -- training -------------------------------------------------------------------------------


def test_two_processes_read_disjoint_shares_of_the_batches_of_one(places):
    _, tars = places
    data = shards(tars, **DEFAULTS, stream=True, watched=20, workers=0)
    alone = Batches(data, 16, seed=5)
    pair = [
        Batches(data, 16, 5, Processes(rank, 2, data.mean.device), in_shares=True)
        for rank in (0, 1)
    ]
    seen = []
    for step in range(4):  # over the end of an epoch, which has three steps
        whole, shares = alone.draw(step), [batches.draw(step) for batches in pair]
        for part in range(3):  # inputs, labels, indices
            assert torch.equal(torch.cat([share[part] for share in shares]), whole[part])
        first, second = (set(share[2].tolist()) for share in shares)
        assert len(first) == len(second) == 8 and not first & second
        seen += [*first, *second]
    assert len(set(seen[:48])) == 48  # no image twice within an epoch


def config(tars, **settings):
    word = f"shards:{tars},size=8,val=6,stream=true,watched=20,augment=true"
    return RunConfig(data=word, batch=16, model="mlp:width=8", **settings)


def assert_same_end(resumed, straight):
    first, second = (np.load(run.path / "predictions.npz") for run in (resumed, straight))
    assert first.files == second.files
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])
    assert resumed.rows[-1]["train/loss"] == straight.rows[-1]["train/loss"]
    wait_until(lambda: not multiprocessing.active_children())


class PowerCut(Exception):
    """Ends a run without its knowledge."""


class CutAt(ProgressListener):
    def __init__(self, step):
        self.step = step

    def row(self, row):
        if row["step"] == self.step:
            raise PowerCut


def test_a_run_resumes_within_an_epoch_bit_for_bit(places, tmp_path):
    asked = config(places[1], steps=12, every=4)
    with pytest.raises(PowerCut):
        train(asked, tmp_path / "cut", Runtime("cpu", checkpoint=0.0), CutAt(8))
    last = max(int(p.stem) for p in (tmp_path / "cut" / asked.name / "checkpoints").glob("*.pt"))
    assert last in (7, 8)  # within an epoch, which has three steps
    assert_same_end(train(asked, tmp_path / "cut"), train(asked, tmp_path / "straight"))


@pytest.mark.slow
def test_a_killed_run_resumes_within_an_epoch_bit_for_bit(places, tmp_path):
    asked = config(places[1], steps=40, every=20)
    (tmp_path / "config.json").write_text(asked.to_json())
    words = [str(tmp_path / "config.json"), str(tmp_path / "killed")]
    with (tmp_path / "said").open("w") as said:
        killed = subprocess.run([sys.executable, "-c", KILLED, *words], stderr=said)
    assert killed.returncode == -signal.SIGKILL, (tmp_path / "said").read_text()
    assert_same_end(train(asked, tmp_path / "killed"), train(asked, tmp_path / "straight"))


# -- errors ---------------------------------------------------------------------------------

CAT = (("a.png", png()), ("a.cls", b"0"))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ((*CAT, ("b.png", png())), "sample b has no label: neither a .cls nor 'label'"),
        ((*CAT, ("b.png", png()), ("b.json", b"{}")), "sample b has no label"),
        ((*CAT, ("b.png", png()), ("b.cls", b" ")), "sample b has no label"),
        ((*CAT, ("b.cls", b"1")), "sample b has a label and no image"),
        ((*CAT, ("a.jpg", png())), "sample a has two images"),
        ((*CAT, ("a.cls", b"1")), "it holds a.cls twice"),
        ((*CAT, ("a.json", b"{")), "a.json cannot be read as JSON"),
        ((*CAT, ("a.json", b'{"label": [1]}')), r"must be a whole number or a name; got \[1\]"),
        ((CAT[0], ("a.cls", b"\xff")), "a.cls is not text in UTF-8"),
        ((CAT[0], ("a.cls", bytes(1 << 21))), "a.cls has 2,097,152 bytes, too many"),
        ((("a.txt", b"text"),), "it holds no images"),
    ],
)
def test_members_that_make_no_samples(tmp_path, members, message):
    tar = write_tar(tmp_path / "x.tar", members)
    with pytest.raises(ValueError, match=rf"^\S+x\.tar is refused: .*{message}") as caught:
        shards(tar)
    assert "\n" not in str(caught.value) and list(tmp_path.iterdir()) == [tar]


def test_links_and_compressed_shards_are_refused(tmp_path):
    tar = write_tar(tmp_path / "x.tar", samples(4))
    (tmp_path / "y.tar").write_bytes(gzip.compress(tar.read_bytes()))
    with pytest.raises(ValueError, match=r"y\.tar is refused: it is compressed.*gunzip"):
        shards(tmp_path / "y.tar")
    with tarfile.open(tar, "a") as opened:
        link = tarfile.TarInfo("b.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        opened.addfile(link)
    with pytest.raises(ValueError, match=r"b\.png is a link or a device, not a file"):
        shards(tar)


def test_a_shard_cut_anywhere_is_an_error(tmp_path):
    whole = write_tar(tmp_path / "x.tar", samples(4)).read_bytes()
    ends = index_of(tmp_path / "x.tar", "label").offsets[-1] + 2048  # of the last member, about
    cut = tmp_path / "cut.tar"
    for length in [0, 100, *range(512, int(ends), 700), *range(512, int(ends), 512)]:
        cut.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"cut\.tar is damaged or cut short: .*fetch it again"):
            index_of(cut, "label")

    # A member has an extended header, its content, a header, and its content.
    offset = int(index_of(tmp_path / "x.tar", "label").offsets[2])
    for before, message in ((1500, "is neither a member nor the archive's end"), (400, "checksum")):
        damaged = bytearray(whole)
        damaged[offset - before] ^= 1
        cut.write_bytes(damaged)
        with pytest.raises(ValueError, match=rf"cut\.tar is damaged or cut short: .*{message}"):
            index_of(cut, "label")


@pytest.mark.parametrize("workers", [0, 1])
def test_what_is_damaged_after_it_was_indexed_is_named(tmp_path, workers):
    tar = write_tar(tmp_path / "x.tar", samples(6))
    index = index_of(tar, "label")
    zero = torch.zeros(3, 1, 1)
    images = ImageFiles(member_places([tar], [index]), 8, zero, zero + 1, workers)
    content = tar.read_bytes()
    offset, size = int(index.offsets[4]), int(index.sizes[4])

    tar.write_bytes(content[:offset] + bytes(size) + content[offset + size :])
    with pytest.raises(ValueError, match=r"^00004\.png in \S+x\.tar cannot be read as an image"):
        list(images.split(2))
    tar.write_bytes(content[: offset + size - 1])
    with pytest.raises(ValueError, match=r"^\S+x\.tar is damaged, cut short or has changed .*byte"):
        list(images.split(2))
    write_tar(tar, [("note.txt", b"first"), *samples(6)])  # all else lies further on
    with pytest.raises(ValueError, match=r"^\S+x\.tar is damaged, cut short or has changed .*byte"):
        list(images.split(2))
    tar.unlink()
    with pytest.raises(ValueError, match=r"^\S+x\.tar cannot be read at byte [\d,]+: .*No such"):
        list(images.split(2))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (lambda i: "0", r"two or more classes; got \['0'\]"),
        (lambda i: str(i % 2 + 1), "from 0 without gaps; no training image has 0, and one has 2"),
        (lambda i: str(i % 2 * 999), "no training image has 1, and one has 999"),
    ],
)
def test_labels_that_are_no_classes(tmp_path, labels, message):
    tar = write_tar(tmp_path / "x.tar", samples(6, labels))
    with pytest.raises(ValueError, match=message):
        shards(tar, size=8)


def test_paths_that_name_no_set_of_shards(tmp_path):
    write_tar(tmp_path / "train-0.tar", samples(6))
    write_tar(tmp_path / "val-0.tar", samples(3, lambda i: str(i)))
    (tmp_path / "empty").mkdir()
    one, other = tmp_path / "train-0.tar", tmp_path / "val-0.tar"
    for path, test_path, message in (
        (
            tmp_path,
            None,
            r"several sets, train-\*\.tar, val-\*\.tar: name them by patterns, shards:",
        ),
        (tmp_path / "empty", None, r"empty holds no shards \(\*\.tar\)"),
        (tmp_path / "absent", None, "there is no folder or shard .*absent"),
        (tmp_path / "train-{0..1}.tar", None, r"there is no folder or shard .*train-1\.tar"),
        (tmp_path / "other-*.tar", None, r"there is no folder or shard that matches .*other-\*"),
        ("s3://bucket/x.tar", None, "shards are read from local paths; got s3:/bucket"),
        (one, one, r"train-0\.tar is named 2 times"),
        (one, other, "the shards of test have classes that those of train lack: 2"),
    ):
        with pytest.raises(ValueError, match=message):
            shards(path, test_path=test_path, size=8)
