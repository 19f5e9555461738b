"""Where a steered radius ends: a small training whose over-confidence grows as the rate falls.

    PYTHONPATH=src python3 benchmarks/control_lag.py --data-root DATA [--seed 0] [--steps 1600]

A network of three convolutions learns 2,000 CIFAR-10 images at half their size (51 epochs of batch
64, flips, rate 0.1 on a cosine schedule) by SAM. Every 16 steps the controller looks at 2,000 other
images. Per row: rho at the end, log T of the control split (mean of the last ten looks, and the
last) and by how much it grew at most, smoothed, since moves took one way; and of 4,000 test images
log T, accuracy, NLL and ECE. One thread; about two minutes per row.
"""

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toosure import metrics
from toosure.control import Radius, RadiusControl, log_temperature
from toosure.data import cifar10
from toosure.optim import SAM

CONTROL = 2000
EVERY = 16
BATCH = 64
RATE = 0.1
ARMS: dict[str, tuple[float, Radius | None]] = {
    "rho = 0.2": (0.2, None),
    "rho = 0.4": (0.4, None),
    "radius": (0.05, Radius(every=EVERY)),
    "radius:gain=1,final=1": (0.05, Radius(every=EVERY, gain=1.0, final=1.0)),
    "radius:final_band=0": (0.05, Radius(every=EVERY, final_band=0.0)),
    "radius:final_band=0,final=5": (0.05, Radius(every=EVERY, final_band=0.0, final=5.0)),
    "radius, from rho = 0.005": (0.005, Radius(every=EVERY)),
    "radius, from rho = 2": (2.0, Radius(every=EVERY)),
}


def network(width: int = 24) -> nn.Module:
    """Return three convolutions with BatchNorm, a mean over places and a linear layer."""
    layers: list[nn.Module] = []
    for inputs, outputs, stride in (
        (3, width, 1),
        (width, 2 * width, 2),
        (2 * width, 4 * width, 2),
    ):
        layers.append(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False))
        layers += [nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10))


def rate_at(step: int, steps: int) -> float:
    """Return the share of the learning rate: a short warm-up, then a cosine to 0."""
    warmup = 0.04 * steps
    cosine = 0.5 * (1 + math.cos(math.pi * max(0.0, step - warmup) / (steps - warmup)))
    return min(1.0, (step + 1) / warmup) * cosine


def flipped(images: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror half of the images."""
    mirror = torch.rand(len(images), generator=generator) < 0.5
    return torch.where(mirror[:, None, None, None], images.flip(3), images)


def train(
    data: tuple[Tensor, Tensor],
    rho: float,
    settings: Radius | None,
    steps: int,
    seed: int,
    path: Callable[[int], float] | None = None,
) -> tuple[nn.Module, SAM, RadiusControl, float]:
    """Train one arm; return the network, its optimizer, its controller, and the error's growth.

    With a `path`, rho is what it says of each step, and the controller is not asked.
    """
    x, y = (part[CONTROL:] for part in data)
    control_split = tuple(part[:CONTROL] for part in data)
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = network()
    optimizer = SAM(model.parameters(), rho=rho, lr=RATE, momentum=0.9, weight_decay=5e-4)
    criterion = nn.CrossEntropyLoss()

    # Without settings the controller only looks: its rate limit lets nothing move.
    watching = Radius(every=EVERY, rate=1 + 1e-12)
    control = RadiusControl(model, optimizer, control_split, steps, settings or watching)

    grown = -math.inf
    order = torch.empty(0, dtype=torch.int64)
    for step in range(steps):
        if len(order) < BATCH:
            order = torch.randperm(len(y), generator=generator)
        rows, order = order[:BATCH], order[BATCH:]
        inputs = flipped(x[rows], generator)
        labels = y[rows]

        def closure(inputs: Tensor = inputs, labels: Tensor = labels) -> Tensor:
            loss = criterion(model(inputs), labels)
            loss.backward()
            return loss

        for group in optimizer.param_groups:
            group["lr"] = RATE * rate_at(step, steps)
            if path is not None:
                group["rho"] = path(step)
        optimizer.step(closure)
        if path is None and control.step():
            grown = max(grown, control.integrator.direction.grown)  # a NaN is never larger
    return model, optimizer, control, grown


def images(root: Path) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return 4,000 training images, the control split first, and 4,000 test images, halved."""
    data = cifar10(root=root, train=4000, val=1000, test=4000)
    train, test = ((F.avg_pool2d(split.x, 2), split.y) for split in (data.train, data.test))
    return train, test


def logits_of(model: nn.Module, x: Tensor) -> Tensor:
    """Return the outputs in evaluation mode."""
    with torch.no_grad():
        return torch.cat([model.eval()(part) for part in x.split(500)])


def scores(logits: Tensor, labels: Tensor) -> tuple[float, float, float]:
    """Return accuracy in per cent, NLL, and ECE in points."""
    accuracy, nll, ece = (
        float(metric(logits, labels)) for metric in (metrics.accuracy, metrics.nll, metrics.ece)
    )
    return 100 * accuracy, nll, 100 * ece


def main() -> None:
    """Train every arm and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-root", type=Path, default=Path("data"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1600)
    options = parser.parse_args()

    torch.set_num_threads(1)
    train_split, (test_x, test_y) = images(options.data_root)
    print(
        "| arm | rho | log T, last ten looks | last | growth "
        "| test log T | accuracy % | NLL | ECE |"
    )
    print("|---|---|---|---|---|---|---|---|---|")

    for name, (rho, settings) in ARMS.items():
        model, optimizer, control, grown = train(
            train_split, rho, settings, options.steps, options.seed
        )
        logits = logits_of(model, test_x)
        test = log_temperature(logits, test_y)
        accuracy, nll, ece = scores(logits, test_y)
        looks = [look.get("control/log_temperature", math.nan) for look in control.looks]
        radius = float(optimizer.param_groups[0]["rho"])
        print(
            f"| `{name}` | {radius:.3f} | {fmean(looks[-10:]):+.3f} "
            f"| {looks[-1]:+.3f} | {grown:+.3f} | {test.value:+.3f} ± {test.standard_error:.3f} "
            f"| {accuracy:.2f} | {nll:.4f} | {ece:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
