"""Every metric gives on a GPU what it gives on the CPU, and answers there."""

import pytest
import torch

from toosure import metrics

if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

PAIRED = [
    "accuracy",
    "adaptive_ece",
    "aurc",
    "auroc_misclass",
    "auroc_ovr",
    "auroc_ovr_binned",
    "binary_entropy",
    "brier",
    "class_gap",
    "classwise_ece",
    "debiased_ece",
    "dece",
    "ece",
    "entropy",
    "kde_ece",
    "mce",
    "mmce",
    "nll",
    "nll_split",
    "reliability",
    "rmsce",
    "sece",
    "skce",
    "smece",
]


def rows(n=5000, classes=10):
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    return logits, torch.randint(classes, (n,), generator=generator)


def as_list(value):
    return [value] if isinstance(value, torch.Tensor) else list(value)


@pytest.mark.parametrize("name", PAIRED)
def test_same_as_on_the_cpu(name):
    logits, labels = rows()
    metric = getattr(metrics, name)
    here = as_list(metric(logits, labels))
    there = as_list(metric(logits.cuda(), labels.cuda()))
    for ours, expected in zip(there, here, strict=True):
        assert torch.allclose(ours.cpu(), expected, rtol=0, atol=1e-9, equal_nan=True)
    assert there[0].is_cuda


@pytest.mark.parametrize("name", ["dece", "kde_ece", "mmce", "sece", "skce"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_gradients(name, dtype):
    logits, labels = rows(200)
    gradients = []
    for device in ("cpu", "cuda"):
        z = logits.to(device, dtype, copy=True).requires_grad_()
        getattr(metrics, name)(z, labels.to(device)).backward()
        gradients.append(z.grad.double().cpu())
    tolerance = {torch.float16: 1e-4, torch.float32: 1e-5, torch.float64: 1e-10}[dtype]
    assert torch.allclose(*gradients, rtol=0, atol=tolerance)


def test_intervals_and_ood():
    logits, labels = rows()
    for metric in (metrics.ece, metrics.nll, metrics.aurc):
        here = metrics.confidence_interval(metric, logits, labels, samples=50)
        there = metrics.confidence_interval(metric, logits.cuda(), labels.cuda(), samples=50)
        for ours, expected in zip(there, here, strict=True):
            assert float(ours) == pytest.approx(float(expected), abs=1e-9)
    other = torch.randn(300, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for metric in (metrics.auroc_ood, metrics.fpr95_ood):
        assert float(metric(logits.cuda(), other.cuda())) == pytest.approx(
            float(metric(logits, other)), abs=1e-9
        )


def test_streaming():
    from toosure.metrics import streaming

    logits, labels = rows()
    for make, pure in ((streaming.ECE, metrics.ece), (streaming.NLL, metrics.nll)):
        metric = make().cuda()
        for part in torch.arange(5000).split(999):
            metric.update(logits[part].cuda(), labels[part].cuda())
        assert float(metric.compute()) == pytest.approx(float(pure(logits, labels)), abs=1e-9)
