"""What other libraries answer on inputs where they are known to go wrong; run by .peers' python.

`python peer_defects.py` prints one JSON object. The inputs are functions here, so that the tests
give the very same ones to our own metrics.
"""

import contextlib
import functools
import json
import sys
import types
from pathlib import Path

import numpy as np


def overconfident(n=2000, classes=5, seed=0):
    """Logits about twice too large for their labels."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, classes)) * 2
    noise = rng.gumbel(size=(n, classes))
    return 2 * logits, (logits + noise).argmax(1)


def two_labels(n=200, classes=5, seed=0):
    """A multiclass batch that holds only two of its labels."""
    logits, labels = overconfident(n, classes, seed)
    return logits, labels % 2


def tied(n=30):
    """Thirty rows of one confidence, half of them right: sorted by hit, and by turns."""
    return np.full(n, 0.75), np.arange(n) < n // 2, np.arange(n) % 2 == 0


def crowded(n=1000, seed=0):
    """Confidences that crowd near 1, with their hits."""
    rng = np.random.default_rng(seed)
    confidence = 1 - 0.5 * rng.random(n) ** 6
    return confidence, rng.random(n) < confidence - 0.1


def softmax(logits):
    exp = np.exp(logits - logits.max(1, keepdims=True))
    return exp / exp.sum(1, keepdims=True)


def netcal_temperature():
    """Fit float32 and float64 probabilities; return the largest change each makes."""
    from netcal.scaling import TemperatureScaling

    logits, labels = overconfident()
    moved = {}
    for dtype in (np.float32, np.float64):
        probs = softmax(logits).astype(dtype)
        fitted = TemperatureScaling().fit(probs, labels).transform(probs)
        moved[np.dtype(dtype).name] = float(np.abs(fitted - probs).max())
    return moved


def netcal_two_labels():
    from netcal.metrics import ECE

    logits, labels = two_labels()
    return float(ECE(15).measure(softmax(logits), labels))


def netcal_mmce_gradient():
    import torch
    from netcal.regularization import MMCEPenalty

    logits = torch.tensor([[60.0, 0.0], [0.0, 60.0]], requires_grad=True)
    MMCEPenalty()(logits, torch.tensor([0, 1])).backward()
    return bool(logits.grad.isnan().any())


def relplot_smece():
    import relplot

    confidence, correct = crowded()
    return float(relplot.smECE(confidence, correct.astype(float)))


def mapie_bins():
    """Return MAPIE's ECE with 15 uniform bins, and with 'array split' before and after sorting."""
    from mapie.metrics.calibration import expected_calibration_error

    rng = np.random.default_rng(0)
    confidence, correct = two_bins()
    mixed = rng.permutation(len(confidence))
    order = np.argsort(confidence)
    split = {"num_bins": 15, "split_strategy": "array split"}
    hits = correct.astype(int)
    return {
        "uniform": expected_calibration_error(hits, confidence, 15, "uniform"),
        "mixed": expected_calibration_error(hits[mixed], confidence[mixed], **split),
        "sorted": expected_calibration_error(hits[order], confidence[order], **split),
    }


def calibration_width():
    """Return interval widths for alpha = .1 (meant: 90 %) and alpha = 10 (a percentage)."""
    import calibration

    logits, labels = overconfident(500)
    probs, widths = softmax(logits), {}
    for alpha in (0.1, 10.0):
        np.random.seed(0)  # noqa: NPY002
        low, _, high = calibration.get_calibration_error_uncertainties(
            probs, labels, p=1, alpha=alpha, mode="top-label"
        )
        widths[str(alpha)] = float(high - low)
    return widths


def calibration_debiased():
    """Return the debiased errors, norm 2 in closed form and norm 1 by resampling."""
    from calibration.utils import normal_debiased_ce, unbiased_l2_ce

    confidence, correct = two_bins()
    data = np.stack([confidence, correct], 1)
    halves = [[tuple(row) for row in data[half]] for half in (confidence <= 0.5, confidence > 0.5)]
    np.random.seed(0)  # noqa: NPY002
    return {
        "l2": float(unbiased_l2_ce(halves)),
        "l1": float(normal_debiased_ce(halves, power=1, resamples=20000)),
    }


def two_bins(n=400, seed=0):
    """Confidences spread over [0, 1], too low below 1/4 and too high above."""
    rng = np.random.default_rng(seed)
    confidence = rng.random(n)
    return confidence, rng.random(n) < 0.8 * confidence + 0.05


@functools.cache
def uncertainty_calibration():
    """Load torch-uncertainty's metrics past its package, which wants Lightning and torchvision."""
    import importlib.util

    place = "torch_uncertainty.metrics.classification.calibration."
    root = Path(importlib.util.find_spec("torch_uncertainty").submodule_search_locations[0])
    for name in ("", ".metrics", ".metrics.classification", ".metrics.classification.calibration"):
        package = types.ModuleType("torch_uncertainty" + name)
        package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules["torch_uncertainty" + name] = package
    return (
        importlib.import_module(place + "adaptive_calibration_error"),
        importlib.import_module(place + "smooth_calibration_error"),
    )


def uncertainty_adaptive():
    import torch

    adaptive, _ = uncertainty_calibration()
    confidence, sorted_, by_turns = tied()
    errors = [
        float(adaptive._ace_compute(torch.tensor(confidence), torch.tensor(hits).double(), 15))
        for hits in (sorted_, by_turns)
    ]
    few = adaptive._ace_compute(torch.tensor([0.9, 0.8]), torch.tensor([1.0, 0.0]), 15)
    return {"sorted": errors[0], "by_turns": errors[1], "few": str(float(few))}


def uncertainty_smooth():
    import torch

    _, smooth = uncertainty_calibration()
    confidence, _ = crowded()
    probs = torch.tensor(np.stack([confidence, 1 - confidence], 1))
    metric = smooth.SmoothCalibrationError(kernel_type="reflected")
    metric.update(probs, torch.zeros(len(probs), dtype=torch.long))
    return float(metric.compute())


QUESTIONS = (
    netcal_temperature,
    netcal_two_labels,
    netcal_mmce_gradient,
    relplot_smece,
    mapie_bins,
    calibration_width,
    calibration_debiased,
    uncertainty_adaptive,
    uncertainty_smooth,
)


def ask_all():
    answers = {}
    for question in QUESTIONS:
        try:
            with contextlib.redirect_stdout(sys.stderr):
                answers[question.__name__] = question()
        except Exception as error:
            answers[question.__name__] = f"{type(error).__name__}: {error}"
    return answers


if __name__ == "__main__":
    print(json.dumps(ask_all()))
