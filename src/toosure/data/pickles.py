"""A pickle reader that can build plain values and numpy arrays, and nothing else.

A pickle may name any function and have it called. This reader knows nine names, numpy's but for
one, and answers each with a stand-in written here, so that not even numpy's own unpickling code,
which trusts its input, sees the file.
"""

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np


class Type:
    """Stand for a numpy dtype: only plain numbers, no objects and no records."""

    def __init__(self, code: Any, *_: Any) -> None:
        code = code.decode("ascii") if isinstance(code, bytes) else code
        if not isinstance(code, str) or code.lstrip("<>=|")[:1] not in tuple("biuf"):
            raise pickle.UnpicklingError(f"refused: arrays of type {code!r}; only numbers are read")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple) -> None:
        order: Any = state[1].decode("ascii") if isinstance(state[1], bytes) else state[1]
        if any(part is not None for part in state[2:5]) or order not in ("<", ">", "=", "|"):
            raise pickle.UnpicklingError("refused: an array of records")
        self.dtype = self.dtype.newbyteorder(order)


class Array:
    """Stand for a numpy array until its bytes have been read."""

    array: np.ndarray

    def __setstate__(self, state: tuple) -> None:
        _, shape, kind, fortran, raw = state
        self.array = from_bytes(raw, kind, shape, "F" if fortran else "C").array


def from_bytes(raw: Any, kind: Type, shape: tuple[int, ...], order: str) -> Array:
    # Python 2 wrote bytes as text; read as latin-1, each character is one byte.
    raw = raw.encode("latin-1") if isinstance(raw, str) else raw
    if not isinstance(raw, bytes | bytearray) or order not in ("C", "F"):
        raise pickle.UnpicklingError("refused: an array whose content is not bytes")
    filled = Array()
    flat = np.frombuffer(raw, kind.dtype)
    filled.array = flat.reshape(shape[::-1]).T if order == "F" else flat.reshape(shape)
    return filled


def scalar(kind: Type, raw: Any) -> Array:
    return from_bytes(raw, kind, (), "C")


def empty(*_: Any) -> Array:
    return Array()


def encode(text: str, encoding: str) -> bytes:
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"refused: text in {encoding!r}")
    return text.encode("latin-1")


class Function:
    """Stand for a function: a pickle can call it, and cannot set anything about it."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("refused: it sets what is not its own")


STAND_INS: dict[tuple[str, str], Any] = {
    ("multiarray", "_reconstruct"): Function(empty),
    ("multiarray", "scalar"): Function(scalar),
    ("numeric", "_frombuffer"): Function(from_bytes),
}
ALLOWED = {
    (f"numpy.{package}.{module}", name): stand_in  # numpy 1 says core, numpy 2 says _core
    for package in ("core", "_core")
    for (module, name), stand_in in STAND_INS.items()
} | {("numpy", "ndarray"): None, ("numpy", "dtype"): Type, ("_codecs", "encode"): Function(encode)}


class NumbersOnly(pickle._Unpickler):
    """Refuse every name outside ALLOWED.

    It is the reader written in Python, not the one in C, which makes room for as many values as a
    number in the file says: nine bytes can ask it for 64 GB.
    """

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(
                f"refused: it asks for {module}.{name}; only numpy arrays are allowed"
            )
        return ALLOWED[module, name]


def plain(value: Any) -> Any:
    """Turn the stand-ins in a dict or list (one level down) into arrays and numbers."""
    if isinstance(value, Array):
        return value.array if value.array.shape else value.array.item()
    if isinstance(value, list):
        return [item.array.item() if isinstance(item, Array) else item for item in value]
    return value


def read_pickle(content: bytes, name: str) -> dict[str, Any]:
    """Read a pickled dict of arrays, lists and text; `name` is the file an error speaks of.

    >>> import pickle
    >>> read_pickle(pickle.dumps({"data": np.arange(3)}), "data_batch_1")
    {'data': array([0, 1, 2])}
    """
    try:
        loaded = NumbersOnly(io.BytesIO(content), encoding="latin-1").load()
        if not isinstance(loaded, dict):
            raise pickle.UnpicklingError(f"a dict was expected, not {type(loaded).__name__}")
        return {str(key): plain(value) for key, value in loaded.items()}
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise ValueError(f"{name} cannot be read, damaged or not this data set: {error}") from error
