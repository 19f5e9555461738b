"""The basis for CUDA graphs, on a known matrix: what the host computes is right."""

import numpy as np
import pytest
import torch
from diagonal import SIZE, Diagonal

from toosure.curvature.eigen.eager_basis import EagerBasis
from toosure.curvature.eigen.error_estimates import SAFETY, clustered_error
from toosure.curvature.eigen.graph_basis import GraphBasis
from toosure.curvature.eigen.graph_rows import MAX_ROWS, polished
from toosure.curvature.eigen.make_basis import make_basis
from toosure.curvature.eigen.small_eigen import generalised_eigh
from toosure.curvature.eigen.solver import solve


def operator(size=SIZE, top=(10.0, 7.0, 5.0)):
    found = Diagonal()
    found.d = torch.linspace(0.1, 1.0, size).double()
    found.d[: len(top)] = torch.tensor(top).double()
    return found


def start(count, size=SIZE, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(size, count, generator=generator).double())[0].T


def check(basis, matrix):
    """Ritz pairs, residuals and their lengths against the matrix itself."""
    rows = basis.vectors
    turns = torch.from_numpy(basis.coefficients.copy()).T
    vectors = turns @ rows
    torch.testing.assert_close(
        vectors @ vectors.T, torch.eye(len(basis)).double(), atol=1e-9, rtol=0
    )
    projected = vectors @ (matrix.d[:, None] * vectors.T)
    torch.testing.assert_close(
        projected, torch.diag(torch.tensor(basis.values.copy())), atol=1e-9, rtol=0
    )
    for index, vector in enumerate(vectors):
        residual = matrix.d * vector - float(basis.values[index]) * vector
        assert basis.residual(index)[0] == pytest.approx(float(residual.norm()), abs=2e-7)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_residuals_of_all_pairs_are_known_after_every_expansion(depth):
    matrix = operator()
    basis = GraphBasis(matrix, start(4), depth)
    check(basis, matrix)
    for index in (0, 1, 0):
        before = len(basis)
        assert basis.expand(index)
        assert before < len(basis) <= before + 2
        check(basis, matrix)
    assert basis.join(start(3, seed=1))
    check(basis, matrix)
    basis.restart(5)
    assert len(basis) == 5
    check(basis, matrix)


def test_the_wider_space_of_the_start_is_that_of_vectors_and_residuals():
    matrix, vectors = operator(), start(3)
    basis = GraphBasis(matrix, vectors, depth=2)
    spanned = torch.linalg.qr(torch.cat([vectors, vectors * matrix.d]).T)[0]
    expected = torch.linalg.eigvalsh(spanned.T @ (matrix.d[:, None] * spanned)).flip(0)
    np.testing.assert_allclose(basis.values, expected.numpy(), rtol=1e-9)


@pytest.mark.parametrize("size", [SIZE, 5])
def test_from_one_vector_a_depth_is_so_many_steps_of_lanczos(size):
    matrix, vector = operator(size), start(1, size)
    basis = GraphBasis(matrix, vector, depth=8)
    powers = torch.stack([vector[0] * matrix.d**power for power in range(min(8, size))])
    spanned = torch.linalg.qr(powers.T / powers.norm(dim=1))[0]
    expected = torch.linalg.eigvalsh(spanned.T @ (matrix.d[:, None] * spanned)).flip(0)
    assert len(basis) == len(powers) and basis.products == 8
    np.testing.assert_allclose(basis.values[:3], expected.numpy()[:3], rtol=1e-6)


def test_a_depth_beyond_the_room_is_cut():
    matrix = operator(500)
    assert len(GraphBasis(matrix, start(1, size=500), depth=100)) <= MAX_ROWS


@pytest.mark.parametrize("apart", [0.0, 1e-3, 0.1])
def test_residuals_that_are_nearly_parallel_lose_nothing(apart):
    """Two pairs that miss the same vector: what both residuals show is one direction."""
    matrix = operator(top=(10.0, 8.0, 6.0, 5.0))
    vectors = torch.zeros(2, SIZE).double()
    vectors[0, 0] = vectors[1, 1] = 1.0
    vectors[:, 2] = torch.tensor([0.1, 0.1]).double()
    vectors[1, 3] = apart * 0.1
    basis = GraphBasis(matrix, vectors, depth=1)
    for index in (0, 1, 0):
        before = basis.values[0]
        grown = basis.expand(index)
        assert basis.values[0] >= before - 1e-12
    assert not grown or len(basis) <= 4
    check(basis, matrix)
    assert basis.values[0] == pytest.approx(10.0, rel=1e-9)


def test_dependent_vectors_are_left_out():
    matrix, vectors = operator(), start(3)
    doubled = torch.cat([vectors, 2 * vectors[:1], vectors[:2] + vectors[1:]])
    basis = GraphBasis(matrix, doubled, depth=1)
    assert len(basis) == 3
    check(basis, matrix)
    assert not basis.join(vectors[:2])  # nothing new
    assert len(basis) == 3
    check(basis, matrix)


def test_nearly_orthonormal_vectors_are_made_so_without_the_host():
    vectors = start(5)
    near = (
        vectors + 0.02 * torch.randn(5, SIZE, generator=torch.Generator().manual_seed(3)).double()
    )
    overlap, turn = polished(near @ near.T)
    after = turn @ near
    torch.testing.assert_close(after @ after.T, torch.eye(5).double(), atol=1e-8, rtol=0)
    torch.testing.assert_close(overlap, after @ after.T)


def test_a_space_that_is_filled_ends_the_search():
    matrix = operator(size=9, top=(4.0, 4.0, 3.0))
    basis = GraphBasis(matrix, start(2, size=9), depth=2)
    for _ in range(20):
        if not basis.expand(0):
            break
    assert len(basis) <= 9
    assert basis.values[0] == pytest.approx(4.0, rel=1e-9)
    assert basis.residual(0)[0] < 1e-6


def test_more_expansions_than_there_is_room_for():
    matrix = operator(size=500)
    basis = GraphBasis(matrix, start(4, size=500), depth=2)
    for _ in range(MAX_ROWS):
        basis.expand(min(len(basis) // 2, 10))
    assert len(basis.vectors) <= MAX_ROWS
    check(basis, matrix)


def test_what_is_carried_on_is_better_and_its_overlaps_with_the_past_are_right():
    matrix, past = operator(), start(6, seed=5)
    basis = GraphBasis(matrix, start(4), depth=2, past=past)
    vectors, improved, shares = basis.leading(3, refresh=2)
    beside = torch.cat([past, improved[:1]])
    expected = torch.cat([vectors, improved[:1]]) @ beside.T
    np.testing.assert_allclose(shares, expected.numpy(), atol=1e-9)
    assert float(improved[0, 0].abs()) > float(vectors[0, 0].abs())  # the first eigenvector is e_0
    one_at_a_time = EagerBasis(matrix, start(4), past).leading(3, refresh=2)[2]
    assert one_at_a_time.shape == shares.shape


def test_the_same_answer_as_one_vector_at_a_time():
    matrix = operator()
    exact = {}
    for graphs in (False, True):
        matrix.uses_graphs = graphs
        basis = make_basis(matrix, start(4))
        assert isinstance(basis, GraphBasis) == graphs
        found = solve(basis, wanted=2, rtol=1e-6, budget=100)
        assert found.converged
        exact[graphs] = found.values[:2]
    np.testing.assert_allclose(exact[True], exact[False], rtol=1e-8)
    np.testing.assert_allclose(exact[True], [10.0, 7.0], rtol=1e-8)


@pytest.mark.parametrize("depth", [1, 2])
def test_what_is_not_finite_is_said(depth):
    matrix = operator()
    matrix.d[3] = float("nan")
    basis = GraphBasis(matrix, start(3), depth)
    assert not basis.is_finite
    assert not solve(basis).converged


def test_in_float32_a_residual_is_known_well_enough():
    """The tolerance of a tracker asks for a hundredth; here after nearly converging."""
    matrix = operator(size=20_000)
    matrix.d = matrix.d.float()
    basis = GraphBasis(matrix, start(6, size=20_000).float(), depth=2)
    for _ in range(3):
        vectors = torch.from_numpy(basis.coefficients.copy()).T @ basis.vectors.double()
        for index in range(3):
            value, vector = float(basis.values[index]), vectors[index]
            exact = float((matrix.d.double() * vector - value * vector).norm())
            assert basis.residual(index)[0] == pytest.approx(exact, abs=2e-4 * value)
        basis.expand(0)


@pytest.mark.parametrize("spread", [0.0, 1e-6, 1e-3, 0.1])
@pytest.mark.parametrize("count", [3, 6])
def test_nearly_parallel_vectors(count, spread):
    """The iteration that makes vectors orthonormal fails on them, and says so."""
    matrix = operator()
    basis = GraphBasis(matrix, start(1) + spread * start(count, seed=2), depth=2)
    assert basis.is_finite
    assert len(basis) >= (1 if spread < 1e-2 else count)
    check(basis, matrix)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("rank", [1, 2, 4])
def test_a_matrix_of_low_rank_leaves_finite_vectors(rank, kind):
    matrix = operator(size=600)
    matrix.d = torch.zeros(600).to(kind)
    matrix.d[:rank] = torch.linspace(5.0, 4.0, rank).to(kind)
    found = start(6, size=600).to(kind)
    for _ in range(8):
        basis = GraphBasis(matrix, found, depth=2)
        _, found, _ = basis.leading(6 if len(basis) >= 6 else len(basis), refresh=2)
        assert torch.isfinite(found).all()
        assert basis.values[0] == pytest.approx(5.0, rel=1e-3)


@pytest.mark.parametrize("left", [0.0, 1e-4, 0.05])
def test_a_dependent_row_takes_nothing_from_the_span_of_those_before_it(left):
    """A row of zeros, and one that is nearly the first, behind two that are close."""
    matrix = operator()
    rows = torch.zeros(4, SIZE).double()
    rows[0, 1] = rows[1, 1] = rows[3, 1] = 1.0
    rows[1, 0], rows[3, 2] = 0.122, left  # the squared sine is .015
    rows[:2] /= rows[:2].norm(dim=1, keepdim=True)
    values = []
    for count in (1, 2, 3, 4):
        some = rows[:count]
        gram, overlap = some @ (matrix.d[:, None] * some.T), some @ some.T
        found, turns = generalised_eigh(gram.numpy(), overlap.numpy())
        np.testing.assert_allclose(turns.T @ overlap.numpy() @ turns, np.eye(len(found)), atol=1e-9)
        values.append(found[0])
    np.testing.assert_allclose(values, [7.0, 10.0, 10.0, 10.0], rtol=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_close_values_judged_together(seed):
    """An upper bound of the first one's error, and far below the residual itself."""
    generator = torch.Generator().manual_seed(seed)
    matrix = operator(top=(10.0, 9.9, 5.0, 4.0))
    wanted = torch.eye(SIZE)[:6].double()
    noise = torch.randn(6, SIZE, generator=generator).double()
    basis = GraphBasis(matrix, wanted + 0.01 * noise, depth=1)
    error = 1 - basis.values[0] / 10.0
    bound = clustered_error(basis.residual_norms, basis.values)
    assert error <= bound <= 200 * error
    assert bound < 0.3 * SAFETY * basis.residual_norms[0] / 10.0


def test_values_that_are_not_known_well_are_not_judged_together():
    far = np.array([1.0, 1.0, 5.0])
    assert clustered_error(far, np.array([10.0, 9.9, 9.8])) == np.inf
    assert clustered_error(far, np.array([10.0, 9.9, 6.0])) == np.inf  # less its residual, too near
    assert np.isfinite(clustered_error(far, np.array([10.0, 9.9, 4.0])))


def test_a_row_of_rounding_noise_leaves_lengths_and_vectors_finite():
    """Rows in float32 that are nearly dependent: squares of residuals come out below 0."""
    matrix = operator()
    matrix.d = matrix.d.float()
    for seed in range(40):
        vectors = start(6, seed=seed).float()
        vectors[3:] = vectors[:3] + 0.15 * vectors[3:]
        basis = GraphBasis(matrix, vectors, depth=2)
        while len(basis) < 30 and basis.expand(0):
            pass
        _, improved, shares = basis.leading(6, 2)
        assert torch.isfinite(improved).all() and np.isfinite(shares).all()
        assert (improved.norm(dim=1) - 1).abs().max() < 1e-2
