"""Archives unpack whole or not at all; what leads elsewhere, links or swells is refused."""

import io
import shutil
import stat
import struct
import tarfile
import zipfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toosure.data import archives
from toosure.data.archives import Member, Refused, check_name, read_blocks, unpack

FILES = {"set/train/a.txt": b"first", "set/b.txt": b"second" * 100}


def pack_tar(path, files, mode="w:gz", extra=()):
    with tarfile.open(path, mode, format=tarfile.PAX_FORMAT) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for member in extra:
            tar.addfile(member)
    return path


def pack_zip(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    return path


def refused(archive, tmp_path, message, limit=10_000):
    folder = tmp_path / "there" / "set"
    folder.parent.mkdir(exist_ok=True)
    with pytest.raises(ValueError, match=message) as caught:
        unpack(archive, folder, limit)
    assert str(archive) in str(caught.value)
    assert list(folder.parent.iterdir()) == []  # neither the folder nor a rest beside it
    assert not (tmp_path / "outside").exists() and not (tmp_path / "there" / "outside").exists()


@pytest.mark.parametrize("kind", ["tar.gz", "tar", "zip"])
def test_files_come_out_as_they_were(tmp_path, kind):
    archive = tmp_path / f"set.{kind}"
    pack_zip(archive, FILES) if kind == "zip" else pack_tar(
        archive, FILES, "w:gz" if kind == "tar.gz" else "w"
    )
    folder = unpack(archive, tmp_path / "set", 10_000)
    assert {name: (tmp_path / name).read_bytes() for name in FILES} == FILES
    assert sorted(p.name for p in tmp_path.iterdir()) == ["set", archive.name]
    with pytest.raises(ValueError, match="there already"):
        unpack(archive, folder, 10_000)


def test_an_empty_folder_is_not_in_the_way(tmp_path):
    (tmp_path / "set").mkdir()
    unpack(pack_tar(tmp_path / "set.tar", FILES, "w"), tmp_path / "set", 10_000)
    assert (tmp_path / "set/b.txt").read_bytes() == FILES["set/b.txt"]


def test_what_a_killed_process_left_is_cleared_away(tmp_path, monkeypatch):
    def interrupted(member):
        raise KeyboardInterrupt

    archive = pack_tar(tmp_path / "set.tar", FILES, "w")
    with monkeypatch.context() as patch:  # as if killed: nothing is tidied up
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        patch.setattr(archives, "read_blocks", interrupted)
        with pytest.raises(KeyboardInterrupt):
            unpack(archive, tmp_path / "set", 10_000)
    (left,) = (p for p in tmp_path.iterdir() if p != archive)
    (left / "set" / "other").write_bytes(b"of another version")
    unpack(archive, tmp_path / "set", 10_000)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["set", "set.tar"]
    assert not (tmp_path / "set" / "other").exists()


def test_two_processes_do_not_unpack_into_each_other(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    archive = pack_tar(tmp_path / "set.tar", FILES, "w")
    with open(archive, "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match=r"another process is unpacking .*set\.tar"):
            unpack(archive, tmp_path / "set", 10_000)
    unpack(archive, tmp_path / "set", 10_000)


@pytest.mark.parametrize(
    "name", ["../outside", "set/../../outside", "/outside", "set\\..\\..\\outside", "C:outside"]
)
@pytest.mark.parametrize("pack", [pack_tar, pack_zip])
def test_names_that_lead_out_are_refused(tmp_path, name, pack):
    archive = pack(tmp_path / "evil", {"set/ok": b"ok", name: b"evil"})
    refused(archive, tmp_path, "is refused.*leads out of its folder")


@pytest.mark.parametrize("pack", [pack_tar, pack_zip])
def test_another_top_folder_and_repeated_names_are_refused(tmp_path, pack):
    refused(pack(tmp_path / "a", FILES | {"other/x": b"x"}), tmp_path, "other/x is not in set/")
    refused(pack(tmp_path / "b", {}), tmp_path, "holds no set/")


@pytest.mark.parametrize("second", ["set/a", "./set/a", "set//a", "set/./a"])
def test_a_name_given_twice_is_refused(tmp_path, second):
    with tarfile.open(tmp_path / "evil", "w") as tar:
        for name in ("set/a", second):
            tar.addfile(tarfile.TarInfo(name))
    refused(tmp_path / "evil", tmp_path, "it holds set/a twice")
    with zipfile.ZipFile(tmp_path / "evil", "w") as packed:
        packed.writestr("set/a", b"one")
        if second != "set/a":
            packed.writestr(second, b"two")
        else:
            with pytest.warns(UserWarning, match="Duplicate name"):
                packed.writestr(second, b"two")
    refused(tmp_path / "evil", tmp_path, "it holds set/a twice")


def test_a_file_that_is_also_a_folder_is_refused(tmp_path):
    archive = pack_tar(tmp_path / "evil", {"set/a": b"file", "set/a/b": b"in it"})
    refused(archive, tmp_path, "cannot be unpacked.*set/a")


@pytest.mark.parametrize("name", ["set/a\0b", ".", ""])
def test_names_that_are_none_are_refused(tmp_path, name):
    with pytest.raises(Refused, match="leads out of its folder"):
        check_name(name)
    member = tarfile.TarInfo("set/x")
    member.pax_headers = {"path": name or "/"}
    archive = pack_tar(tmp_path / "evil", FILES, "w", [member])
    refused(archive, tmp_path, "is refused.*leads out of its folder")


def with_header(size: bytes, name: str = "set/a") -> bytes:
    """One tar header whose size field is as given, and the end of the archive."""
    block = bytearray(tarfile.TarInfo(name).tobuf(tarfile.GNU_FORMAT))
    block[124:136] = size
    total = 8 * 32 + sum(block[:148]) + sum(block[156:512])  # the checksum's own bytes are spaces
    block[148:156] = b"%06o\0 " % total
    return bytes(block) + bytes(1024)


@pytest.mark.parametrize("size", [2, 4])
def test_a_member_that_is_not_as_long_as_it_claims_is_refused(size):
    with pytest.raises(EOFError, match=f"a ends after 3 of {size} bytes"):
        list(read_blocks(Member("a", size, io.BytesIO(b"abc"))))


def test_a_negative_size_is_refused(tmp_path):
    size = b"\xff" * 8 + struct.pack(">i", -1024)
    (tmp_path / "evil").write_bytes(with_header(size))
    refused(tmp_path / "evil", tmp_path, "damaged or cut short")


@pytest.mark.parametrize(("real", "message"), [(9_000, None), (10**12, "claims 1,000,000,000,000")])
def test_a_file_with_holes_is_as_large_as_it_says(tmp_path, real, message):
    member = tarfile.TarInfo("set/GNUSparseFile.0/a")
    member.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "set/a",
        "GNU.sparse.realsize": str(real),
    }
    content = b"0\n".ljust(512, b"\0")  # no part of it holds anything
    member.size = len(content)
    with tarfile.open(tmp_path / "holes", "w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(member, io.BytesIO(content))
    if message:
        return refused(tmp_path / "holes", tmp_path, message)
    assert (unpack(tmp_path / "holes", tmp_path / "set", 10_000) / "a").read_bytes() == bytes(real)


def test_a_name_of_a_file_with_holes_leads_nowhere(tmp_path):
    member = tarfile.TarInfo("set/a")
    member.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
    member.pax_headers |= {"GNU.sparse.name": "../../outside", "GNU.sparse.realsize": "9"}
    member.size = 512
    with tarfile.open(tmp_path / "evil", "w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(member, io.BytesIO(b"0\n".ljust(512, b"\0")))
    refused(tmp_path / "evil", tmp_path, "leads out of its folder")


def test_a_folder_in_place_of_an_archive_is_named(tmp_path):
    (tmp_path / "archive").mkdir()
    refused(tmp_path / "archive", tmp_path, "cannot be unpacked")


def test_an_encrypted_zip_is_refused(tmp_path):
    archive = pack_zip(tmp_path / "evil", {"set/a": b"secret"})
    content = bytearray(archive.read_bytes())
    for signature, at in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        content[content.index(signature) + at] |= 1
    archive.write_bytes(content)
    refused(archive, tmp_path, "a link, a device or encrypted")


KINDS = {
    "symbolic link": tarfile.SYMTYPE,
    "hard link": tarfile.LNKTYPE,
    "character device": tarfile.CHRTYPE,
    "block device": tarfile.BLKTYPE,
    "pipe": tarfile.FIFOTYPE,
    "sparse": tarfile.GNUTYPE_SPARSE,
}


@pytest.mark.parametrize("kind", KINDS)
def test_links_and_devices_are_refused(tmp_path, kind):
    member = tarfile.TarInfo("set/strange")
    member.type, member.linkname = KINDS[kind], "/etc/passwd"
    archive = pack_tar(tmp_path / "evil", FILES, "w", [member])
    refused(archive, tmp_path, "not a file|damaged")


def test_a_link_in_a_zip_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "evil", "w") as packed:
        link = zipfile.ZipInfo("set/link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        packed.writestr(link, "/etc/passwd")
    refused(tmp_path / "evil", tmp_path, "a link, a device or encrypted")


def test_what_claims_too_much_is_refused_before_it_is_written(tmp_path):
    large = {"set/zeros": bytes(1_000_000)}  # a thousandth of it packed
    for pack in (pack_tar, pack_zip):
        archive = pack(tmp_path / pack.__name__, large)
        assert archive.stat().st_size < 5_000
        refused(archive, tmp_path, "claims 1,000,000 bytes")


def test_many_small_files_are_counted_together(tmp_path):
    many = {f"set/{i}": bytes(900) for i in range(20)}
    for pack in (pack_tar, pack_zip):
        refused(pack(tmp_path / pack.__name__, many), tmp_path, "or more, and 10,000 are plenty")


def test_a_giant_header_does_not_fill_the_memory(tmp_path):
    header = tarfile.TarInfo("set/x")
    header.type, header.size = tarfile.XHDTYPE, 50_000_000  # the name of the next member, it says
    with tarfile.open(tmp_path / "evil", "w:gz") as tar:
        tar.addfile(header, io.BytesIO(bytes(50_000_000)))
    refused(tmp_path / "evil", tmp_path, "far more than the data set")


def test_a_zip_that_understates_a_size_is_refused(tmp_path):
    archive = pack_zip(tmp_path / "evil", {"set/zeros": bytes(100_000)})
    content = bytearray(archive.read_bytes())
    for signature, at in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        place = content.index(signature) + at
        content[place : place + 4] = struct.pack("<I", 10)
    archive.write_bytes(content)
    refused(archive, tmp_path, "damaged or cut short")


WHOLE = {
    "tar.gz": lambda path: pack_tar(path, FILES),
    "zip": lambda path: pack_zip(path, FILES),
}


@pytest.mark.parametrize("kind", WHOLE)
@settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(share=st.floats(0, 0.6))
def test_a_truncated_archive_is_named(tmp_path, kind, share):
    archive = WHOLE[kind](tmp_path / "whole")
    content = archive.read_bytes()
    archive.write_bytes(content[: int(share * len(content))])
    refused(archive, tmp_path, "damaged or cut short")


@pytest.mark.parametrize("length", [0, 1, 300, 512, 514, 1024, 1100, 1600, 2560, 3072])
def test_a_tar_is_named_wherever_it_is_cut(tmp_path, length):
    archive = pack_tar(tmp_path / "whole", FILES, "w")  # 2,560 bytes, then empty blocks
    archive.write_bytes(archive.read_bytes()[:length])
    refused(archive, tmp_path, "damaged or cut short")


def test_a_flipped_bit_is_found(tmp_path):
    archive = pack_tar(tmp_path / "set.tar.gz", FILES)
    damaged = bytearray(archive.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    archive.write_bytes(damaged)
    refused(archive, tmp_path, "damaged or cut short|refused")
