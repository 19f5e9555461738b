"""Seeds for independent streams of random numbers."""

import numpy as np


def derive_seed(*numbers: int) -> int:
    """Hash several numbers into one 32-bit seed.

    torch's CPU generator uses only the lowest 32 bits of its seed, so numbers cannot simply be
    packed into one large integer.

    >>> derive_seed(0, 0, 1) == derive_seed(0, 1, 0)
    False
    """
    if min(numbers) < 0:
        raise ValueError(f"a seed must not be negative; got {min(numbers)}")
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])
