"""Random crops and flips of a whole batch at once, on the batch's own device."""

import torch
from torch import Tensor
from torch.nn import functional as F


def crop_and_flip(
    x: Tensor, generator: torch.Generator | None = None, padding: int = 4, flip: bool = True
) -> Tensor:
    """Shift each image by up to `padding` pixels, filling with zeros, and mirror half of them.

    This equals padding each image on all sides and cutting out a window at a random place. On a GPU
    one gather serves the whole batch, and nothing waits for the host. The generator must live on
    the device of `x`.
    Reference: He et al. (2016), Deep Residual Learning, Sec. 4.2, arXiv 1512.03385.

    >>> generator = torch.Generator().manual_seed(0)
    >>> crop_and_flip(torch.ones(2, 3, 32, 32), generator).shape
    torch.Size([2, 3, 32, 32])
    """
    count, _, height, width = x.shape
    offsets = torch.randint(0, 2 * padding + 1, (2, count), generator=generator, device=x.device)
    # Flips are always drawn, so that `flip` does not change the crops.
    mirror = torch.randint(0, 2, (count, 1), generator=generator, device=x.device).bool() & flip
    padded = F.pad(x, (padding,) * 4)

    if x.device.type == "cpu":
        top, left = offsets.tolist()
        return copy_windows(padded, top, left, mirror.flatten().tolist(), height, width)

    down, right = offsets[..., None]  # (N, 1) each
    columns = torch.arange(width, device=x.device)
    columns = torch.where(mirror, columns.flip(0), columns) + right  # (N, W)
    rows = torch.arange(height, device=x.device) + down  # (N, H)
    return gather_pixels(padded, rows, columns)


def copy_windows(
    padded: Tensor, down: list[int], right: list[int], mirror: list[bool], height: int, width: int
) -> Tensor:
    """Copy the window of each image in turn: on a CPU this is faster than a gather."""
    out = padded.new_empty(len(padded), padded.shape[1], height, width)
    for target, image, top, left, flip in zip(out, padded, down, right, mirror, strict=True):
        window = image[:, top : top + height, left : left + width]
        target.copy_(window.flip(2) if flip else window)
    return out


def gather_pixels(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Take pixel (rows[n, i], columns[n, j]) of every channel of image n."""
    image = torch.arange(len(images), device=images.device)[:, None, None, None]
    channel = torch.arange(images.shape[1], device=images.device)[:, None, None]
    return images[image, channel, rows[:, None, :, None], columns[:, None, None, :]]
