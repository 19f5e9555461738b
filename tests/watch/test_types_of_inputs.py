"""Inputs of another type than the weights, as float64 of NumPy, are converted for the watch."""

import pytest
import torch
from torch import nn

import toosure
from toosure import Watch
from toosure.batches.inputs import as_type

TYPES = (torch.float64, torch.float16, torch.bfloat16)
MEASURES = ("none", "certificate", "critical_sharpness", "gni", "sam_theory", "temperature", "best")


def watched(x, outputs, measure):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, outputs))
    loss = nn.BCEWithLogitsLoss() if outputs == 1 else nn.CrossEntropyLoss()
    data = x, torch.arange(len(x)) % 2
    row = Watch(model, loss, data, data, measure=measure).last
    return {key: value for key, value in row.items() if "seconds" not in key}


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("measure", MEASURES)
def test_what_is_measured_is_that_of_converted_inputs(measure, outputs):
    x = torch.randn(24, 4, generator=torch.Generator().manual_seed(1))
    for dtype in TYPES:
        given = x.to(dtype)
        assert watched(given, outputs, measure) == watched(given.float(), outputs, measure)


def test_calibrate_takes_what_a_watch_takes():
    model = nn.Linear(4, 3)
    x, y = torch.randn(60, 4), torch.arange(60) % 3
    both = [toosure.calibrate(model, (each, y), "vector") for each in (x, x.double())]
    assert both[0](x).equal(both[1](x))


def test_labels_may_be_a_list():
    x, y = torch.randn(24, 4), torch.arange(24) % 3
    model = nn.Linear(4, 3)
    listed = Watch.of(model, (x, y.tolist()), measure="none").measure()
    assert listed["train/nll"] == Watch.of(model, (x, y), measure="none").measure()["train/nll"]
    with pytest.raises(ValueError, match="the labels of train cannot become a tensor"):
        Watch.of(model, (x, ["cat"] * 24))


def test_weights_of_half_precision():
    x = torch.randn(24, 4)
    model = nn.Linear(4, 3).to(torch.bfloat16)
    row = Watch(model, nn.CrossEntropyLoss(), (x, torch.arange(24) % 3), measure="none").last
    logits = model(x.to(torch.bfloat16)).detach().float()
    expected = nn.functional.cross_entropy(logits, torch.arange(24) % 3)
    assert row["train/nll"] == pytest.approx(float(expected), rel=1e-5)


def test_inputs_are_not_cut_to_the_whole_numbers_of_quantized_weights():
    x = torch.tensor([0.5, 0.25])
    assert as_type(x, torch.uint8).equal(x)
