"""Check the arguments that the networks share: image shape and dropout."""

from collections.abc import Sequence


def image_shape(inputs: int | Sequence[int], network: str) -> tuple[int, int, int]:
    """Return (channels, height, width), or raise if the inputs are no images.

    >>> image_shape((3, 32, 32), "a ResNet")
    (3, 32, 32)
    """
    if isinstance(inputs, int) or len(inputs) != 3 or min(inputs) < 1:
        raise ValueError(f"{network} needs images, (channels, height, width); got inputs {inputs}")
    channels, height, width = inputs
    return channels, height, width


def check_dropout(dropout: float) -> None:
    """Raise unless the share of dropped activations lies in [0, 1)."""
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout is the share that is dropped, in [0, 1); got {dropout}")
