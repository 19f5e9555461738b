"""A calibrated model where it serves, and the data that it is fitted on."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
import torch
from torch import nn

from toosure.posthoc import Calibrated, Identity, calibrate
from waiting import LIMIT


class Waiting(nn.Module):
    """Dropout that a test can hold up: it says when it is reached, and waits to go on."""

    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, x, reached, go_on):
        reached.set()
        assert go_on.wait(LIMIT)
        return self.dropout(x)


def test_threads_share_the_evaluation_mode_of_a_model_left_in_training():
    """The first that left put the model back into training while the second was in it."""
    model = Waiting()
    served = Calibrated(model, Identity())
    inputs = torch.ones(50, 3)
    events = [(Event(), Event()) for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        calls = []
        for reached, go_on in events:
            calls.append(threads.submit(served, inputs, reached, go_on))
            assert reached.wait(LIMIT)
        for call, (_, go_on) in zip(calls, events, strict=True):
            go_on.set()
            assert torch.equal(call.result(LIMIT), inputs)
    assert model.training and model.dropout.training


def test_one_thread_compiles_it_whole():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    served = Calibrated(model, Identity())
    inputs = torch.ones(5, 3)
    compiled = torch.compile(served, backend="eager", fullgraph=True)
    assert torch.equal(compiled(inputs), served(inputs)) and model.training


class Named(nn.Module):
    def forward(self, x):
        return 3 * x


@pytest.mark.parametrize("kind", ["pairs", "with a weight", "dicts"])
def test_a_list_of_examples_is_fitted_as_a_watch_takes_it(kind):
    torch.manual_seed(0)
    x, y = torch.randn(60, 3), torch.arange(60) % 3
    rows = {
        "pairs": [(x[i], int(y[i])) for i in range(60)],
        "with a weight": [(x[i], y[i], 0.5) for i in range(60)],
        "dicts": [{"x": x[i], "labels": y[i]} for i in range(60)],
    }[kind]
    whole = calibrate(Named(), (x, y), "temperature").calibrator
    assert calibrate(Named(), rows, "temperature").calibrator.temperature == whole.temperature
    batches = [(x[:20], y[:20]), (x[20:], y[20:])]
    assert calibrate(Named(), batches, "temperature").calibrator.temperature == whole.temperature
