"""Bootstrap replicas: the draws of a seed are pinned, because recorded intervals rest on them."""

import numpy as np
import torch

from toosure.metrics.resampler import Resampler

RESAMPLER = Resampler(seed=5, samples=4)


def test_rows_are_those_of_one_generator():
    generator = np.random.default_rng(5)
    expected = [generator.integers(0, 30, 30) for _ in range(4)]
    np.testing.assert_array_equal(list(RESAMPLER.rows(30)), expected)


def test_counts_say_how_often_each_row_is_drawn():
    drawn = [np.repeat(np.arange(30), counts) for counts in RESAMPLER.row_counts(30)]
    np.testing.assert_array_equal(drawn, np.sort(list(RESAMPLER.rows(30))))


def test_rows_of_torch_are_those_of_one_draw():
    generator = torch.Generator().manual_seed(5)
    whole = torch.randint(30, (4, 30), generator=generator)
    assert torch.equal(torch.stack(list(RESAMPLER.torch_rows(30))), whole)


def test_cells_are_drawn_by_their_sizes_and_blocks_do_not_matter():
    sizes = torch.tensor([[5.0, 0.0], [20.0, 75.0]])
    counts = RESAMPLER.cell_counts(sizes)
    assert counts.shape == (4, 2, 2) and counts.dtype == torch.float64
    assert (counts.sum((1, 2)) == 100).all() and (counts[:, 0, 1] == 0).all()

    for max_numbers in (1, 8, 100):
        blocks = RESAMPLER.cell_count_blocks(sizes.flatten().numpy(), max_numbers)
        joined = np.concatenate(list(blocks))
        np.testing.assert_array_equal(joined, counts.flatten(1).numpy())


def test_every_call_starts_again():
    first, second = (list(RESAMPLER.rows(7)) for _ in range(2))
    assert len(first) == 4
    np.testing.assert_array_equal(first, second)
