"""Couplings of two samples against Hall's condition, set by set."""

import itertools
import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from toosure.margins import label_preserving_shift


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 10**6))
def test_couplings_are_those_found_by_trying_all_matchings(n, m, seed):
    generator = torch.Generator().manual_seed(seed)
    x, a = (torch.rand(k, 2, generator=generator, dtype=torch.float64) for k in (n, m))
    y, b = (torch.randint(2, (k,), generator=generator) for k in (n, m))
    for norm, order in (("linf", math.inf), ("l2", 2)):
        near = torch.linalg.vector_norm(a[:, None] - x, order, dim=2) <= 0.5
        near = near & (b[:, None] == y)
        shift = label_preserving_shift((x, y), (a, b), 0.5, norm)
        assert shift.near == int(near.any(1).sum())
        assert shift.holds == brute_coupling(near, n, m)


def brute_coupling(near, n, m):
    """Hall's condition for equal mass: no set of test points outweighs its neighbours."""
    for size in range(1, m + 1):
        for chosen in itertools.combinations(range(m), size):
            if size * n > int(near[list(chosen)].any(0).sum()) * m:
                return False
    return True
