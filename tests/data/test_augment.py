"""Batched crops and flips equal the obvious loop over images."""

import pytest
import torch
from torch.nn import functional as F

from toosure.data import crop_and_flip, make_dataset
from toosure.data.augment import copy_windows, gather_pixels
from toosure.data.dataset import Images


def one_by_one(x: torch.Tensor, generator: torch.Generator, padding: int) -> torch.Tensor:
    """Cut and mirror each image by hand with the same draws."""
    count, _, height, width = x.shape
    places = torch.randint(0, 2 * padding + 1, (2, count), generator=generator)
    mirrored = torch.randint(0, 2, (count, 1), generator=generator)
    padded, out = F.pad(x, (padding,) * 4), []
    for image, down, right, mirror in zip(padded, *places.tolist(), mirrored, strict=True):
        window = image[:, down : down + height, right : right + width]
        out.append(window.flip(2) if mirror else window)
    return torch.stack(out)


def test_the_batch_equals_the_loop():
    x = torch.randn(40, 3, 9, 7, generator=torch.Generator().manual_seed(0))
    for padding in (0, 1, 4):
        fast = crop_and_flip(x, torch.Generator().manual_seed(5), padding)
        slow = one_by_one(x, torch.Generator().manual_seed(5), padding)
        assert torch.equal(fast, slow)


def test_the_gather_of_a_gpu_equals_the_copies_of_a_cpu():
    x = torch.randint(0, 256, (12, 3, 9, 7), generator=torch.Generator().manual_seed(0))
    down, right, mirror = [0, 1, 2, 3, 4, 8] * 2, [5, 4, 3, 2, 1, 0] * 2, [True, False] * 6
    padded = F.pad(x, (4, 4, 4, 4))
    rows = torch.arange(9) + torch.tensor(down)[:, None]
    columns = torch.stack([torch.arange(7).flip(0) if m else torch.arange(7) for m in mirror])
    gathered = gather_pixels(padded, rows, columns + torch.tensor(right)[:, None])
    assert torch.equal(copy_windows(padded, down, right, mirror, 9, 7), gathered)


def test_all_shifts_occur_and_half_are_mirrored():
    ramp = torch.arange(1.0, 65).view(1, 1, 8, 8).expand(20_000, 1, 8, 8)
    out = crop_and_flip(ramp, torch.Generator().manual_seed(0), padding=1)
    mirrored = (out[:, 0, 4, 3] > out[:, 0, 4, 4]).float().mean()
    assert abs(mirrored - 0.5) < 5 * 0.5 / 20_000**0.5
    came_from = ((out[:, 0, 3, 4] - 1) // 8).int()  # the source row of what lies in row 3
    assert came_from.bincount()[2:].sub(20_000 / 3).abs().max() < 5 * (20_000 * 2 / 9) ** 0.5
    assert set(came_from.tolist()) == {2, 3, 4}
    assert torch.equal(crop_and_flip(ramp[:9], padding=0, flip=False), ramp[:9])


def test_the_border_is_black_in_the_original_pixels():
    x = torch.full((6, 2, 8, 8), 100, dtype=torch.uint8)
    x[:, :, ::2] = 50
    x[3:, 1] = 20
    images = Images(x, torch.zeros(6, dtype=torch.int64), x, torch.zeros(6).long(), ("a", "b"))
    for standardise in ("channel", "global"):
        data = make_dataset(images, standardise=standardise, augment=True)
        out = data.augmented(data.train.x, torch.Generator().manual_seed(0))
        shown = (out * data.std + data.mean) * 255
        raw = (data.train.x * data.std + data.mean) * 255
        expected = crop_and_flip(raw, torch.Generator().manual_seed(0))
        torch.testing.assert_close(shown, expected, rtol=0, atol=1e-3)
        assert (expected == 0).any()


def test_digits_are_cropped_and_not_mirrored():
    x = torch.arange(64, dtype=torch.uint8).view(1, 1, 8, 8).repeat(50, 1, 1, 1)
    y = torch.arange(50) % 2
    data = make_dataset(Images(x, y, x, y, ("a", "b"), mirror=False), augment=True)
    for batch in (data.train.x, x):  # as it lies in memory, and as it comes from disk
        out = data.augmented(batch, torch.Generator().manual_seed(0))
        shown = ((out * data.std + data.mean) * 255).round()
        step = shown[..., 1:] - shown[..., :-1]
        inside = (shown[..., 1:] > 0) & (shown[..., :-1] > 0)
        assert (step[inside] == 1).all() and not torch.equal(shown, x.float())


def test_no_augmentation_unless_asked():
    x = torch.zeros(4, 1, 2, 2, dtype=torch.uint8)
    y = torch.tensor([0, 1, 0, 1])
    data = make_dataset(Images(x, y, x, y, ("a", "b")))
    assert data.augmented(data.train.x) is data.train.x


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_nothing_waits_for_the_host():
    x = torch.rand(64, 3, 32, 32, device="cuda")
    generator = torch.Generator("cuda").manual_seed(0)
    crop_and_flip(x, generator)
    torch.cuda.set_sync_debug_mode("error")
    try:
        out = crop_and_flip(x, generator)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert out.shape == x.shape
