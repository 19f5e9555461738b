"""The corruptions of CIFAR-10-C, applied to clean images on their own device, by seed."""

from toosure.data.corruptions.registry import (
    CORRUPTIONS,
    Corruption,
    Severity,
    Shift,
    check_severity,
    check_shift,
    corrupt,
    corrupt_part,
    images_per_part,
)

__all__ = [
    "CORRUPTIONS",
    "Corruption",
    "Severity",
    "Shift",
    "check_severity",
    "check_shift",
    "corrupt",
    "corrupt_part",
    "images_per_part",
]
