"""Compiled models: BatchNorm still moves once a step, or there is an error, never silence."""

import pytest
import torch
import torch.nn.functional as F
from slow_optimizers import batches, largest_difference, make_cnn, train
from torch import nn

from toosure.optim import SAM


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()  # tests after this one compile nothing


def test_compiled_model_by_name_equals_eager():
    model, twin = make_cnn(), make_cnn()
    compiled = torch.compile(model, backend="aot_eager")
    train(compiled, SAM(model.parameters(), rho=0.1, lr=0.1, model=model), F.cross_entropy, data())
    train(twin, SAM(twin.parameters(), rho=0.1, lr=0.1), F.cross_entropy, data())
    assert model[1].num_batches_tracked == 6
    assert largest_difference(model, twin) < 1e-12
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.filterwarnings("ignore:Using `torch.compile")
def test_compiled_module_is_seen_through():
    model, twin = make_cnn(), make_cnn()
    compiled = torch.compile(model, backend="aot_eager")
    train(compiled, SAM(model.parameters(), rho=0.1, lr=0.1), F.cross_entropy, data())
    train(twin, SAM(twin.parameters(), rho=0.1, lr=0.1), F.cross_entropy, data())
    assert largest_difference(model, twin) < 1e-12
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2


class Written(nn.Module):
    """A forward of our own, which torch.compile traces whole."""

    def __init__(self):
        super().__init__()
        self.inner = make_cnn()

    def forward(self, inputs):
        return self.inner(inputs) * 1.0


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("how", ["function", "in place", "in place, Sequential"])
def test_hidden_modules_are_an_error(how, warm):
    model = make_cnn() if "Sequential" in how else Written()
    if how == "function":
        forward = torch.compile(lambda inputs: model(inputs) * 1.0, backend="aot_eager")
    else:
        model.compile(backend="aot_eager")
        forward = model
    if warm:
        forward(next(data())[0])
    norm = next(m for m in model.modules() if isinstance(m, nn.BatchNorm2d))
    with pytest.raises(ValueError, match="model=your_model"):
        train(forward, SAM(model.parameters(), lr=0.1), F.cross_entropy, data())
    assert norm.num_batches_tracked == 1 + warm  # the first pass of the first step
    train(forward, SAM(model.parameters(), lr=0.1, model=model), F.cross_entropy, data())
    assert norm.num_batches_tracked == 7 + warm


def test_raw_tensors_beside_compiled_code_are_no_error():
    torch.compile(lambda x: x + 1, backend="aot_eager")(torch.ones(2))
    weight = torch.nn.Parameter(torch.ones(3))

    def closure():
        loss = (weight**2).sum()
        loss.backward()
        return loss

    SAM([weight], lr=0.1).step(closure)


def data(steps=6):
    return batches("cnn", steps)
