"""Leading eigenvectors held by block iterations, against dense eigenvectors."""

import numpy as np
import pytest
import torch
from torch import nn

from toosure.curvature import CurvatureTracker, top_block
from toosure.curvature.eigen.block_iteration import RENEW_EVERY, block_start, iterate_block
from toosure.curvature.products.dense_hessian import DenseHessian
from toosure.curvature.products.loss_curvature import LossCurvature
from toosure.curvature.top_block import block_products


def examples(n=60, inputs=6, classes=4):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, inputs, generator=generator, dtype=torch.float64)
    return x, torch.randint(0, classes, (n,), generator=generator)


def mlp(activation=nn.Tanh, bias=True):
    torch.manual_seed(0)
    layers = [nn.Linear(6, 8), activation(), nn.Linear(8, 7, bias=bias), activation()]
    return nn.Sequential(*layers, nn.Linear(7, 4)).double()


def dense_hessian(curvature):
    """The Hessian, column by column, by autograd."""
    identity = torch.eye(curvature.size, dtype=torch.float64)
    return curvature.apply(identity, "hessian")


# -- products -------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU, nn.SiLU, nn.Sigmoid])
@pytest.mark.parametrize("loss", ["ce", "mse", nn.CrossEntropyLoss(label_smoothing=0.1)])
def test_products_by_hand_are_those_of_autograd(activation, loss):
    model = mlp(activation, bias=False)
    model[0].bias.requires_grad_(False)
    curvature = LossCurvature(model, examples(), loss)
    (chunk,) = curvature.chunks()
    with curvature.temporary_mode():
        hessian = DenseHessian.of(chunk, curvature.loss)
        block = torch.randn(3, curvature.size, dtype=torch.float64)
        found = hessian.products(block) / 60
    torch.testing.assert_close(found, curvature.apply(block, "hessian"), rtol=1e-10, atol=1e-12)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.last = nn.Linear(6, 4)

    def forward(self, x):
        return self.last(x + self.first(x).tanh())


def test_what_is_no_chain_has_no_products_by_hand_and_is_solved_all_the_same():
    torch.manual_seed(0)
    model = Residual().double()
    tracker = CurvatureTracker(model, examples(), quantities=())
    (chunk,) = tracker.curvature.chunks()
    assert DenseHessian.of(chunk, tracker.curvature.loss) is None

    pairs = tracker.top("hessian", 2, rounds=1)
    exact = torch.linalg.eigvalsh(dense_hessian(tracker.curvature)).flip(0)[:2]
    assert pairs.converged
    torch.testing.assert_close(pairs.value, exact, rtol=1e-3, atol=0)


# -- block iterations -----------------------------------------------------------------------


def largest_sine(vectors, exact):
    """The sine of the largest angle between two spaces, each given by orthonormal rows."""
    cosines = torch.linalg.svdvals(vectors.double() @ exact.double().T)
    return float((1 - cosines.min() ** 2).clamp(min=0).sqrt())


@pytest.mark.parametrize("k", [1, 3])
def test_one_round_a_step_holds_the_dense_eigenvectors_along_a_run(k):
    x, y = examples()
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tracker = CurvatureTracker(model, (x, y), quantities=())
    identity = torch.eye(tracker.curvature.size, dtype=torch.float64)
    sines, products = [], []
    for step in range(120):
        pairs = tracker.top("hessian", k, rounds=1)
        products.append(pairs.products)
        if step % 6 == 0:
            hessian = block_products(tracker.curvature, "hessian")(identity, False)
            values, vectors = torch.linalg.eigh((hessian + hessian.T) / 2)
            gap = float(values[-k] - values[-k - 1]) / float(values[-1])
            sines.append((gap, largest_sine(pairs.vectors, vectors.T[-k:])))
            torch.testing.assert_close(pairs.value, values.flip(0)[:k], rtol=2e-2, atol=0)
        rows = torch.arange(step * 20, step * 20 + 20) % len(x)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()

    assert set(products[1:]) == {2 * (k + 2)}  # two products per vector, two vectors more
    clear = [sine for gap, sine in sines if gap > 0.05]
    assert len(clear) > 5 and max(clear) < 0.1 and np.median(clear) < 0.02


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_the_first_call_stops_where_its_values_have_converged(k, monkeypatch):
    pairs = CurvatureTracker(mlp(), examples(), quantities=()).top("hessian", k, rounds=1)
    assert pairs.converged

    rounds = pairs.products // (2 * (k + 2))
    monkeypatch.setattr(top_block, "COLD_ROUNDS", rounds - 1)
    earlier = CurvatureTracker(mlp(), examples(), quantities=()).top("hessian", k, rounds=1)
    assert not earlier.converged and f"after {earlier.products} products" in earlier.note


def test_rounds_converge_to_the_eigenvectors_where_nothing_moves():
    tracker = CurvatureTracker(mlp(), examples(), quantities=())
    for _ in range(10):
        pairs = tracker.top("hessian", 3, rounds=2)
    values, vectors = torch.linalg.eigh(dense_hessian(tracker.curvature))
    assert largest_sine(pairs.vectors, vectors.T[-3:]) < 1e-5
    torch.testing.assert_close(pairs.value, values.flip(0)[:3], rtol=1e-9, atol=0)
    assert pairs.converged and pairs.error <= 1e-6


def test_a_missed_direction_enters_when_a_vector_is_drawn_anew():
    model = nn.Linear(6, 4).double()
    tracker = CurvatureTracker(model, examples(), quantities=())
    _, vectors = torch.linalg.eigh(dense_hessian(tracker.curvature))
    tracker._top_vectors["hessian", 1] = vectors.T[-4:-1].flip(0).contiguous()  # not the first
    tracker._steps = RENEW_EVERY - 3
    found = [float(tracker.top("hessian", 1, rounds=1).value) for _ in range(10)]
    exact = float(torch.linalg.eigvalsh(dense_hessian(tracker.curvature))[-1])
    assert max(found[:2]) < 0.999 * exact
    assert found[-1] == pytest.approx(exact, rel=1e-3)


def test_overflow_is_said_and_the_next_call_starts_anew():
    model = mlp()
    tracker = CurvatureTracker(model, examples(), quantities=())
    good = tracker.top("hessian", 2, rounds=1)
    weight = model[0].weight.detach().clone()
    with torch.no_grad():
        model[0].weight.fill_(float("nan"))
    assert not tracker.top("hessian", 2, rounds=1).converged
    assert tracker.top("hessian", 2, rounds=1).products == 8  # from a random start: it ends at once
    with torch.no_grad():
        model[0].weight.copy_(weight)
    again = tracker.top("hessian", 2, rounds=1)
    assert again.converged
    torch.testing.assert_close(again.value, good.value, rtol=1e-2, atol=0)


def test_a_block_of_known_vectors_is_filled_up_with_random_ones():
    like = torch.empty(0, 5, dtype=torch.float64)
    known = torch.eye(5, dtype=torch.float64)[:2]
    block = block_start(4, like, 0, known)
    assert torch.equal(block[:2], known)
    assert block.norm(dim=1).tolist() == pytest.approx([1.0] * 4)
    assert torch.equal(block_start(1, like, 0, known), known[:1])

    # Of a diagonal matrix two rounds in the whole space find everything.
    diagonal = torch.diag(torch.tensor([5.0, 3.0, 2.0, 1.0, -4.0], dtype=torch.float64))
    pairs = iterate_block(lambda block, _: block @ diagonal, block, 3)
    assert pairs.values[:2] == pytest.approx([5.0, 3.0], rel=1e-6)


def test_rounds_must_be_a_count_and_a_resumed_tracker_goes_on_alike():
    model = mlp()
    tracker = CurvatureTracker(model, examples(), quantities=())
    with pytest.raises(ValueError, match="rounds"):
        tracker.top("hessian", 1, rounds=0)

    tracker.top("hessian", 1, rounds=1)
    other = CurvatureTracker(model, examples(), quantities=())
    state = tracker.state_dict()
    other.load_state_dict(state)
    first = tracker.top("hessian", 1, rounds=1)
    second = other.top("hessian", 1, rounds=1)
    assert torch.equal(first.vectors, second.vectors) and second.products == 6

    # A state of an earlier version had other names for the same.
    state |= {"followers": state.pop("pairs"), "bulk": state.pop("top_vectors")}
    third = CurvatureTracker(model, examples(), quantities=())
    third.load_state_dict(state)
    assert torch.equal(third.top("hessian", 1, rounds=1).vectors, first.vectors)
