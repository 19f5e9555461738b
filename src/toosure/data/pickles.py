"""A pickle reader that can build plain values and numpy arrays, and nothing else.

A pickle may name any function and have it called. This reader knows nine names, numpy's but for
one, and answers each with a stand-in written here, so that not even numpy's own unpickling code,
which trusts its input, sees the file. A value may be used again and again at a byte each; so what
would copy, hash or print it as often is bounded or refused.
"""

import io
import pickle
import re
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

NUMBERS = re.compile(r"[<>=|]?[biuf][0-9]{1,2}")  # u1, <f8: what numpy writes of plain numbers


class Type:
    """Stand for a numpy dtype: only plain numbers, no objects and no records."""

    def __init__(self, code: Any, *_: Any) -> None:
        code = code.decode("ascii") if isinstance(code, bytes) else code
        if not isinstance(code, str) or not NUMBERS.fullmatch(code):
            raise pickle.UnpicklingError(f"refused: {shown(code)} is no type of plain numbers")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple) -> None:
        order: Any = state[1].decode("ascii") if isinstance(state[1], bytes) else state[1]
        if any(part is not None for part in state[2:5]) or order not in ("<", ">", "=", "|"):
            raise pickle.UnpicklingError("refused: an array of records")
        self.dtype = self.dtype.newbyteorder(order)


class Array:
    """Stand for a numpy array until its bytes have been read."""

    array: np.ndarray

    def __init__(self, reader: "NumbersOnly") -> None:
        self.reader = reader

    def __setstate__(self, state: tuple) -> None:
        _, shape, kind, fortran, raw = state
        self.array = self.reader.from_bytes(raw, kind, shape, "F" if fortran else "C").array


class Function:
    """Stand for a function: a pickle can call it, and cannot set anything about it."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("refused: it sets what is not its own")


def shown(value: Any) -> str:
    """Show text in an error; tuples in tuples could print as gigabytes."""
    return repr(value[:40]) if isinstance(value, str | bytes) else f"a {type(value).__name__}"


class NumbersOnly(pickle._Unpickler):
    """Refuse every name but nine, sets, keys that are no text, and more bytes than the file has.

    It is the reader written in Python, not the one in C, which makes room for as many values as a
    number in the file says: nine bytes can ask it for 64 GB.
    """

    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="latin-1")
        self.left = 2 * len(content)  # bytes that may yet be made of text; once is usual
        functions: dict[tuple[str, str], Callable[..., Any]] = {
            ("multiarray", "_reconstruct"): lambda *_: Array(self),
            ("multiarray", "scalar"): lambda kind, raw: self.from_bytes(raw, kind, (), "C"),
            ("numeric", "_frombuffer"): self.from_bytes,
        }
        self.allowed: dict[tuple[str, str], Any] = {
            (f"numpy.{package}.{module}", name): Function(call)
            for package in ("core", "_core")  # numpy 1 and numpy 2
            for (module, name), call in functions.items()
        }
        self.allowed["numpy", "ndarray"] = None
        self.allowed["numpy", "dtype"] = Type
        self.allowed["_codecs", "encode"] = Function(self.encode)

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.allowed:
            asked = shown(f"{module}.{name}")
            raise pickle.UnpicklingError(
                f"refused: it asks for {asked}; only numpy arrays are allowed"
            )
        return self.allowed[module, name]

    def encode(self, text: Any, encoding: Any = "latin1") -> bytes:
        """Turn text into bytes; one text can be named thousands of times, so they are counted."""
        if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
            raise pickle.UnpicklingError(f"refused: text in {shown(encoding)}")
        self.left -= len(text)
        if self.left < 0:
            raise pickle.UnpicklingError("refused: it makes far more bytes than the file has")
        return text.encode("latin-1")

    def from_bytes(self, raw: Any, kind: Type, shape: tuple[int, ...], order: str) -> Array:
        # Python 2 wrote bytes as text; read as latin-1, each character is one byte.
        raw = self.encode(raw) if isinstance(raw, str) else raw
        if not isinstance(raw, bytes | bytearray) or order not in ("C", "F"):
            raise pickle.UnpicklingError("refused: an array whose content is not bytes")
        filled = Array(self)
        flat = np.frombuffer(raw, kind.dtype)
        filled.array = flat.reshape(shape[::-1]).T if order == "F" else flat.reshape(shape)
        return filled

    def put(self, items: list[Any], into: Any) -> None:
        """Set keys and values by turns; tuples in tuples would take hours to hash."""
        if not isinstance(into, dict) or not all(isinstance(k, str | bytes) for k in items[::2]):
            raise pickle.UnpicklingError("refused: a key that is no text")
        into.update(zip(items[::2], items[1::2], strict=True))

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()  # type: ignore[attr-defined]
        self.put([key, value], self.stack[-1])  # type: ignore[attr-defined]

    def load_setitems(self) -> None:
        items = self.pop_mark()  # type: ignore[attr-defined]
        self.put(items, self.stack[-1])  # type: ignore[attr-defined]

    def load_dict(self) -> None:
        items, made = self.pop_mark(), dict[Any, Any]()  # type: ignore[attr-defined]
        self.put(items, made)
        self.append(made)  # type: ignore[attr-defined]

    def load_set(self) -> None:
        raise pickle.UnpicklingError("refused: a set")

    dispatch |= {
        pickle.SETITEM[0]: load_setitem,
        pickle.SETITEMS[0]: load_setitems,
        pickle.DICT[0]: load_dict,
        pickle.EMPTY_SET[0]: load_set,
        pickle.ADDITEMS[0]: load_set,
        pickle.FROZENSET[0]: load_set,
    }


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
        loaded = NumbersOnly(content).load()
        if not isinstance(loaded, dict):
            raise pickle.UnpicklingError(f"a dict was expected, not {type(loaded).__name__}")
        return {
            key.decode("latin-1") if isinstance(key, bytes) else key: plain(value)
            for key, value in loaded.items()
        }
    except Exception as error:  # a damaged pickle can raise nearly anything
        said = "it ends too early" if isinstance(error, EOFError) else str(error)[:300]
        raise ValueError(
            f"{name} cannot be read, damaged or not this data set: {said}; "
            "move it away and fetch it again"
        ) from error
