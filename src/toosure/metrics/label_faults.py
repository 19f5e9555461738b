"""Which of many labels are miscalibrated: a test against labels drawn from the probabilities."""

from typing import NamedTuple

import numpy as np
from torch import Tensor

from toosure.chance import fine_cells

CELLS_PER_BIN = 16  # hits are drawn for cells of nearly equal probability


class LabelChance(NamedTuple):
    """How a label compares with chance, corrected for the number of labels."""

    gap: float  # mean probability minus frequency
    adjusted_p: float  # of the gap or the ECE, whichever stands out more
    gap_p: float  # of its gap alone


class Statistics(NamedTuple):
    """ECE and gap of one label, in standard deviations of the draws, and of each draw."""

    gap: float
    observed: np.ndarray  # (2,) ECE and |gap|, standardised
    drawn: np.ndarray  # (samples, 2)


def judge_labels(
    pairs: list[tuple[Tensor, Tensor]], bins: int, edge: str, seed: int, samples: int
) -> list[LabelChance]:
    """Test labels, each a pair (probabilities, truth), against a model that is calibrated.

    Truth is drawn from the probabilities `samples` times. Both statistics of each label are
    standardised, and compared with the largest of all labels in each draw. So the chance that any
    calibrated label is called faulty does not depend on the number of labels.
    """
    generator = np.random.default_rng(seed)
    each = [statistics(p, true, bins, edge, generator, samples) for p, true in pairs]
    largest = np.max([one.drawn.max(1) for one in each], axis=0)  # (samples,)

    def adjusted(observed: float) -> float:
        return float((1 + (largest >= observed).sum()) / (1 + samples))

    return [
        LabelChance(one.gap, adjusted(one.observed.max()), adjusted(one.observed[1]))
        for one in each
    ]


def statistics(
    p: Tensor, true: Tensor, bins: int, edge: str, generator: np.random.Generator, samples: int
) -> Statistics:
    """Return the standardised ECE and |gap| of one label, observed and drawn."""
    cells = fine_cells(p.cpu().numpy(), true.cpu().numpy(), bins, edge, CELLS_PER_BIN)
    draws = cells.drawn_hits(generator, samples)
    gaps = cells.gap_sums(np.concatenate([cells.hits[None], draws])) / len(p)  # (.., bins)
    both = np.stack([np.abs(gaps).sum(1), np.abs(gaps.sum(1))], 1)  # (1 + samples, 2)

    centre = both[1:].mean(0) * [1, 0]  # a gap has mean 0
    spread = np.sqrt(np.square(both[1:] - centre).mean(0))
    scores = (both - centre) / np.where(spread > 0, spread, 1e-300)
    return Statistics(float(gaps[0].sum()), scores[0], scores[1:])
