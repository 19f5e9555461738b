"""Read the arrays of an untrusted .npz: sizes are checked before memory is taken."""

import ast
import math
import re
import struct
import zipfile
import zlib
from functools import lru_cache
from io import BytesIO
from pathlib import Path

import numpy as np

from toosure.runs.regular_files import open_regular, read_regular
from toosure.sentences import size_text

MAX_BYTES = 64 << 20  # of a file, packed and unpacked; a snapshot has some kilobytes
MAX_ARRAYS = 256
MAX_HEADER = 4096
MAGIC = b"\x93NUMPY"
READ_ERRORS = (  # what a file that was cut off or overwritten may raise
    *(OSError, ValueError, KeyError, EOFError, RuntimeError, TypeError, NotImplementedError),
    *(ArithmeticError, MemoryError, zipfile.BadZipFile, zlib.error, struct.error),
)
DTYPE = re.compile(r"[<>|=]?[biufcSU][0-9]{1,8}")


def read_arrays(file: Path, follow_links: bool = True) -> dict[str, np.ndarray]:
    """Read all arrays of an .npz; raise ValueError or an error of `zipfile` if that fails."""
    with zipfile.ZipFile(BytesIO(read_regular(file, MAX_BYTES, follow_links))) as packed:
        members = packed.infolist()
        if len(members) > MAX_ARRAYS:
            raise ValueError(f"it holds {len(members):,} arrays; at most {MAX_ARRAYS} are read")

        size = sum(member.file_size for member in members)
        if size > MAX_BYTES:
            raise ValueError(
                f"its arrays have {size_text(size)}; at most {size_text(MAX_BYTES)} are read"
            )
        return {
            member.filename.removesuffix(".npy"): array_of(packed.read(member))
            for member in members
        }


def array_names(file: Path, follow_links: bool = True) -> set[str]:
    """Return the names of the arrays of an .npz, which are not read."""
    with open_regular(file, follow_links, MAX_BYTES) as opened, zipfile.ZipFile(opened) as packed:
        return {name.removesuffix(".npy") for name in packed.namelist()}


def array_of(content: bytes) -> np.ndarray:
    """Read an .npy of numbers or texts; its shape must fit the number of its bytes."""
    if content[:6] != MAGIC or len(content) < 12:
        raise ValueError("an array does not begin as .npy does")
    before = 10 if content[6] == 1 else 12
    length = struct.unpack("<H" if before == 10 else "<I", content[8:before])[0]
    if length > MAX_HEADER:
        raise ValueError(f"an array has a header of {size_text(length)}")

    start = before + length
    dtype, fortran_order, shape = parse_header(content[before:start])
    count = math.prod(shape)
    if count * dtype.itemsize != len(content) - start:
        raise ValueError(f"an array of shape {shape} does not have the bytes for it")
    flat = np.frombuffer(content, dtype, count, start)
    return flat.reshape(shape, order="F" if fortran_order else "C").copy()


@lru_cache(maxsize=1024)  # most arrays of a folder have one of a few shapes
def parse_header(header: bytes) -> tuple[np.dtype, bool, tuple[int, ...]]:
    """Return dtype, order and shape, as `numpy.lib.format` writes them."""
    try:
        fields = ast.literal_eval(header.decode("latin1").strip())
        description = fields["descr"]
        fortran_order = fields["fortran_order"]
        shape = fields["shape"]
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError):
        raise ValueError("the header of an array cannot be read") from None

    if not isinstance(description, str) or not DTYPE.fullmatch(description):
        raise ValueError(f"an array is not of numbers: {str(description)[:60]}")
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError("an array has a shape that is not valid")
    if len(shape) > 8 or any(n > MAX_BYTES for n in shape):
        raise ValueError(f"an array has a shape of {str(shape)[:60]}")
    return np.dtype(description), fortran_order is True, shape
