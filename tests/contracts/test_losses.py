"""What every loss in the table must do; a new one is tested the moment it is listed."""

import copy
import inspect

import pytest
import torch
from torch import nn

from toosure.losses import LOSSES, CSAMLoss, Penalty
from toosure.words import find, parse
from toosure.words.tables import TABLES

EACH = pytest.mark.parametrize("name", LOSSES)


def rows(n=12, classes=5, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    return logits.to(dtype), torch.randint(classes, (n,), generator=generator)


def value_and_gradient(loss, logits, labels):
    z = logits.clone().requires_grad_()
    value = loss(z, labels)
    (gradient,) = torch.autograd.grad(value.sum(), z)
    return value.detach(), gradient


def test_the_table_and_the_words_agree():
    places = {name: f"toosure.losses:{kind.__name__}" for name, kind in LOSSES.items()}
    assert places | {"ce": "torch.nn:CrossEntropyLoss"} == TABLES["loss"]


@EACH
def test_a_word_builds_it(name):
    word = parse("loss", name)
    assert type(word.build()) is LOSSES[name] and str(word) == name
    assert find("loss", name).reference


@EACH
def test_its_gradient_is_its_slope(name):
    logits, labels = rows()
    still = {"skce": {"bandwidth": 0.5}, "acls": {"rest": 0.0, "margin": 1.0}}  # what is detached
    loss = LOSSES[name](**still.get(name, {}))
    assert torch.autograd.gradcheck(lambda z: loss(z, labels), (logits.requires_grad_(),))


@EACH
def test_reductions_agree(name):
    pair = rows()
    mean, total, each = (LOSSES[name](reduction=r)(*pair) for r in ("mean", "sum", "none"))
    assert each.shape == (12,) and mean.shape == total.shape == ()
    torch.testing.assert_close(mean, each.mean())
    torch.testing.assert_close(total, each.sum())

    # Of an empty batch as torch has it, and so of the penalty alone.
    empty = torch.zeros(0, 4), torch.zeros(0, dtype=torch.long)
    alone = [LOSSES[name](reduction="none").alone] if issubclass(LOSSES[name], Penalty) else []
    assert all(loss(*empty).shape == (0,) for loss in (LOSSES[name](reduction="none"), *alone))
    assert LOSSES[name](reduction="sum")(*empty) == 0
    assert LOSSES[name]()(*empty).isnan()


@EACH
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
@pytest.mark.parametrize("batch", ["mixed", "all right", "all wrong", "one class", "one row"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_finite_wherever_training_goes(name, batch, scale, dtype):
    if name == "ce" and dtype == torch.float16 and scale == 1e4:
        pytest.skip("torch's cross-entropy stays in float16, where 1e5 is infinite")
    logits, labels = rows(dtype=torch.float32)
    logits = scale * logits / logits.abs().max()
    labels = {
        "mixed": labels,
        "all right": logits.argmax(1),
        "all wrong": logits.argmin(1),
        "one class": torch.zeros_like(labels),
        "one row": labels,
    }[batch]
    if batch == "one row":
        logits, labels = logits[:1], labels[:1]
    value, gradient = value_and_gradient(LOSSES[name](), logits.to(dtype), labels)
    assert value.isfinite().all()
    large = name == "acls" and scale == 1e4  # its squares have slopes of 4e4 and more
    assert gradient.isfinite().all() or (large and dtype == torch.float16)
    assert gradient.dtype == dtype


@EACH
def test_saturated_rows_of_one_value(name):
    """Equal logits, and logits of +1e4 and -1e4 only."""
    labels = torch.tensor([0, 1, 2, 0])
    for logits in (
        torch.zeros(4, 3),
        torch.full((4, 3), -1e4),
        1e4 * (2 * torch.eye(3)[labels] - 1),
    ):
        for targets in (labels, (labels + 1) % 3):
            value, gradient = value_and_gradient(LOSSES[name](), logits, targets)
            assert value.isfinite() and gradient.isfinite().all()


@EACH
def test_half_precision_is_computed_in_float32(name):
    logits, labels = rows(dtype=torch.bfloat16)
    if name == "ce":
        pytest.skip("torch's way with half precision")
    half, wide = LOSSES[name]()(logits, labels), LOSSES[name]()(logits.float(), labels)
    assert half.dtype == torch.float32 and torch.equal(half, wide)


@EACH
def test_order_of_rows_does_not_matter(name):
    logits, labels = rows()
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    loss = LOSSES[name]()
    torch.testing.assert_close(loss(logits, labels), loss(logits[order], labels[order]))


@EACH
def test_learning_with_it_lowers_it(name):
    logits, labels = rows(64, 3)
    inputs, model = logits, nn.Linear(3, 3).double()
    loss = LOSSES[name]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    history = []
    for _ in range(100):
        value = loss(model(inputs), labels)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        history.append(float(value.detach()))
    assert min(history[50:]) < history[0]


@EACH
def test_it_composes_and_csam_weighs_it(name):
    logits, labels = rows()
    loss = LOSSES[name]()
    if isinstance(loss, Penalty):
        zero = LOSSES["focal"](2.0) + 0.5 * loss.alone
        wanted = LOSSES["focal"](2.0)(logits, labels) + 0.5 * loss.alone(logits, labels)
        torch.testing.assert_close(zero(logits, labels), wanted)
    both = LOSSES["brier"]() + 0.5 * loss if hasattr(loss, "each") else LOSSES["brier"]() + loss
    factor = 0.5 if hasattr(loss, "each") else 1.0
    wanted = LOSSES["brier"]()(logits, labels) + factor * loss(logits, labels)
    torch.testing.assert_close(both(logits, labels), wanted)
    found = CSAMLoss(copy.deepcopy(loss), gamma=1.0)(logits, labels)
    assert found <= loss(logits, labels) or name in ("entropy", "mse")


@EACH
def test_the_signature_spells_words(name):
    kind = LOSSES[name]
    hidden = {"size_average", "reduce", "weight"} if name == "ce" else set()
    for parameter in inspect.signature(kind).parameters.values():
        assert parameter.default is not parameter.empty
        if parameter.name not in hidden:
            assert parameter.name in find("loss", name).settings


def test_a_base_is_a_word_too():
    loss = parse("loss", "mdca:weight=0.5,base=(focal:gamma=1)").build()
    assert loss.weight == 0.5 and type(loss.base) is LOSSES["focal"] and loss.base.gamma == 1


@EACH
@pytest.mark.parametrize("bad", [torch.zeros(3), torch.zeros(4, 2, dtype=torch.long)])
def test_shapes_are_checked(name, bad):
    if name == "ce":
        pytest.skip("torch's own checks")
    with pytest.raises(ValueError, match="floating logits"):
        LOSSES[name]()(bad, torch.zeros(4, dtype=torch.long))
    with pytest.raises(ValueError, match=r"call .long"):
        LOSSES[name]()(torch.zeros(4, 2), torch.zeros(4))


@EACH
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_gives_the_same_and_a_graph_records_it(name):
    logits, labels = rows(dtype=torch.float32)
    loss = LOSSES[name]()
    wanted = value_and_gradient(loss, logits, labels)
    found = value_and_gradient(loss, logits.cuda(), labels.cuda())
    torch.testing.assert_close([v.cpu() for v in found], list(wanted), rtol=1e-4, atol=1e-5)


BINARY_LABELS = {
    "integers": lambda y: y,
    "floats": lambda y: y.double(),
    "booleans": lambda y: y.bool(),
    "a column": lambda y: y.float()[:, None],
}


@EACH
@pytest.mark.parametrize("kind", BINARY_LABELS)
def test_one_logit_per_example_is_two_columns(name, kind):
    if name == "ce":
        return  # torch's own, whose one column is one class
    z, labels = rows(classes=2)
    z = 3 * z[:, 1]
    given = BINARY_LABELS[kind](labels)
    for reduction in ("mean", "none"):
        loss = LOSSES[name](reduction=reduction)
        if isinstance(loss.one_column, str):
            with pytest.raises(ValueError, match="one logit per example"):
                loss(z, given)
            continue

        value, gradient = value_and_gradient(loss, torch.stack([0 * z, z], 1), labels)
        for logits in (z, z[:, None]):
            ours, slope = value_and_gradient(loss, logits, given)
            torch.testing.assert_close(ours, value, rtol=0, atol=1e-12)
            torch.testing.assert_close(slope.flatten(), gradient[:, 1], rtol=0, atol=1e-12)
