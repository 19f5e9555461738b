"""Bootstrap replicas: which rows, groups or cells are drawn, with replacement, in each of them.

Equal n and seed give equal draws. Two models that are scored on the same draws are compared in
pairs: what they share, such as hard rows, cancels in their difference. Pages have their own draws
(`page/replicas.py`), because they need no torch. Other kinds of draws are where they are used:
blocks of a series, Bayesian weights, permuted labels.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Resampler(NamedTuple):
    """Draw `samples` bootstrap replicas; every call starts again from `seed`.

    >>> [rows.tolist() for rows in Resampler(seed=0, samples=2).rows(4)]
    [[3, 2, 2, 1], [1, 0, 0, 0]]
    >>> [counts.tolist() for counts in Resampler(seed=0, samples=2).row_counts(4)]
    [[0, 1, 2, 1], [3, 1, 0, 0]]
    """

    seed: int
    samples: int

    def rows(self, n: int) -> Iterator[np.ndarray]:
        """Yield the row numbers of each replica, (n,)."""
        generator = np.random.default_rng(self.seed)
        for _ in range(self.samples):
            yield generator.integers(n, size=n)

    def row_counts(self, n: int) -> Iterator[np.ndarray]:
        """Yield how often each of n rows, or groups of rows, is drawn in each replica, (n,)."""
        for rows in self.rows(n):
            yield np.bincount(rows, minlength=n)

    def torch_rows(self, n: int) -> Iterator[Tensor]:
        """Yield row numbers as `rows` does, but drawn by torch's generator.

        Both generators stay in use, so that a seed keeps giving the intervals it gave before.
        """
        generator = torch.Generator().manual_seed(self.seed)
        for _ in range(self.samples):
            yield torch.randint(n, (n,), generator=generator)

    def cell_counts(self, sizes: Tensor) -> Tensor:
        """Return how often each cell of rows is drawn, (samples, *sizes.shape) float64.

        The rows of a cell are alike, so drawing cells by their sizes is the same as drawing rows.
        """
        flat = sizes.double().cpu().flatten().numpy()
        (drawn,) = self.cell_count_blocks(flat, self.samples * len(flat))
        return torch.from_numpy(drawn).double().view(self.samples, *sizes.shape).to(sizes.device)

    def cell_count_blocks(self, sizes: np.ndarray, max_numbers: int) -> Iterator[np.ndarray]:
        """Yield what `cell_counts` returns in blocks (replicas, cells) of bounded memory."""
        generator = np.random.default_rng(self.seed)
        total = sizes.sum()
        replicas = max(1, max_numbers // len(sizes))
        for start in range(0, self.samples, replicas):
            size = min(replicas, self.samples - start)
            yield generator.multinomial(round(total), sizes / total, size)
