"""Arrays for the scripts of a page, as base64; equal arrays are stored once."""

import base64

import numpy as np

DTYPES = {"uint16": "u2", "uint32": "u4", "float32": "f4", "float64": "f8", "int32": "i4"}
Packed = dict[str, str]


def pack(values: np.ndarray) -> Packed:
    """Return an array in Plotly's form: its type and base64 of its bytes, little-endian.

    >>> pack(np.array([1, 2], dtype=np.uint16))
    {'dtype': 'u2', 'bdata': 'AQACAA=='}
    """
    dtype = values.dtype.newbyteorder("<")
    content = base64.b64encode(values.astype(dtype).tobytes()).decode()
    return {"dtype": DTYPES[values.dtype.name], "bdata": content}


def as_steps(steps: np.ndarray) -> np.ndarray:
    """Return steps in the smallest type that holds them."""
    low, high = steps.min(initial=0), steps.max(initial=0)
    if low < 0 or not (steps == np.floor(steps)).all() or high > np.iinfo(np.uint32).max:
        return steps.astype(np.float64)
    return steps.astype(np.uint16 if high <= np.iinfo(np.uint16).max else np.uint32)


class ArrayPool:
    """The arrays of a page; equal ones share an index."""

    def __init__(self) -> None:
        self.arrays: list[Packed] = []
        self._places: dict[tuple[str, bytes], int] = {}

    def add(self, values: np.ndarray) -> int:
        """Return the index of an array in `arrays`."""
        key = (values.dtype.name, values.tobytes())
        if key not in self._places:
            self._places[key] = len(self.arrays)
            self.arrays.append(pack(values))
        return self._places[key]
