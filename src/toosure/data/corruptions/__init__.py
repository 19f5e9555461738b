"""The corruptions of CIFAR-10-C, made from clean images where those lie, by seed."""

from toosure.data.corruptions.table import (
    CORRUPTIONS,
    Corruption,
    Shift,
    check_shift,
    corrupt,
    corrupt_part,
    together,
)

__all__ = [
    "CORRUPTIONS",
    "Corruption",
    "Shift",
    "check_shift",
    "corrupt",
    "corrupt_part",
    "together",
]
