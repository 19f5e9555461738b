"""Two columns of a binary classifier against torch's binary cross-entropy."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from toosure.binary import (
    TwoColumns,
    binary_labels,
    is_one_column,
    one_column,
    two_column_probs,
    two_columns,
)

LOGITS = torch.tensor([-40.0, -3.0, -0.5, 0.0, 1.25, 60.0], dtype=torch.float64)
LABELS = torch.tensor([0, 1, 0, 1, 1, 0])


@pytest.mark.parametrize("shape", [(6,), (6, 1)])
def test_softmax_of_two_columns_is_the_sigmoid(shape):
    probs = two_columns(LOGITS.reshape(shape)).softmax(1)
    expected = torch.stack([torch.sigmoid(-LOGITS), torch.sigmoid(LOGITS)], 1)
    torch.testing.assert_close(probs, expected, rtol=1e-14, atol=0)


def test_loss_gradient_and_curvature_are_those_of_binary_cross_entropy():
    def two(z):
        return F.cross_entropy(two_columns(z), LABELS)

    def one(z):
        return F.binary_cross_entropy_with_logits(z, LABELS.double())

    torch.testing.assert_close(two(LOGITS), one(LOGITS), rtol=1e-14, atol=0)
    for derivative in (torch.func.grad, torch.func.hessian):
        torch.testing.assert_close(
            derivative(two)(LOGITS), derivative(one)(LOGITS), rtol=1e-12, atol=1e-16
        )


def test_two_column_probs_sum_to_one():
    p = torch.tensor([0.0, 0.1, 0.5, 1.0], dtype=torch.float64)
    for shape in [(4,), (4, 1)]:
        both = two_column_probs(p.reshape(shape))
        assert torch.equal(both, torch.stack([1 - p, p], 1))

    half = torch.tensor([0.1234, 0.987], dtype=torch.float16)
    assert two_column_probs(half).dtype == torch.float32
    assert torch.equal(two_column_probs(half)[:, 1], half.float())


def test_one_column_is_the_inverse():
    assert torch.equal(one_column(two_columns(LOGITS)), LOGITS)
    assert torch.equal(one_column(torch.tensor([[1.0, 3.0]])), torch.tensor([2.0]))
    with pytest.raises(ValueError, match=r"two classes; got logits \(2, 3\)"):
        one_column(torch.zeros(2, 3))


@pytest.mark.parametrize(
    "labels",
    [
        LABELS,
        LABELS.bool(),
        LABELS.float(),
        LABELS.to(torch.uint8)[:, None],
        LABELS.numpy(),
        LABELS.tolist(),
    ],
)
def test_labels_of_every_usual_type(labels):
    converted = binary_labels(labels, 6)
    assert converted.dtype == torch.int64
    assert torch.equal(converted, LABELS)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, 2], r"are 0 and 1, or booleans; got 2 in row 2"),
        ([0.0, 0.5, 1.0], r"got 0.5 in row 1"),
        ([0.0, float("nan"), 1.0], r"got nan in row 1"),
        ([-1, 1, 1], r"got -1 in row 0"),
        ([0, 1], r"have shape \(3,\) or \(3, 1\); got \(2,\)"),
        ([[0, 1], [1, 0], [0, 1]], r"got \(3, 2\)"),
    ],
)
def test_other_labels_are_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        binary_labels(labels, 3)


def test_other_shapes_are_refused():
    assert not is_one_column([0.0, 1.0])
    with pytest.raises(ValueError, match=r"logits of a binary .* got \(3, 2\)"):
        two_columns(torch.zeros(3, 2))
    with pytest.raises(ValueError, match=r"probs of a binary .* got \(3, 1, 1\)"):
        two_column_probs(torch.zeros(3, 1, 1))


def test_wrapped_model_trains_the_model():
    model = nn.Linear(3, 1, dtype=torch.float64)
    wrapped = TwoColumns(model)
    inputs = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert all(p is q for p, q in zip(wrapped.parameters(), model.parameters(), strict=True))

    F.cross_entropy(wrapped(inputs), LABELS).backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    loss = F.binary_cross_entropy_with_logits(model(inputs).squeeze(1), LABELS.double())
    loss.backward()
    for gradient, parameter in zip(gradients, model.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-13, atol=1e-15)

    with pytest.raises(ValueError, match=r"got \(6, 2\)"):
        TwoColumns(nn.Linear(3, 2, dtype=torch.float64))(inputs)
