"""The index of a tar shard: the places of its images and their labels, for random access.

A tar archive has no list of its members: all headers are read once, and what they say is kept in a
file beside the shard, NAME.tar.index.npz, until the size or the time of the shard changes.
"""

import io
import json
import os
import re
import tarfile
import uuid
import zipfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.lib.npyio import NpzFile

from toosure.data.archives import GZIP_MAGIC, TAR_END, Refused, errors_name
from toosure.data.class_folders import SUFFIXES

VERSION = 1  # of the index file
HEADER = tarfile.BLOCKSIZE  # bytes before each member's content
MAX_LABEL_BYTES = 1 << 20
NUMBER = re.compile("[0-9]{1,9}")


@dataclass(frozen=True)
class ShardIndex:
    """The images of one shard, in the order of the archive."""

    offsets: np.ndarray  # (N,) int64, of the content
    sizes: np.ndarray  # (N,) int64, in bytes
    labels: np.ndarray  # (N,) text, as the shard has them

    def __len__(self) -> int:
        return len(self.offsets)


def index_of(shard: Path, label: str) -> ShardIndex:
    """Return the index beside a shard; make and keep it if it is missing.

    `label` is the key of the label in .json members.
    """
    with errors_name(shard):
        status = shard.stat()
    made_from = f"{VERSION} {status.st_size} {status.st_mtime_ns} {label}"

    kept = shard.with_name(f"{shard.name}.index.npz")
    index = load_index(kept, made_from)
    if index is None:
        index = scan_shard(shard, label)
        with suppress(OSError):  # a folder that cannot be written: the index stays in memory
            save_index(kept, index, made_from)
    return index


def load_index(kept: Path, made_from: str) -> ShardIndex | None:
    """Return a stored index; None if there is none of exactly this shard."""
    try:
        with open(kept, "rb") as file, NpzFile(file, allow_pickle=False) as arrays:
            if str(arrays["made_from"]) != made_from:
                return None
            index = ShardIndex(arrays["offsets"], arrays["sizes"], arrays["labels"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None  # absent or damaged
    return index


def save_index(kept: Path, index: ShardIndex, made_from: str) -> None:
    """Write an index beside its target and rename it: several processes may do so at once."""
    temporary = kept.with_name(f".{kept.name}.{uuid.uuid4().hex}")
    try:
        with open(temporary, "xb") as file:
            np.savez(file, made_from=np.array(made_from), **vars(index))
        os.replace(temporary, kept)
    finally:
        temporary.unlink(missing_ok=True)


@dataclass
class Members:
    """What the members of a shard hold, by the key of their sample."""

    images: dict[str, tuple[int, int]] = field(default_factory=dict)  # offset and size
    cls_labels: dict[str, str] = field(default_factory=dict)
    json_labels: dict[str, str] = field(default_factory=dict)


def scan_shard(shard: Path, label: str) -> ShardIndex:
    """Read all headers and labels of a shard; raise if it is damaged, cut short or incomplete."""
    members = Members()
    with errors_name(shard), open(shard, "rb") as file:
        if file.read(2) == GZIP_MAGIC:
            raise Refused("it is compressed, so that no image can be read alone: gunzip it first")
        file.seek(0)

        with tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                add_member(members, tar, member, label)

            # At a damaged header tarfile stops as at the end.
            file.seek(tar.offset)
            if file.read(len(TAR_END)) != TAR_END:
                raise EOFError(f"at byte {tar.offset:,} is neither a member nor the archive's end")
        return index_members(members, label)


def add_member(members: Members, tar: tarfile.TarFile, member: tarfile.TarInfo, label: str) -> None:
    """Note one member: an image, a label, or something that is not needed."""
    if member.isdir():
        return
    path = PurePosixPath(member.name)
    stem, _, suffix = path.name.partition(".")
    suffix = f".{suffix.lower()}"
    if not stem or suffix not in {*SUFFIXES, ".cls", ".json"}:
        return

    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
        raise Refused(f"{member.name} is a link or a device, not a file")
    sample = str(path.parent / stem)
    if suffix in SUFFIXES:
        if sample in members.images:
            raise Refused(f"sample {sample} has two images: which one is meant?")
        members.images[sample] = (member.offset_data, member.size)
        return

    labels = members.cls_labels if suffix == ".cls" else members.json_labels
    if sample in labels:
        raise Refused(f"it holds {member.name} twice")
    text = read_text(tar, member)
    if suffix == ".cls":
        labels[sample] = without_zeros(text.strip())
    elif (value := json_label(text, label, member.name)) is not None:
        labels[sample] = value


def read_text(tar: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    """Return the content of a small member."""
    if member.size > MAX_LABEL_BYTES:
        raise Refused(f"{member.name} has {member.size:,} bytes, too many for a label")
    content = tar.extractfile(member)
    assert content is not None  # it is a plain file
    try:
        return content.read().decode()
    except UnicodeDecodeError as error:
        raise Refused(f"{member.name} is not text in UTF-8") from error


def json_label(text: str, label: str, name: str) -> str | None:
    """Return the label of a .json member, or None if it has none."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(f"{name} cannot be read as JSON: {error}") from error
    value = content.get(label) if isinstance(content, dict) else None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise Refused(f"{name}: {label!r} must be a whole number or a name; got {value!r:.80}")
    return without_zeros(str(value).strip())


def without_zeros(label: str) -> str:
    """Write a number in one way, 7 and not 007; a name stays as it is."""
    return str(int(label)) if NUMBER.fullmatch(label) else label


def index_members(members: Members, label: str) -> ShardIndex:
    """Join images and labels; a .cls counts before a .json."""
    labels = members.json_labels | members.cls_labels
    if not members.images:
        raise Refused(f"it holds no images ({', '.join(sorted(SUFFIXES))})")
    if alone := sorted(labels.keys() - members.images.keys()):
        raise Refused(f"sample {alone[0]} has a label and no image")
    for sample in members.images:
        if not labels.get(sample):
            raise Refused(f"sample {sample} has no label: neither a .cls nor {label!r} in a .json")

    places = np.array(list(members.images.values()), dtype=np.int64)
    return ShardIndex(
        offsets=places[:, 0],
        sizes=places[:, 1],
        labels=np.array([labels[sample] for sample in members.images]),
    )


def member_places(shards: list[Path], indices: list[ShardIndex]) -> np.ndarray:
    """Return where each image of some shards lies: one array, as the paths of files are."""
    paths = np.array([os.fsencode(shard) for shard in shards], dtype=np.bytes_)
    kind = np.dtype([("shard", paths.dtype), ("offset", np.int64), ("size", np.int64)])

    places = np.empty(sum(map(len, indices)), dtype=kind)
    start = 0
    for path, index in zip(paths, indices, strict=True):
        part = places[start : start + len(index)]
        part["shard"] = path
        part["offset"] = index.offsets
        part["size"] = index.sizes
        start += len(index)
    return places


class MemberFile(io.BytesIO):
    """The content of one member, named by its shard and itself."""

    def __init__(self, content: bytes, title: str) -> None:
        super().__init__(content)
        self.title = title

    def __str__(self) -> str:
        return self.title


def read_member(place: np.void) -> MemberFile:
    """Read one image; its header is looked at again, since a shard may have changed."""
    shard = os.fsdecode(place["shard"])
    offset = int(place["offset"])
    size = int(place["size"])
    try:
        with open(shard, "rb", buffering=0) as file:
            file.seek(offset - HEADER)
            block = file.read(HEADER + size)
    except (OSError, ValueError) as error:
        raise ValueError(f"{shard} cannot be read at byte {offset:,}: {error}") from error

    try:
        header = tarfile.TarInfo.frombuf(block[:HEADER], tarfile.ENCODING, "surrogateescape")
    except tarfile.HeaderError:
        header = tarfile.TarInfo()
    if header.size != size or len(block) != HEADER + size:
        raise ValueError(
            f"{shard} is damaged, cut short or has changed while it was in use: at byte {offset:,} "
            f"there should be an image of {size:,} bytes"
        )
    return MemberFile(block[HEADER:], f"{header.name} in {shard}")
