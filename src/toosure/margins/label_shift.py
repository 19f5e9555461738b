"""Whether a test set is a local label-preserving shift of a training set (Corollary B.8)."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_flow
from torch import Tensor

from toosure.margins.robust import Norm, check_radius

MAX_NUMBERS = 2**24  # compared at once


@dataclass(frozen=True)
class Shift:
    """The number of test points with a training point of their label within eps."""

    near: int
    n: int
    holds: bool  # a coupling exists: the test set lies in the uncertainty set, exactly

    @property
    def reason(self) -> str:
        """A sentence: whether the assumption holds, or why it fails."""
        if self.near < self.n:
            return (
                f"assumption fails: {self.n - self.near:,} of {self.n:,} test points have no "
                "training point of their label within eps"
            )
        if not self.holds:
            return "assumption fails: every test point has a near neighbour, but no coupling exists"
        return "assumption checked exactly on these samples: a coupling exists"


def label_preserving_shift(
    train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], eps: float, norm: Norm = "linf"
) -> Shift:
    r"""Decide whether the empirical test distribution lies in B_eps^lp of the training one.

    That each test point has a training point of its label within eps is necessary, not sufficient:
    mass must move one to one. A coupling of the two uniform distributions exists exactly when the
    maximum flow from test to training points along such pairs carries everything (for equal sizes,
    a perfect matching). This is about the two samples; the distribution behind a test set is not
    observed. Reference: Too Sharp, Too Sure, Prop. B.7 (2026), arXiv 2604.20614.

    >>> x, y = torch.tensor([[0.0], [1.0]]), torch.tensor([0, 0])
    >>> label_preserving_shift((x, y), (x + 0.1, y), 0.2).holds
    True
    >>> both_near_the_first = (torch.tensor([[0.1], [0.1]]), y)
    >>> shift = label_preserving_shift((x, y), both_near_the_first, 0.2)
    >>> shift.near, shift.holds
    (2, False)
    """
    check_radius(eps, norm)
    pairs = near_pairs(train, test, eps, norm)  # (2, E): test and training indices
    train_size = len(train[1])
    test_size = len(test[1])

    near = len(pairs[0].unique())
    holds = near == test_size and coupling_exists(pairs.cpu().numpy(), train_size, test_size)
    return Shift(near, test_size, holds)


def near_pairs(
    train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], eps: float, norm: Norm
) -> Tensor:
    """Return all (test, training) indices of equal label within eps, (2, E)."""
    train_x, train_y = train
    test_x, test_y = test
    train_x = train_x.flatten(1)
    test_x = test_x.flatten(1)
    if train_x.shape[1] != test_x.shape[1]:
        raise ValueError(
            f"test inputs have {test_x.shape[1]} numbers each, training inputs {train_x.shape[1]}"
        )

    device = test_x.device
    pairs = [torch.empty(2, 0, dtype=torch.long)]
    for label in test_y.unique().tolist():
        test_rows = (test_y == label).nonzero().squeeze(1)
        train_rows = (train_y == label).nonzero().squeeze(1)

        chunk = max(1, MAX_NUMBERS // max(1, len(train_rows)))
        for part in test_rows.split(chunk):
            index = near_rows(test_x[part], train_x[train_rows].to(device), eps, norm)
            near = torch.stack([part[index[0]], train_rows.to(device)[index[1]]])
            pairs.append(near.cpu())
    return torch.cat(pairs, 1)


def near_rows(a: Tensor, x: Tensor, eps: float, norm: Norm) -> Tensor:
    """Return the pairs (row of a, row of x) within eps, (2, E).

    No pair with l2 distance above eps (sqrt(D) eps for linf) can be near, and a matrix product
    finds those; only the pairs that it leaves are compared entry by entry.
    """
    a = a.double()
    x = x.double()
    radius = eps * (a.shape[1] ** 0.5 if norm == "linf" else 1.0)
    squares = a.square().sum(1, keepdim=True) + x.square().sum(1)
    rounding = 1e-12 * squares * a.shape[1] ** 0.5
    candidates: Tensor = (squares - 2 * a @ x.T <= radius**2 + rounding).nonzero()

    order = math.inf if norm == "linf" else 2
    near: list[Tensor] = [torch.zeros(0, dtype=torch.bool, device=a.device)]
    for part in candidates.split(max(1, MAX_NUMBERS // a.shape[1])):
        gap = a[part[:, 0]] - x[part[:, 1]]
        near.append(torch.linalg.vector_norm(gap, order, dim=1) <= eps)
    return candidates[torch.cat(near)].T


def coupling_exists(pairs: np.ndarray, train: int, test: int) -> bool:
    """Whether a coupling of two uniform distributions fits on the pairs, by maximum flow."""
    # In whole numbers: each test point sends `out`, each training point takes `into`.
    common = math.gcd(train, test)
    out = train // common
    into = test // common
    if out * test >= 2**31:
        raise ValueError(f"{train:,} against {test:,} points: too many for an exact coupling")

    # The edges: source to test points, near pairs, training points to sink.
    source = test + train
    sink = source + 1
    start = np.concatenate([np.full(test, source), pairs[0], test + np.arange(train)])
    end = np.concatenate([np.arange(test), test + pairs[1], np.full(train, sink)])
    capacity = np.concatenate(
        [np.full(test, out), np.full(pairs.shape[1], out), np.full(train, into)]
    )

    graph = csr_matrix((capacity.astype(np.int32), (start, end)), shape=(sink + 1, sink + 1))
    return int(maximum_flow(graph, source, sink).flow_value) == out * test
