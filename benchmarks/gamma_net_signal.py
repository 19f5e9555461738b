"""Signal-to-noise of gamma-net's meta-gradient, by outer loss and size of the meta batch.

    PYTHONPATH=src python benchmarks/gamma_net_signal.py --data-root DATA      (CIFAR-10; minutes)

A small convolutional network is made under-confident with focal loss, gamma 4, and then held
fixed. Each of `--draws` times a training batch and a meta batch are drawn, and the slopes of the
outer loss in the gammas of the batch are added up. Gammas should fall, so the right sign is
positive. Signal-to-noise is |mean| / standard deviation over the draws.
"""

import argparse
import os
from statistics import mean, stdev

import torch
from torch import Tensor, nn

from toosure.data import cifar10
from toosure.losses import DECELoss, FocalLoss, SECELoss
from toosure.metrics import top_label
from toosure.objectives.virtual_step import virtual_step

GAMMA = 4.0
RATE = 0.1
MORE = {"leave_one_out": True, "detach": True}
CASES: list[tuple[str, dict[str, object], int]] = [
    ("SECE .001 as coded", {"bandwidth": 0.001}, 128),
    ("SECE .01 as coded", {"bandwidth": 0.01}, 128),
    ("SECE .03 as coded", {"bandwidth": 0.03}, 128),
    ("SECE .1 as coded", {"bandwidth": 0.1}, 128),
    ("SECE .01 as coded", {"bandwidth": 0.01}, 1024),
    ("SECE .01, detached", {"bandwidth": 0.01, "detach": True}, 128),
    ("SECE .01, detached", {"bandwidth": 0.01, "detach": True}, 1024),
    ("SECE auto, detached, leave-one-out", {"bandwidth": "auto", **MORE}, 128),
    ("SECE auto, detached, leave-one-out", {"bandwidth": "auto", **MORE}, 512),
    ("the same, form gap", {"bandwidth": "auto", "form": "gap", **MORE}, 128),
    ("the same, form gap", {"bandwidth": "auto", "form": "gap", **MORE}, 512),
    ("form unbiased, auto, detached", {"bandwidth": "auto", "form": "unbiased", **MORE}, 512),
]


def small_net(width: int = 32) -> nn.Sequential:
    """Return three convolutions of stride 2, the mean over the image, and a head."""

    def block(inputs: int, outputs: int) -> list[nn.Module]:
        conv = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1)
        return [conv, nn.BatchNorm2d(outputs), nn.ReLU()]

    layers = [*block(3, width), *block(width, 2 * width), *block(2 * width, 2 * width)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 10))


def train(model: nn.Module, x: Tensor, y: Tensor, epochs: int) -> None:
    """Train with focal loss of a large gamma, which leaves the network under-confident."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    loss = FocalLoss(GAMMA)
    for _ in range(epochs):
        for places in torch.randperm(len(x)).split(128):
            optimizer.zero_grad()
            loss(model(x[places]), y[places]).backward()
            optimizer.step()
        schedule.step()


def features_of(model: nn.Sequential, x: Tensor) -> Tensor:
    model.eval()
    with torch.no_grad():
        return torch.cat([model[:-1](part) for part in x.split(500)])


def summed_slope(
    outer: nn.Module, head: nn.Linear, batch: tuple[Tensor, Tensor], meta: tuple[Tensor, Tensor]
) -> float:
    """Return the sum over the batch of d outer / d gamma_i after a virtual step of the head."""
    features, labels = batch
    gammas = torch.full((len(labels),), GAMMA, requires_grad=True)
    inner = FocalLoss(GAMMA)
    inner.gamma = gammas

    weights = [p.detach().requires_grad_() for p in head.parameters()]
    moved = virtual_step(inner(nn.functional.linear(features, *weights), labels), weights, RATE)
    value = outer(nn.functional.linear(meta[0], *moved), meta[1])
    (slopes,) = torch.autograd.grad(value, gammas)
    return float(slopes.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-root", default="data")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--draws", type=int, default=300)
    arguments = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    torch.manual_seed(0)

    data = cifar10(root=arguments.data_root, train=10_000, val=5000)
    model = small_net()
    train(model, data.train.x, data.train.y, arguments.epochs)
    own = features_of(model, data.train.x), data.train.y
    held = features_of(model, data.val.x), data.val.y
    head = model[-1]
    confidence, correct = top_label(head(held[0]).detach(), held[1])
    gap = 100 * float(correct.double().mean() - confidence.mean())
    print(f"under-confident by {gap:.1f} points, accuracy {100 * correct.double().mean():.1f} %\n")

    print("| outer loss | meta batch | signal / noise a step | right sign | draws |")
    print("|---|---|---|---|---|")
    cases: list[tuple[str, nn.Module, int]] = [
        (name, SECELoss(**options).alone, size) for name, options, size in CASES
    ]
    cases.append(("DECE", DECELoss().alone, 128))
    for name, outer, size in cases:
        slopes = []
        generator = torch.Generator().manual_seed(1)
        for _ in range(arguments.draws):
            i = torch.randint(len(own[1]), (128,), generator=generator)
            j = torch.randint(len(held[1]), (size,), generator=generator)
            pair = (own[0][i], own[1][i]), (held[0][j], held[1][j])
            slopes.append(summed_slope(outer, head, *pair))
        ratio = abs(mean(slopes)) / stdev(slopes)
        right = mean(slope > 0 for slope in slopes)
        print(f"| {name} | {size} | {ratio:.2f} | {right:.0%} | {len(slopes)} |", flush=True)


if __name__ == "__main__":
    main()
