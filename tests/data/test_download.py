"""Downloads come whole or not at all, go on where they broke off, and only when asked."""

import os
import shutil
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from toosure.data import download, load_cifar10, locate
from toosure.data.archives import Refused
from toosure.data.catalogue import SOURCES, Download
from toosure.data.download import checksum, fetch
from toosure.data.locate import obtain

CONTENT = bytes(range(256)) * 20_000  # 5 MB, more than one block


class Server(BaseHTTPRequestHandler):
    """Serve one content; break off after `stop` bytes, heed ranges if `ranges`, say its length."""

    content, stop, ranges, length, asked = CONTENT, None, True, True, []

    def do_GET(self):
        wanted = self.headers.get("Range")
        type(self).asked.append(wanted)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.ranges else 0
        if start >= len(self.content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if self.length:
            self.send_header("Content-Length", str(len(self.content) - start))
        self.end_headers()
        self.wfile.write(self.content[start : self.stop or len(self.content)])

    def log_message(self, *_):
        pass


@contextmanager
def serving(**settings):
    kind = type("Settings", (Server,), {"asked": [], **settings})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/file", kind
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def digest(tmp_path):
    (tmp_path / "reference").write_bytes(CONTENT)
    return checksum(tmp_path / "reference")


def test_a_whole_file(tmp_path, digest):
    told = []
    with serving() as (url, _):
        target = fetch(
            url, tmp_path / "new" / "file", digest, len(CONTENT), lambda *a: told.append(a)
        )
    assert target.read_bytes() == CONTENT and told[-1] == (len(CONTENT), len(CONTENT))
    assert [p.name for p in target.parent.iterdir()] == ["file"]


def test_a_broken_download_goes_on(tmp_path, digest):
    target = tmp_path / "new" / "file"
    broken = pytest.raises(ValueError, match=r"broke off at 3,000,000 of 5,120,000.*go on from")
    with serving(stop=3_000_000) as (url, _), broken:
        fetch(url, target, digest)
    assert not target.exists()
    assert [p.name for p in target.parent.iterdir()] == [".file.part"]
    with serving() as (url, server):
        fetch(url, target, digest)
        assert server.asked == ["bytes=3000000-"]
    assert target.read_bytes() == CONTENT
    assert [p.name for p in target.parent.iterdir()] == ["file"]


def test_a_server_without_ranges_starts_again(tmp_path, digest):
    part = tmp_path / ".file.part"
    part.write_bytes(CONTENT[:1000])
    with serving(ranges=False) as (url, _):
        assert fetch(url, tmp_path / "file", digest).read_bytes() == CONTENT


def test_a_part_that_is_whole_already_is_used(tmp_path, digest):
    for size in (None, len(CONTENT)):
        (tmp_path / ".file.part").write_bytes(CONTENT)
        with serving() as (url, _):
            assert fetch(url, tmp_path / "file", digest, size).read_bytes() == CONTENT


@pytest.mark.parametrize("size", [None, len(CONTENT)])
def test_a_wrong_file_is_named_and_deleted(tmp_path, digest, size):
    target = tmp_path / "new" / "file"
    wrong = pytest.raises(ValueError, match=rf"sent something else.*published {digest}")
    with serving(content=CONTENT[:-1] + b"x") as (url, _), wrong:
        fetch(url, target, digest, size)
    assert list(target.parent.iterdir()) == []


def test_a_size_that_is_not_the_published_one_is_refused_at_once(tmp_path, digest):
    for content in (CONTENT + b"more", CONTENT[:-5]):
        wrong = pytest.raises(ValueError, match=r"offers .* bytes, not 5,120,000")
        with serving(content=content) as (url, _), wrong:
            fetch(url, tmp_path / "new" / "file", digest, len(CONTENT))
    assert list((tmp_path / "new").iterdir()) == []


def test_a_server_that_does_not_stop_is_left(tmp_path, digest):
    endless = pytest.raises(ValueError, match="sent more than the 5,120,000 bytes")
    with serving(content=CONTENT * 3, length=False) as (url, _), endless:
        fetch(url, tmp_path / "new" / "file", digest, len(CONTENT))
    assert list((tmp_path / "new").iterdir()) == []


def test_a_part_of_another_version_costs_one_attempt(tmp_path, digest):
    target = tmp_path / "new" / "file"
    target.parent.mkdir()
    for old in (bytes(1000), bytes(len(CONTENT)), bytes(len(CONTENT) + 1)):
        (target.parent / ".file.part").write_bytes(old)
        with serving() as (url, server):
            if len(old) <= len(CONTENT):
                with pytest.raises(ValueError, match=r"something else.*Try again"):
                    fetch(url, target, digest, len(CONTENT))
                assert list(target.parent.iterdir()) == []
                assert server.asked == (["bytes=1000-"] if len(old) == 1000 else [])
            assert fetch(url, target, digest, len(CONTENT)).read_bytes() == CONTENT
        target.unlink()


def test_a_part_that_is_no_file_is_named(tmp_path, digest):
    (tmp_path / ".file.part").mkdir()
    with serving() as (url, _), pytest.raises(ValueError, match=r"cannot write.*file\.part"):
        fetch(url, tmp_path / "file", digest)


def test_a_file_that_is_not_there(tmp_path, digest):
    with pytest.raises(ValueError, match=r"could not download.*nothing was installed"):
        fetch((tmp_path / "absent").as_uri(), tmp_path / "new" / "file", digest)
    assert list((tmp_path / "new").iterdir()) == []
    with pytest.raises(ValueError, match="cannot write to"):
        fetch((tmp_path / "reference").as_uri(), tmp_path / "reference" / "below", digest)


def test_two_downloads_of_one_file_do_not_mix(tmp_path, digest):
    fcntl = pytest.importorskip("fcntl")
    with open(tmp_path / ".file.part", "ab") as part:
        fcntl.flock(part, fcntl.LOCK_EX)
        with serving() as (url, _), pytest.raises(ValueError, match="another process"):
            fetch(url, tmp_path / "file", digest)


def test_a_file_is_its_writers_until_it_is_checked(tmp_path, digest, monkeypatch):
    pytest.importorskip("fcntl")
    whole, others = download.checksum, []

    def second(*arguments):  # while the first one's file is read, somebody else wants it
        monkeypatch.setattr(download, "checksum", whole)
        with pytest.raises(ValueError, match="another process") as caught:
            fetch(url, tmp_path / "file", digest, len(CONTENT))
        others.append(caught)
        return whole(*arguments)

    monkeypatch.setattr(download, "checksum", second)
    with serving() as (url, _):
        assert fetch(url, tmp_path / "file", digest, len(CONTENT)).read_bytes() == CONTENT
    assert len(others) == 1 and not (tmp_path / ".file.part").exists()


def source_of(name, archive, monkeypatch, **changes):
    """Let a data set be what a local archive holds."""
    source = SOURCES[name]
    old = source.downloads[0]
    new = Download(archive.as_uri(), old.target, checksum(archive), archive.stat().st_size)
    new = replace(new, folder=old.folder, **changes)
    monkeypatch.setitem(SOURCES, name, replace(source, downloads=(new,)))


def test_cifar_is_downloaded_only_when_asked(root, archive, monkeypatch, tmp_path):
    where = tmp_path / "other"
    source_of("cifar10", archive, monkeypatch)
    with pytest.raises(ValueError, match="toosure data cifar10 --download"):
        load_cifar10(where)
    assert not where.exists()
    assert len(load_cifar10(where, download=True).train_y) == 100
    assert [p.name for p in where.iterdir()] == ["cifar-10-python.tar.gz"]


@pytest.fixture
def packed(tmp_path):
    """CIFAR-10-C's archive, as far as unpacking is concerned."""
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    (folder / "labels.npy").write_bytes(b"labels" * 1000)
    archive = shutil.make_archive(str(tmp_path / "packed"), "tar", tmp_path, folder.name)
    shutil.rmtree(folder)
    return tmp_path / os.path.basename(archive)


def test_an_archive_is_fetched_checked_unpacked_and_deleted(packed, monkeypatch, tmp_path):
    source_of("cifar10_c", packed, monkeypatch)
    where = tmp_path / "data"
    obtain("cifar10_c", where)
    assert [p.name for p in where.iterdir()] == ["CIFAR-10-C"]
    assert (where / "CIFAR-10-C" / "labels.npy").read_bytes() == b"labels" * 1000
    obtain("cifar10_c", where)  # nothing to do


def test_an_archive_that_lies_there_is_used_and_kept(packed, monkeypatch, tmp_path):
    source_of("cifar10_c", packed, monkeypatch, url="http://127.0.0.1:9/never-asked")
    packed.rename(tmp_path / "CIFAR-10-C.tar")
    obtain("cifar10_c", tmp_path)
    assert (tmp_path / "CIFAR-10-C").is_dir() and (tmp_path / "CIFAR-10-C.tar").is_file()


def test_a_truncated_archive_that_lies_there_is_named(packed, monkeypatch, tmp_path):
    source_of("cifar10_c", packed, monkeypatch)
    (tmp_path / "CIFAR-10-C.tar").write_bytes(packed.read_bytes()[:5000])
    with pytest.raises(ValueError, match=r"CIFAR-10-C\.tar has 5,000 bytes, not"):
        obtain("cifar10_c", tmp_path)
    assert not (tmp_path / "CIFAR-10-C").exists()


@pytest.mark.parametrize("name", SOURCES)
def test_each_need_has_its_download(name):
    source = SOURCES[name]
    assert len(source.downloads) in (0, len(source.needs))
    for places, each in zip(source.needs, source.downloads, strict=False):
        assert (each.folder or each.target) in places


@pytest.mark.parametrize("name", ["mnist", "svhn", "digits", "cifar10"])
def test_what_is_here_is_not_fetched_again(name, root, monkeypatch):
    source = SOURCES[name]
    asked = []
    monkeypatch.setattr(locate, "fetch", lambda url, *_: asked.append(url))
    for places in source.needs if name != "cifar10" else ():
        (root / places[-1]).parent.mkdir(parents=True, exist_ok=True)
        (root / places[-1]).write_bytes(b"not in the place where a download would go")
    obtain(name, root)
    assert asked == []
    if name in ("mnist", "svhn"):  # the second file alone is missing
        (root / source.needs[1][-1]).unlink()
        obtain(name, root)
        assert asked == [source.downloads[1].url]


def test_a_damaged_file_says_the_way_out(root, archive, monkeypatch):
    source_of("cifar10", archive, monkeypatch)
    archive.write_bytes(archive.read_bytes()[:-1] + b"x")
    with pytest.raises(ValueError, match=r"tar\.gz is damaged.*; move it away and ask again"):
        obtain("cifar10", root)
    with pytest.raises(ValueError, match=r"tar\.gz is damaged.*; move it away and fetch it again"):
        load_cifar10(root, download=True)


def test_half_a_folder_is_said_before_anything_is_fetched(packed, monkeypatch, tmp_path):
    source_of("cifar10_c", packed, monkeypatch, url="http://127.0.0.1:9/never-asked")
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    (folder / "fog.npy").write_bytes(b"")
    with pytest.raises(ValueError, match=r"CIFAR-10-C is there, but not all of it: move it away"):
        obtain("cifar10_c", tmp_path)
    (folder / "fog.npy").unlink()
    source_of("cifar10_c", packed, monkeypatch)
    obtain("cifar10_c", tmp_path)  # an empty one is not in the way
    assert (folder / "labels.npy").is_file()


def test_a_bomb_with_the_right_checksum_installs_nothing(packed, monkeypatch, tmp_path):
    source_of("cifar10_c", packed, monkeypatch)
    monkeypatch.setattr(locate, "MAX_UNPACK_RATIO", 0)
    with pytest.raises(Refused, match="is refused"):
        obtain("cifar10_c", tmp_path / "data")
    assert [p.name for p in (tmp_path / "data").iterdir()] == ["CIFAR-10-C.tar"]


def test_unpacking_needs_room(packed, monkeypatch, tmp_path):
    source_of("cifar10_c", packed, monkeypatch)
    usage = shutil.disk_usage(tmp_path)._replace(free=2 * packed.stat().st_size - 1)
    monkeypatch.setattr(locate.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(ValueError, match=r"GB free, and unpacking needs"):
        obtain("cifar10_c", tmp_path / "data")
    assert not (tmp_path / "data" / "CIFAR-10-C").exists()


def test_what_needs_an_account_says_so(tmp_path):
    with pytest.raises(ValueError, match=r"not downloaded for you.*image-net\.org.*sign in"):
        obtain("imagenet", tmp_path)
