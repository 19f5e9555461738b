"""Arrays beside saved predictions that say which rows are of one sequence, image or example."""

from collections.abc import Container

UNITS = ("sequence", "image", "example")


def unit_array(split: str, unit: str) -> str:
    """Return the name of the array with the number of each row's sequence, image or example.

    >>> unit_array("val", "sequence"), unit_array("", "image")
    ('val_sequence_of_row', 'image_of_row')
    """
    return f"{split}_{unit}_of_row".removeprefix("_")


def unit_in(arrays: Container[str], split: str = "") -> str | None:
    """Return what the rows of a split are grouped by; None if every row stands alone.

    >>> unit_in({"val_logits": [], "val_sequence_of_row": []}, "val")
    'sequence'
    """
    return next((unit for unit in UNITS if unit_array(split, unit) in arrays), None)
