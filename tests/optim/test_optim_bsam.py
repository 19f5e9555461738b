"""BSAM in a user's hands: unequal parts, half precision, no_grad, frozen and sparse weights."""

import io
import pickle

import pytest
import torch
import torch.nn.functional as F
from slow_optimizers import batches, make_mlp
from torch import nn

from toosure.optim import BSAM, SAM

NO_NOISE = {"data_size": 1e30, "prior_precision": 0.0}


def closures_of(model, parts):
    def closure(inputs, labels):
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        return loss

    return [lambda part=part: closure(*part) for part in parts]


def mean_of(closure, weight, steps=1, **settings):
    optimizer = BSAM([weight], **({"data_size": 100} | settings))
    for _ in range(steps):
        optimizer.step(closure)
    return optimizer


@pytest.mark.parametrize("count", [1, 3, 8, 9, 17, 23])
def test_parts_differ_by_at_most_one_example(count):
    optimizer = BSAM([nn.Parameter(torch.ones(1))], data_size=10)
    inputs, labels = torch.randn(count, 2), torch.arange(count)
    parts = optimizer.split(inputs, labels)
    assert len(parts) == min(8, count)
    assert {len(y) for _, y in parts} <= {count // len(parts), -(-count // len(parts))}
    assert torch.equal(torch.cat([y for _, y in parts]), labels)
    assert all(len(x) == len(y) for x, y in parts)


def test_unequal_parts_weighed_by_size_are_the_whole_batch():
    """Without noise and perturbation: the momentum is .1 of the whole batch's gradient."""
    model = make_mlp()
    inputs, labels = next(batches("mlp", size=9))
    expected = torch.autograd.grad(F.cross_entropy(model(inputs), labels), model.parameters())
    whole = F.cross_entropy(model(inputs), labels).item()
    optimizer = BSAM(model.parameters(), lr=0.0, rho=0.0, **NO_NOISE)
    parts = optimizer.split(inputs, labels)
    sizes = [len(y) for _, y in parts]
    assert len(set(sizes)) == 2
    loss = optimizer.step(closures_of(model, parts), weights=sizes)
    assert loss.item() == pytest.approx(whole, rel=1e-12)
    for p, g in zip(model.parameters(), expected, strict=True):
        assert torch.allclose(optimizer.state[p]["momentum"], 0.1 * g, atol=1e-14)


@pytest.mark.parametrize("weights", [[1], [1, 0], [1, -1], [1, float("nan")]])
def test_weights_are_a_positive_number_for_each_closure(weights):
    model = make_mlp()
    optimizer = SAM(model.parameters(), lr=0.1)
    parts = [next(batches("mlp"))] * 2
    with pytest.raises(ValueError, match="a positive number for each of 2"):
        optimizer.step(closures_of(model, parts), weights=weights)


@pytest.mark.parametrize("recording", [True, False])
def test_sampling_leaves_gradients_as_the_caller_has_them(recording):
    model = make_mlp()
    optimizer = BSAM(model.parameters(), data_size=10)
    with torch.set_grad_enabled(recording):
        with optimizer.sampled():
            assert torch.is_grad_enabled() == recording
            assert model(next(batches("mlp"))[0]).requires_grad == recording
        assert torch.is_grad_enabled() == recording


def test_frozen_weights_are_no_sample():
    model = make_mlp()
    model[0].weight.requires_grad_(False)
    before = [p.detach().clone() for p in model.parameters()]
    with BSAM(model.parameters(), data_size=10).sampled():
        same = [torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True)]
    assert same == [True, False, False, False]


def test_the_first_group_may_be_empty():
    """As weights with decay and without are told apart by a rule that no weight may fit."""
    weights = [nn.Parameter(torch.ones(2)) for _ in range(2)]
    for weight, groups in zip(weights, ([], [{"params": []}]), strict=True):
        optimizer = BSAM([*groups, {"params": [weight]}], lr=0.1, data_size=10)
        optimizer.step(linear_loss(weight))
    assert torch.equal(*weights)


def test_noise_of_a_step_is_drawn_where_the_weights_are(monkeypatch):
    """Drawn on the host, a step of ResNet-18 on a GPU would wait half a second for its noise."""
    generator = torch.Generator
    devices = []

    def note_device(device=None):
        devices.append(device)
        return generator(device or "cpu")

    monkeypatch.setattr(torch, "Generator", note_device)
    weight = nn.Parameter(torch.ones(2))
    mean_of(linear_loss(weight), weight)
    assert devices == [weight.device]


def linear_loss(weight):
    def closure():
        loss = (weight * torch.tensor([3.0, 0.25], dtype=weight.dtype)).sum()
        loss.backward()
        return loss

    return closure


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_learns_its_scale(dtype):
    """Of a linear loss the gradient is the same everywhere, so the scale is that of float64."""
    found = []
    for each in (dtype, torch.float64):
        weight = nn.Parameter(torch.zeros(2, dtype=each))
        optimizer = mean_of(linear_loss(weight), weight, steps=100, lr=0.0)
        found.append(optimizer.state[weight]["scale"])
    assert found[0].dtype == torch.float32
    assert (found[1] - 1).abs().min() > 0.01
    assert torch.allclose(found[0].double(), found[1], rtol=1e-5)


def test_half_precision_resumes_bit_equal():
    whole, half = (nn.Parameter(torch.zeros(2, dtype=torch.bfloat16)) for _ in range(2))
    mean_of(linear_loss(whole), whole, steps=20, lr=0.1)
    optimizer = mean_of(linear_loss(half), half, steps=10, lr=0.1)
    disk = io.BytesIO()
    torch.save(optimizer.state_dict(), disk)
    disk.seek(0)
    again = BSAM([half], lr=0.1, data_size=100)
    again.load_state_dict(torch.load(disk, weights_only=True))
    assert torch.equal(again.state[half]["scale"], optimizer.state[half]["scale"])
    for _ in range(10):
        again.step(linear_loss(half))
    assert torch.equal(whole, half)


def test_a_state_saved_in_half_precision_still_loads():
    weight = nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))
    optimizer = mean_of(linear_loss(weight), weight)
    state = optimizer.state_dict()
    state["state"][0] = {name: value.bfloat16() for name, value in state["state"][0].items()}
    optimizer.load_state_dict(state)
    assert optimizer.state[weight]["scale"].dtype == torch.float32
    optimizer.step(linear_loss(weight))


def test_a_pickle_keeps_the_number_of_parts():
    optimizer = BSAM([nn.Parameter(torch.ones(1))], data_size=10, sub_batches=3)
    assert pickle.loads(pickle.dumps(optimizer)).sub_batches == 3


def test_sparse_gradients_are_as_dense_ones():
    tables = [nn.Embedding(10, 4, sparse=sparse).double() for sparse in (True, False)]
    tables[1].load_state_dict(tables[0].state_dict())
    index, labels = torch.tensor([1, 3, 3, 7]), torch.tensor([0, 1, 2, 3])
    for table in tables:
        optimizer = BSAM(table.parameters(), lr=0.1, data_size=100)
        for _ in range(2):
            optimizer.step(closures_of(table, [(index, labels)]))
    assert torch.allclose(tables[0].weight, tables[1].weight, atol=1e-12)


def test_prediction_is_the_log_of_the_mean_softmax_of_samples():
    model = make_mlp()
    inputs, _ = next(batches("mlp"))
    optimizer = BSAM(model.parameters(), data_size=2, samples=3)
    found = optimizer.predict(model, inputs, generator=torch.Generator().manual_seed(1))

    generator = torch.Generator().manual_seed(1)
    each = []
    for _ in range(3):
        with optimizer.sampled(generator):
            each.append(model(inputs).detach().softmax(1))
    assert torch.allclose(found.exp(), torch.stack(each).mean(0), atol=1e-12)
    assert (each[0] - each[1]).abs().max() > 1e-3  # samples differ
    assert not found.requires_grad

    mean = model(inputs).detach().log_softmax(1)
    assert torch.equal(optimizer.predict(model, inputs, samples=0), mean)


def test_prediction_of_one_logit_per_example_is_of_two_classes():
    model, inputs = nn.Linear(3, 1).double(), torch.randn(5, 3, dtype=torch.float64)
    optimizer = BSAM(model.parameters(), data_size=2)
    with optimizer.sampled(torch.Generator().manual_seed(1)):
        wanted = model(inputs).detach().sigmoid()
    for samples, p in ((1, wanted), (0, model(inputs).detach().sigmoid())):
        generator = torch.Generator().manual_seed(1)
        found = optimizer.predict(model, inputs, samples, generator).exp()
        assert torch.allclose(found, torch.cat([1 - p, p], 1), atol=1e-12)


def test_examples_are_counted_data_factor_times():
    """Its only use is in data_size: the noise shrinks by its root, the prior by itself."""
    weight = nn.Parameter(torch.ones(1))
    counted = BSAM([weight], data_size=100, data_factor=4)
    assert counted.param_groups[0]["data_size"] == 400
    with counted.sampled(torch.Generator().manual_seed(0)):
        narrow = weight.item() - 1
    with BSAM([weight], data_size=100).sampled(torch.Generator().manual_seed(0)):
        wide = weight.item() - 1
    assert wide == pytest.approx(2 * narrow, rel=1e-5)


@pytest.mark.parametrize("wrong", [{"data_factor": 0.0}, {"samples": -1}, {"samples": 1.5}])
def test_wrong_counts_of_bsam_say_so(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=name):
        BSAM([nn.Parameter(torch.ones(1))], data_size=10, **wrong)
