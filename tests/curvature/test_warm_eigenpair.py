"""A warm eigenpair of a diagonal matrix that the tests change."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from diagonal import SIZE, Diagonal

from toosure.curvature.eigen.eager_basis import EagerBasis
from toosure.curvature.eigen.eigenpair_history import RIDGE, extrapolation_weights
from toosure.curvature.eigen.warm_eigenpair import KEEP_WITH_GRAPHS, WarmEigenpair


@pytest.fixture(params=["eager", "graphs", "dense graphs"])
def make_pair(request):
    """Make a warm eigenpair, also one with the basis that is used in CUDA graphs."""
    return partial(make_pair_of_kind, request.param)


def make_pair_of_kind(kind, **options):
    operator = Diagonal()
    operator.uses_graphs = kind != "eager"
    operator.dense = kind == "dense graphs"
    return operator, WarmEigenpair(operator, torch.empty(0, SIZE).double(), **options)


def test_a_hidden_eigenvector_is_found_by_a_probe(make_pair):
    """It grows in a direction that the followed space does not contain."""
    operator, pair = make_pair(probe_every=20)
    operator.d[0] = 10.0
    for _ in range(30):
        assert pair.measure().value == pytest.approx(10.0, rel=1e-3)
    operator.d[7] = 20.0
    found = [pair.measure().value for _ in range(20)]
    assert found[-1] == pytest.approx(20.0, rel=1e-3)


def test_a_probe_that_finds_nothing_leaves_what_was_found(make_pair):
    """It may use the memory that the vectors came from."""
    operator, pair = make_pair(probe_every=5)
    operator.d[0] = 10.0
    for _ in range(30):
        pair.measure()
        pair.catch_up()
        leading = pair.history.spaces[-1][0]
        assert abs(float(leading[0])) > 0.999


def test_a_second_eigenvector_that_overtakes(make_pair):
    operator, pair = make_pair(probe_every=0)
    for step in range(120):
        operator.d[0], operator.d[1] = 10.0, 7.0 + 0.06 * step
        result = pair.measure()
        exact = float(operator.d.max())
        assert abs(result.value / exact - 1) <= 1e-3 or not result.converged, (step, result)
    assert exact > 14.0


@pytest.mark.parametrize(
    ("kind", "least"), [("eager", 0.5), ("graphs", 1), ("dense graphs", KEEP_WITH_GRAPHS)]
)
def test_calm_steps_end_when_the_value_leaves_its_course(kind, least):
    """A Rayleigh quotient alone; with graphs, rows without any of their residuals."""
    operator, pair = make_pair_of_kind(kind, probe_every=0)
    products = []
    for step in range(60):
        operator.d[0] = 10.0 + 0.01 * step
        products.append(pair.measure().products)
    assert min(products[20:]) == least
    turned = 0.3 * operator.d.flip(0)
    turned[5] = 13.0  # another matrix
    operator.d[:] = turned
    assert pair.measure().products > least


def test_with_graphs_a_shallow_step_that_is_not_enough_is_not_tried_again_at_once():
    """Where spaces stop sufficing, it is tried after 2, 4, 8, 16 deep steps; else always."""
    _, pair = make_pair_of_kind("dense graphs")
    pair.history.spaces = [torch.zeros(6, SIZE)]
    depths = []

    def make_basis(candidates, depth):
        depths.append(depth)
        return list(candidates)

    def solve(basis, refresh):
        basis += basis[: (depths[-1] == 1) * short]

    pair._make_basis = make_basis
    pair._solve = solve
    short = True
    for _ in range(60):
        pair._full_step_in_graphs(np.ones(6))
    assert [i for i, depth in enumerate(depths) if depth == 1] == [2, 5, 10, 19, 36, 53]
    short = False
    for _ in range(20):
        pair._full_step_in_graphs(np.ones(6))
    assert depths[-10:] == [1] * 10 and pair.history.deep == 1


def test_a_postponed_measurement_is_in_the_state(make_pair):
    operator, pair = make_pair()
    for step in range(12):
        operator.d[0] = 10.0 + 0.1 * step
        value = pair.measure().value
        if step % 3 == 0:
            state = pair.state_dict()
            assert state["values"][-1] == value and len(state["spaces"][-1]) == pair.keep
    pair.load_state_dict(state)
    assert pair.state_dict()["values"] == state["values"]
    assert pair.measure().value == pytest.approx(float(operator.d[0]), rel=1e-3)


def test_errors_are_never_below_rounding(make_pair):
    operator, pair = make_pair(probe_every=0)
    operator.d[0] = 10.0
    assert all(pair.measure().error >= 1e-12 for _ in range(30))


def test_starts_over_after_what_is_not_finite(make_pair):
    operator, pair = make_pair()
    operator.d[0] = 10.0
    for _ in range(10):
        pair.measure()
    operator.d[3] = math.nan
    assert not pair.measure().converged
    operator.d[3] = 0.5
    for _ in range(12):
        assert pair.measure().value == pytest.approx(10.0, rel=1e-3)


def test_overlaps_that_no_vectors_have_leave_the_last_one():
    overlap = np.eye(6) - 2.0
    np.testing.assert_allclose(extrapolation_weights(overlap)[:-1], 0.0)
    assert np.isfinite(extrapolation_weights(overlap)).all()


def test_the_extrapolation_is_the_ridge_regression_it_says():
    generator = torch.Generator().manual_seed(0)
    past = torch.randn(6, SIZE, generator=generator).double()
    past /= past.norm(dim=1, keepdim=True)
    lags, target = past[:-1], past[-1]
    weights = torch.linalg.solve(lags @ lags.T + RIDGE * torch.eye(5).double(), lags @ target)
    expected = weights @ past[1:]
    found = torch.from_numpy(extrapolation_weights((past @ past.T).numpy())) @ past
    torch.testing.assert_close(found, expected / expected.norm())


@pytest.mark.parametrize("moving", [0.0, 0.02])
def test_the_overlaps_remembered_are_those_of_the_vectors(make_pair, moving):
    """Through calm, lean and full steps: they are carried on, never measured again."""
    operator, pair = make_pair(probe_every=7)
    operator.d[0] = 10.0
    for step in range(40):
        operator.d[1] = 5.0 + moving * step
        pair.measure()
        history = pair.history
        expected = history.leading @ history.leading.T
        found = torch.tensor(history.overlap, dtype=torch.float64)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_nearly_dependent_vectors_leave_an_orthonormal_basis():
    """Two pairs of nearly parallel float32 vectors: one turn alone leaves a few thousandths."""
    operator = Diagonal()
    operator.d = torch.linspace(0.1, 1.0, 100_000)
    generator = torch.Generator().manual_seed(0)
    apart, near = torch.randn(2, 2, 100_000, generator=generator)
    basis = EagerBasis(operator, torch.cat([apart, apart + 5e-3 * near]))
    overlap = basis.vectors.double() @ basis.vectors.double().T
    assert len(basis) == 4
    torch.testing.assert_close(overlap, torch.eye(4).double(), rtol=0, atol=2e-6)


def test_a_matrix_of_zeros_is_zero(make_pair):
    """As where a softmax has saturated in float32: no division by it."""
    operator, pair = make_pair(probe_every=5)
    operator.d[0] = 10.0
    for _ in range(25):
        pair.measure()
    operator.d = torch.zeros(SIZE).double()
    for _ in range(12):
        assert pair.measure().value == 0.0
    operator.d[0] = 3.0
    found = [pair.measure() for _ in range(12)]
    assert found[-1].value == pytest.approx(3.0, rel=1e-3)
