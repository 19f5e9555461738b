"""Seeds for independent streams of random numbers, and the numbers of these streams.

A stream is `derive_seed(seed, STREAM, ...)`. Kept scores depend on every number here: a new stream
takes one that is free, and none is ever changed.
"""

from enum import IntEnum

import numpy as np


class DataStream(IntEnum):
    """What is drawn by the seed of a data set."""

    LABEL_NOISE = 1
    TEST_SPLIT = 2  # if no test set is published
    WATCHED = 3  # training images that are kept in memory while the others are streamed
    SHARED_VALIDATION = 4  # validation images taken from the published ones


class RunStream(IntEnum):
    """What is drawn by the seed of a run.

    4 and 5 were given twice. A control split has no number behind the 4, the draws of an ensemble
    do; samples of the weights and the draws of a rank have the same seeds and different uses.
    """

    EPOCH_ORDER = 0
    AUGMENTATION = 1
    ENSEMBLE_TRAINING = 3
    ENSEMBLE_PREDICTION = 4
    CONTROL_SPLIT = 4
    WEIGHT_SAMPLES = 5  # of SWAG and BSAM
    RANK = 5  # global draws of a process of higher rank
    BATCH_NORM = 7  # crops and flips of the examples that refresh its statistics
    RETURNED_CONTROL_SPLIT = 8  # batches that the control split is part of
    BATCH_NORM_EXAMPLES = 9  # which examples refresh its statistics


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
