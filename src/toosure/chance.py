"""The ECE that a calibrated model shows by chance, without torch: hits drawn from confidences."""

from typing import NamedTuple

import numpy as np

CELLS = 256  # about as many cells of nearly equal confidence, from 8 to 64 per bin
SAMPLES = 1000
QUANTILE = 0.975


class FineCells(NamedTuple):
    """Rows counted in fine cells of each bin of confidence: all that drawing their hits needs."""

    counts: np.ndarray  # (bins, cells)
    hits: np.ndarray  # (bins, cells)
    confidence: np.ndarray  # (bins, cells) mean, 0 where a cell is empty

    def drawn_hits(self, generator: np.random.Generator, samples: int) -> np.ndarray:
        """Draw hits from the confidences, (samples, bins, cells).

        Consistency resampling (Bröcker & Smith 2007): hits are binomial in each cell.
        """
        size = (samples, *self.counts.shape)
        return generator.binomial(self.counts, self.confidence, size)

    def gap_sums(self, hits: np.ndarray) -> np.ndarray:
        """Return summed confidence minus hits of each bin, (..., bins)."""
        sums: np.ndarray = (self.counts * self.confidence - hits).sum(-1)
        return sums


def fine_cells(
    confidence: np.ndarray,
    correct: np.ndarray,
    bins: int,
    edge: str = "right",
    cells_per_bin: int | None = None,
) -> FineCells:
    """Count rows in equal cells of each of the bins of `ece`."""
    if cells_per_bin is None:
        cells_per_bin = min(64, max(8, -(-CELLS // bins)))
    cells = bins * cells_per_bin
    # The edges are rounded as the confidences were: 0.2 stays in (0, 0.2] in every precision.
    inner = (np.arange(1, cells) / cells).astype(confidence.dtype)
    cell = np.searchsorted(inner, confidence, side="left" if edge == "right" else "right")

    counts = np.bincount(cell, minlength=cells)
    hits = np.bincount(cell[correct.astype(bool)], minlength=cells)
    mean = np.bincount(cell, confidence.astype(np.float64), cells) / np.maximum(counts, 1)
    return FineCells(*(each.reshape(bins, -1) for each in (counts, hits, mean.clip(0, 1))))


def chance_errors(cells: FineCells, seed: int = 0, samples: int = SAMPLES) -> np.ndarray:
    """Return the ECE of hits that are drawn from the confidences, (samples,)."""
    hits = cells.drawn_hits(np.random.default_rng(seed), samples)
    errors: np.ndarray = np.abs(cells.gap_sums(hits)).sum(-1) / cells.counts.sum()
    return errors


def chance_level(confidence: np.ndarray, bins: int = 15) -> float:
    """Return the ECE below which hits drawn from the confidences stay in 97.5 % of the draws.

    >>> 0.04 < chance_level(np.full(400, 0.7)) < 0.06
    True
    """
    cells = fine_cells(confidence, np.zeros(len(confidence)), bins)
    return float(np.quantile(chance_errors(cells), QUANTILE))
