"""Shifts on a GPU: the images of the CPU where nothing is drawn, alike where it is; and fast."""

import time

import pytest
import torch

from toosure.data import CORRUPTIONS, Dataset, Split, corrupt
from toosure.models import resnet18
from toosure.shifts.judge import judge_shifts
from toosure.shifts.plan import FIFTEEN, ShiftPlan
from toosure.watch.split import logits_of

if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

DRAWN = {
    *("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "glass_blur"),
    *("motion_blur", "snow", "frost", "fog", "elastic_transform"),
}
SECONDS = 30.0  # for 75 sets of 10,000 images and a ResNet-18


def pictures(count):
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(count, 3, 6, 6, generator=generator)
    large = torch.nn.functional.interpolate(coarse, size=(32, 32), mode="bicubic")
    return (large.clamp(0, 1) * 255).round().byte()


@pytest.mark.parametrize("severity", [1, 3, 5])
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_images_are_those_of_the_cpu(name, severity):
    x = pictures(600)
    here = corrupt(x, name, severity)
    there = corrupt(x.cuda(), name, severity)
    assert there.device.type == "cuda" and there.dtype == torch.uint8
    assert torch.equal(there, corrupt(x.cuda(), name, severity))

    if name not in DRAWN:
        off = (there.cpu().int() - here.int()).abs()
        assert off.float().mean() < 0.01 and (off > 1).float().mean() < 1e-3
        return
    # Other draws of the same distribution: as far from the clean images, on average.
    far = [(each.float() - x.float()).square().mean() for each in (here, there.cpu())]
    assert float(far[1] / far[0]) == pytest.approx(1, abs=0.1)


def test_a_whole_judgement_is_fast_enough():
    """75 sets of 10,000 images, generated and predicted; prints what each part takes."""
    images = pictures(10_000).cuda()
    x = images.float() / 255
    labels = torch.randint(0, 10, (10_000,), device="cuda")
    split = Split(x, labels, labels, torch.arange(10_000, device="cuda"))
    zero = torch.zeros(3, 1, 1, device="cuda")
    data = Dataset(split, None, split, tuple("0123456789"), zero, zero + 1)
    network = resnet18(inputs=(3, 32, 32), classes=10).cuda().eval()
    network = network.to(memory_format=torch.channels_last)
    logits_of(network, x[:1024])  # the first pass chooses algorithms

    torch.cuda.synchronize()
    began = time.perf_counter()
    for name in FIFTEEN:
        for severity in range(1, 6):
            corrupt(images, name, severity)
    torch.cuda.synchronize()
    making = time.perf_counter() - began

    record = judge_shifts(lambda each: logits_of(network, each), data, ShiftPlan())
    per_image = 1e6 * making / 750_000
    print(f"\nimages {making:.2f} s ({per_image:.1f} us each), all {record.seconds:.2f} s")
    assert len(record.cells) == 75 and record.images == 10_000
    assert record.seconds < SECONDS
