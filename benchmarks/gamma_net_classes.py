"""What gamma-net does to single classes: a small network trained with it, by the rates of Adam.

    PYTHONPATH=src python benchmarks/gamma_net_classes.py --data-root DATA [--features 64]
    ... --arm "one rate" --seed 1                                      (one line of the table)

Three convolutions are trained on 10,000 CIFAR-10 images (flips, batch 128, rate .1, cosine), few
enough for cross-entropy to be over-confident. ECE pools all classes. Beside it stands the root
mean square, over predicted classes, of confidence minus accuracy against its mean, which pooling
cannot see, and the spread of the gammas. Three minutes a run on one core.
"""

import argparse
import math
import os
import warnings

import torch
from torch import Tensor, nn

from toosure.data import cifar10
from toosure.losses import FocalLoss
from toosure.metrics import classwise_ece, ece, top_label
from toosure.objectives import GammaNet, Plain
from toosure.recipes.benchmark.class_gaps import class_gap_spread
from toosure.train.steps import Step

ARMS = {
    "CE": None,
    "focal, gamma 3": None,
    "one rate": {"lr": 1e-3, "level_lr": None},
    "one rate of 1e-4": {"lr": 1e-4, "level_lr": None},
    "gamma-net": {},
    "only the level learns": {"lr": 0.0},
}


def network(features: int) -> nn.Sequential:
    """Return three convolutions of stride 2, the mean over the image, and a head."""

    def block(inputs: int, outputs: int) -> list[nn.Module]:
        conv = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1)
        return [conv, nn.BatchNorm2d(outputs), nn.ReLU()]

    layers = [*block(3, 32), *block(32, 64), *block(64, features)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(features, 10))


def objective_of(arm: str, seed: int):
    if arm == "CE":
        return Plain(nn.CrossEntropyLoss())
    if arm.startswith("focal"):
        return Plain(FocalLoss(3.0))
    return GammaNet(seed=seed, **ARMS[arm])


def trained(arm: str, features: int, seed: int, data, steps: int):
    """Train a network and return it with its objective."""
    torch.manual_seed(seed)
    model = network(features)
    objective = objective_of(arm, seed)
    train = objective.setup(model, data).train if isinstance(objective, GammaNet) else data.train
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    step = Step(model, objective, optimizer)

    generator = torch.Generator().manual_seed(seed + 100)
    per_epoch = len(train) // 128
    for number in range(steps):
        place = number % per_epoch
        if place == 0:
            order = torch.randperm(len(train), generator=generator)
        chosen = order[128 * place : 128 * place + 128]
        flips = torch.rand(128, generator=generator) < 0.5
        x = train.x[chosen]
        x = torch.where(flips[:, None, None, None], x.flip(-1), x)

        rate = 0.05 * (1 + math.cos(math.pi * number / steps)) * min(1, (number + 1) / 100)
        for group in optimizer.param_groups:
            group["lr"] = rate
        step((x, train.y[chosen], chosen), rate)
    return model.eval(), objective


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-root", default="data")
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--arm", action="append", choices=list(ARMS))
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument("--steps", type=int, default=3000)
    arguments = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    warnings.filterwarnings("ignore", "gamma-net")

    print("| features | arm | seed | accuracy % | ECE | classwise ECE | gap | classes | gamma |")
    print("|---|---|---|---|---|---|---|---|---|")
    for seed in arguments.seed or [0]:
        data = cifar10(root=arguments.data_root, train=10_000, val=2000, seed=seed)
        x, labels = data.test.x, data.test.y
        for arm in arguments.arm or ARMS:
            model, objective = trained(arm, arguments.features, seed, data, arguments.steps)
            with torch.no_grad():
                logits = torch.cat([model(part) for part in x.split(1000)])
            cells = (arguments.features, arm, seed, *scores(logits, labels), gammas_of(objective))
            print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def scores(logits: Tensor, labels: Tensor) -> list[str]:
    """Return accuracy, ECE, classwise ECE, over-confidence and its spread over classes."""
    confidence, correct = top_label(logits, labels)
    accuracy = 100 * float(correct.float().mean())
    errors = (100 * float(error(logits, labels)) for error in (ece, classwise_ece))
    gap = 100 * float(confidence.mean()) - accuracy
    spread = 100 * class_gap_spread(logits, labels)
    return [
        f"{accuracy:.1f}",
        *(f"{error:.2f}" for error in errors),
        f"{gap:+.1f}",
        f"{spread:.1f}",
    ]


def gammas_of(objective) -> str:
    """Return mean and spread of the last batch's gammas."""
    if not isinstance(objective, GammaNet):
        return "–"
    row = objective.report()
    return f"{row['objective/gamma_mean']:.2f} ± {row['objective/gamma_std']:.2f}"


if __name__ == "__main__":
    main()
