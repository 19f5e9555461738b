"""Numbers in any form as a tensor: lists, arrays of numpy, columns of a data frame."""

import numpy as np
import torch
from torch import Tensor

LABELS_ARE_NUMBERS = "labels number the classes from 0, in the order of the columns"


def holds_text(values: object) -> bool:
    """Whether a list, an array or a column holds text.

    >>> holds_text(["cat", "dog"]), holds_text([0, 1])
    (True, False)
    """
    if isinstance(values, list | tuple):
        return any(isinstance(value, str) for value in values)
    if isinstance(values, Tensor) or not hasattr(values, "__array__"):
        return False
    if hasattr(values, "__cuda_array_interface__"):  # it stays on its device
        return False
    array = np.asarray(values)
    objects = array.flat if array.dtype.kind == "O" else ()  # the first one may be missing
    return array.dtype.kind in "US" or any(isinstance(value, str) for value in objects)


def to_tensor(values: object) -> Tensor:
    """Return numbers as a tensor, which shares the memory of an array where torch can read it.

    Objects with `__array__`, such as a column of a data frame, are read as arrays of numpy.

    >>> to_tensor(np.arange(3)[::-1]).tolist()
    [2, 1, 0]
    """
    if isinstance(values, Tensor):
        return values
    if holds_text(values):
        raise ValueError(f"numbers are needed; got text: {LABELS_ARE_NUMBERS}")
    if not hasattr(values, "__array__"):
        return torch.as_tensor(values)
    if hasattr(values, "__cuda_array_interface__"):  # it stays on its device
        return torch.as_tensor(values)
    return tensor_of_array(np.asarray(values))


def is_missing(value: object) -> bool:
    """Whether a value is None, NaN or the NA of pandas, which equals nothing.

    >>> [is_missing(value) for value in (None, float("nan"), True, 0.5, "", [None])]
    [True, True, False, False, False, False]
    """
    if value is None or isinstance(value, str | list | tuple | dict):
        return value is None
    equal = value == value  # of an array or a tensor, an answer for each number
    if isinstance(equal, bool | np.bool_):
        return not equal
    return equal is value  # pandas's NA


def bfloat16_hint(array: np.ndarray) -> str:
    """Say what to do with bfloat16, which NumPy stores without its name; "" for other types.

    >>> bfloat16_hint(np.zeros(2, "V2"))
    ', which may be bfloat16: convert it with .astype(np.float32), before it is saved'
    """
    if array.dtype.name != "bfloat16" and array.dtype != np.dtype("V2"):
        return ""
    return ", which may be bfloat16: convert it with .astype(np.float32), before it is saved"


def tensor_of_array(array: np.ndarray) -> Tensor:
    """Return an array as a tensor, with one copy where torch cannot share its memory.

    torch has no wide floats, few unsigned integers, only the byte order of the machine, and shares
    no memory that is reversed or read-only.
    """
    if array.dtype.kind not in "bifuc":
        raise ValueError(f"numbers are needed; got an array of {array.dtype}{bfloat16_hint(array)}")
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)

    backwards = any(stride < 0 for stride in array.strides)
    if backwards or not array.flags.writeable:
        array = array.copy()
    return torch.as_tensor(array)
