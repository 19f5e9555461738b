"""A pickle reader that can build plain values and numpy arrays, and nothing else.

A pickle may call any function by its name. This reader knows nine names, all but one of numpy, and
answers each with a stand-in written here, because numpy's own unpickling code trusts its input. A
pickle can also reuse one value many times at a cost of one byte each, so everything that would
copy, hash or print a value each time is bounded or refused.
"""

import io
import pickle
import re
from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any, ClassVar

import numpy as np

PLAIN_DTYPE = re.compile(r"[<>=|]?[biuf][0-9]{1,2}")  # u1, <f8: how numpy writes plain numbers


class DtypeStandIn:
    """Stand-in for a numpy dtype: only plain numbers, no objects and no records."""

    def __init__(self, code: object, *_: object) -> None:
        code = code.decode("ascii") if isinstance(code, bytes) else code
        if not isinstance(code, str) or not PLAIN_DTYPE.fullmatch(code):
            raise UnpicklingError(f"refused: {describe(code)} is not a type of plain numbers")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order: Any = state[1].decode("ascii") if isinstance(state[1], bytes) else state[1]
        if any(part is not None for part in state[2:5]) or order not in ("<", ">", "=", "|"):
            raise UnpicklingError("refused: an array of records")
        self.dtype = self.dtype.newbyteorder(order)


class ArrayStandIn:
    """Stand-in for a numpy array until its bytes have been read."""

    array: np.ndarray

    def __init__(self, reader: "NumbersOnlyUnpickler") -> None:
        self.reader = reader

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, raw = state
        self.array = self.reader.from_bytes(raw, dtype, shape, "F" if fortran else "C").array


class FunctionStandIn:
    """Stand-in for a function: a pickle can call it, but not change it."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., object]) -> None:
        self.function = function

    def __call__(self, *arguments: object) -> object:
        return self.function(*arguments)

    def __setstate__(self, state: object) -> None:
        raise UnpicklingError("refused: it sets what is not its own")


def describe(value: object) -> str:
    """Show text in an error, and only the type of anything else: nested tuples print as gigabytes.

    >>> describe("float64"), describe((1, 2))
    ("'float64'", 'a tuple')
    """
    return repr(value[:40]) if isinstance(value, str | bytes) else f"a {type(value).__name__}"


class NumbersOnlyUnpickler(pickle._Unpickler):
    """Refuse all but nine names, sets, keys that are not text, and more bytes than the file has.

    It extends the reader written in Python, not the one in C, which allocates as many values as a
    number in the file says: nine bytes can ask it for 64 GB.
    """

    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)

    # Attributes of the base class that its type stubs leave out.
    stack: list[Any]
    append: Callable[[object], None]
    pop_mark: Callable[[], list[Any]]

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="latin-1")
        self.bytes_left = 2 * len(content)  # that text may still be turned into; once is usual

        functions: dict[tuple[str, str], Callable[..., object]] = {
            ("multiarray", "_reconstruct"): lambda *_: ArrayStandIn(self),
            ("multiarray", "scalar"): lambda dtype, raw: self.from_bytes(raw, dtype, (), "C"),
            ("numeric", "_frombuffer"): self.from_bytes,
        }
        self.allowed: dict[tuple[str, str], object] = {
            (f"numpy.{package}.{module}", name): FunctionStandIn(function)
            for package in ("core", "_core")  # numpy 1 and numpy 2
            for (module, name), function in functions.items()
        }
        self.allowed["numpy", "ndarray"] = None
        self.allowed["numpy", "dtype"] = DtypeStandIn
        self.allowed["_codecs", "encode"] = FunctionStandIn(self.encode)

    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in self.allowed:
            asked = describe(f"{module}.{name}")
            raise UnpicklingError(f"refused: it asks for {asked}; only numpy arrays are allowed")
        return self.allowed[module, name]

    def encode(self, text: object, encoding: object = "latin1") -> bytes:
        """Turn text into bytes, and count them: one text can be named thousands of times."""
        if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
            raise UnpicklingError(f"refused: text in {describe(encoding)}")
        self.bytes_left -= len(text)
        if self.bytes_left < 0:
            raise UnpicklingError("refused: it makes far more bytes than the file has")
        return text.encode("latin-1")

    def from_bytes(
        self, raw: object, dtype: DtypeStandIn, shape: tuple[int, ...], order: str
    ) -> ArrayStandIn:
        # Python 2 wrote bytes as text; read as latin-1, each character is one byte.
        raw = self.encode(raw) if isinstance(raw, str) else raw
        if not isinstance(raw, bytes | bytearray) or order not in ("C", "F"):
            raise UnpicklingError("refused: an array whose content is not bytes")
        flat = np.frombuffer(raw, dtype.dtype)
        filled = ArrayStandIn(self)
        filled.array = flat.reshape(shape[::-1]).T if order == "F" else flat.reshape(shape)
        return filled

    def set_items(self, items: list[object], target: object) -> None:
        """Set alternating keys and values; a key of nested tuples would take hours to hash."""
        keys = items[::2]
        if not isinstance(target, dict) or not all(isinstance(k, str | bytes) for k in keys):
            raise UnpicklingError("refused: a key that is not text")
        target.update(zip(keys, items[1::2], strict=True))

    # What follows replaces the base class's handlers of single pickle instructions.

    def load_setitem(self) -> None:
        value = self.stack.pop()
        key = self.stack.pop()
        self.set_items([key, value], self.stack[-1])

    def load_setitems(self) -> None:
        items = self.pop_mark()
        self.set_items(items, self.stack[-1])

    def load_dict(self) -> None:
        new: dict[object, object] = {}
        self.set_items(self.pop_mark(), new)
        self.append(new)

    def load_set(self) -> None:
        raise UnpicklingError("refused: a set")

    dispatch |= {
        pickle.SETITEM[0]: load_setitem,
        pickle.SETITEMS[0]: load_setitems,
        pickle.DICT[0]: load_dict,
        pickle.EMPTY_SET[0]: load_set,
        pickle.ADDITEMS[0]: load_set,
        pickle.FROZENSET[0]: load_set,
    }


def to_plain(value: object) -> object:
    """Turn the stand-ins in a value or in a list of values into arrays and numbers."""
    if isinstance(value, ArrayStandIn):
        return value.array if value.array.shape else value.array.item()
    if isinstance(value, list):
        return [item.array.item() if isinstance(item, ArrayStandIn) else item for item in value]
    return value


def read_pickle(content: bytes, name: str) -> dict[str, object]:
    """Read a pickled dict of arrays, lists and text; `name` is the file that errors name.

    >>> import pickle
    >>> read_pickle(pickle.dumps({"data": np.arange(3)}), "data_batch_1")
    {'data': array([0, 1, 2])}
    """
    try:
        loaded = NumbersOnlyUnpickler(content).load()
        if not isinstance(loaded, dict):
            raise UnpicklingError(f"a dict was expected, not {type(loaded).__name__}")

        # Python 2 wrote the keys as bytes.
        return {
            key.decode("latin-1") if isinstance(key, bytes) else key: to_plain(value)
            for key, value in loaded.items()
        }
    except Exception as error:  # a damaged pickle can raise nearly anything
        reason = "it ends too early" if isinstance(error, EOFError) else str(error)[:300]
        raise ValueError(
            f"{name} cannot be read, damaged or not this data set: {reason}; "
            "move it away and fetch it again"
        ) from error
