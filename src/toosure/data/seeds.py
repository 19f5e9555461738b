"""Seeds for separate streams of draws."""

import numpy as np


def mixed(*numbers: int) -> int:
    """Mix numbers into one seed; torch's CPU generator heeds only the lowest 32 bits of its own.

    >>> mixed(0, 0, 1) == mixed(0, 1, 0)
    False
    """
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])
