"""Speed of loading batches: images of CIFAR-10's size from memory, folders of JPEG files from disk.

    PYTHONPATH=src python3 benchmarks/data.py                                  (CPU)
    PYTHONPATH=src python3 benchmarks/data.py --device cuda --data-root DATA   (CIFAR-10 on a GPU)

1. An epoch of CIFAR-10 with crop (padding 4) and flip, batch 128, standardised, on the device:
   our batches, against torch's DataLoader over PIL images (pad, crop, flip, to tensor, standardise,
   one image at a time, as a user writes it without torchvision), with as many workers as cores.
2. Batches from a folder of JPEG files, crop and flip too: our stream, against the same DataLoader
   opening files; both with --workers processes (2). Files are read from the page cache.

Both take turns in one process; the figure is the ratio of their speeds, the median of the rounds.
Without --data-root the images in memory are random ones of CIFAR-10's size, --images of them.
"""

import argparse
import os
import random
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch
from PIL import Image, ImageOps
from torch.utils.data import DataLoader, Dataset

from toosure.data import Images, cifar10, imagefolder, make_dataset
from toosure.data.image_files import start_worker
from toosure.train import Runtime
from toosure.train.batches import Batches

BATCH = 128


class OneByOne(Dataset):
    """Images through PIL one at a time: open or wrap, resize, pad, crop, flip, standardise."""

    def __init__(self, sources, labels, size, mean, std):
        self.sources, self.labels, self.size = sources, labels, size
        self.mean, self.std = mean.cpu(), std.cpu()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, at):
        source = self.sources[at]
        if isinstance(source, str):
            with Image.open(source) as opened:
                image = ImageOps.fit(opened.convert("RGB"), (self.size,) * 2, Image.BILINEAR)
        else:
            image = Image.fromarray(source)

        image = ImageOps.expand(image, 4)
        left = random.randint(0, 8)
        top = random.randint(0, 8)
        image = image.crop((left, top, left + self.size, top + self.size))
        if random.random() < 0.5:
            image = ImageOps.mirror(image)

        x = torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
        return (x - self.mean) / self.std, self.labels[at]


def theirs(dataset, device, workers, steps):
    """Return the seconds per batch of the DataLoader, from the first to the last."""
    cuda = device.type == "cuda"
    loader = DataLoader(
        dataset,
        BATCH,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        pin_memory=cuda,
        persistent_workers=True,
        worker_init_fn=start_worker,
    )

    batches = iter(loader)
    next(batches)  # the workers are up
    finish(device)

    start = time.perf_counter()
    for done, (x, y) in enumerate(batches, 1):
        x.to(device, non_blocking=cuda), y.to(device, non_blocking=cuda)
        if done == steps:
            break
    finish(device)
    return (time.perf_counter() - start) / done


def ours(data, device, steps, seed):
    """Seconds a batch of ours takes, after the first."""
    batches = Batches(data, BATCH, seed)
    batches.draw(0)
    finish(device)
    start = time.perf_counter()
    for step in range(1, steps + 1):
        batches.draw(step)
    finish(device)
    seconds = time.perf_counter() - start
    batches.close()
    return seconds / steps


def finish(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def row(name, pairs, unit, scale):
    """Print the medians of both and of their ratio."""
    ratios = [slow / fast for fast, slow in pairs]
    fast, slow = (median(scale / each for each in side) for side in zip(*pairs, strict=True))
    spread = f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    print(
        f"| {name} | {fast:,.3g} {unit} | {slow:,.3g} {unit} | {spread} | {len(pairs)} |",
        flush=True,
    )


def memory(args, device):
    if args.data_root:
        data = cifar10(args.data_root, val=0, augment=True)
    else:
        x = torch.randint(0, 256, (args.images, 3, 32, 32), dtype=torch.uint8)
        y = torch.randint(0, 10, (args.images,))
        data = make_dataset(Images(x, y, x[:10], y[:10], tuple("0123456789")), augment=True)

    raw = ((data.train.x * data.std + data.mean) * 255).round().to(torch.uint8)
    slow = OneByOne(
        raw.permute(0, 2, 3, 1).contiguous().numpy(), data.train.y.tolist(), 32, data.mean, data.std
    )

    steps = len(data.train) // BATCH
    data = data.to(device)
    workers = min(16, len(os.sched_getaffinity(0)))

    pairs = []
    for number in range(args.rounds + 1):
        fast = ours(data, device, 4 * steps, number)
        pairs.append((fast, theirs(slow, device, workers, min(steps - 1, args.most))))

    which = "of CIFAR-10" if args.data_root else "of 32 x 32 at random"
    name = f"{len(data.train):,} images {which}, from memory; DataLoader with {workers} workers"
    row(name, pairs[1:], "epochs/s", 1 / steps)


def folder(args, device, shape, size, count):
    with tempfile.TemporaryDirectory() as path:
        generator = np.random.default_rng(0)
        for i in range(count):
            coarse = generator.integers(0, 256, (shape[1] // 8, shape[0] // 8, 3), np.uint8)
            image = Image.fromarray(coarse).resize(shape, Image.BICUBIC)
            place = Path(path, "train", str(i % 10), f"{i}.jpg")
            place.parent.mkdir(parents=True, exist_ok=True)
            image.save(place, quality=85)

        data = imagefolder(
            path,
            size,
            val=0,
            test=BATCH,
            augment=True,
            stream=True,
            watched=256,
            workers=args.workers,
        ).to(device)

        names = [os.fsdecode(name) for name in data.stream.x.names]
        slow = OneByOne(names, data.stream.y.tolist(), size, data.mean, data.std)
        steps = len(names) // BATCH - 1

        pairs = []
        for number in range(args.rounds + 1):
            fast = ours(data, device, steps, number)
            pairs.append((fast, theirs(slow, device, args.workers, steps)))

    name = f"JPEG files of {shape[0]} x {shape[1]}, read as {size} x {size}; {args.workers} workers"
    row(name, pairs[1:], "images/s", BATCH)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data-root", default=None)
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--files", type=int, default=3000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=int, default=100, help="batches of the slower one a round")
    args = parser.parse_args()
    device = Runtime(args.device).torch_device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"

    cores = len(os.sched_getaffinity(0))
    print(f"{name}, {cores} cores, torch {torch.__version__}, {torch.get_num_threads()} threads\n")

    print("| batches of 128 | ours | DataLoader with PIL | ours / theirs | rounds |")
    print("|---|---|---|---|---|")

    memory(args, device)
    folder(args, device, (64, 64), 64, args.files)
    folder(args, device, (500, 375), 64, args.files // 2)
    folder(args, device, (500, 375), 224, args.files // 2)


if __name__ == "__main__":
    main()
