"""How far a measurement on a seeded subset lies from that on the whole set.

    PYTHONPATH=src python benchmarks/sampling.py --logits DIR                  # ECE, smECE
    PYTHONPATH=src python benchmarks/sampling.py --data-root DIR               # sharpness, MLP
    PYTHONPATH=src python benchmarks/sampling.py --data-root DIR --weights F   # and of a ResNet-20

1. Calibration, on published networks' outputs for 10,000 test images, which stand for a set without
   end: n rows are drawn with replacement, 200 times. (Without replacement from N rows the errors
   are sqrt(1 - n/N) of these.) The formula takes each bin's gap as normal, so that its absolute
   value is folded normal: that gives the mean and the spread of ECE_n.
2. Sharpness, on CIFAR-10. The subset's eigenvalue is at least the mean over the subset of
   q_i = (J_i v)' H_i (J_i v), v the whole set's eigenvector; so the formula's spread is
   sd(q) / sqrt(n), and what lies above is the price of the maximum.
"""

import argparse
import math
from pathlib import Path

import numpy as np
import torch
from scipy import stats
from torch import nn

from toosure import metrics
from toosure.curvature.eigen.eager_basis import EagerBasis
from toosure.curvature.eigen.solver import solve
from toosure.curvature.eigen.vectors import random_vectors
from toosure.curvature.operators import GaussNewton
from toosure.curvature.products.loss_curvature import LossCurvature
from toosure.data import load_cifar10
from toosure.models import load_published, mlp, resnet20

SIZES = (256, 500, 1000, 2000, 5000, 10_000, 50_000)


def published(folder):
    """(name, confidence, correct) of every net whose test outputs lie in a folder."""
    for file in sorted(Path(folder).glob("*.npz")):
        arrays = np.load(file)
        if "test_labels" in arrays:
            probs = "test_probs" in arrays
            outputs = torch.from_numpy(arrays["test_probs" if probs else "test_logits"]).double()
            labels = torch.from_numpy(arrays["test_labels"]).flatten().long()
            pair = metrics.top_label(outputs.log() if probs else outputs, labels)
            name = file.stem.removeprefix("logits_").removeprefix("probs_")
            yield name, *(part.double() for part in pair)


def folded(confidence, correct, n, bins=15):
    """Mean and standard deviation of ECE on n rows, each bin's gap taken as normal.

    A gap is a mean over all n rows of (confidence - hit) inside its bin, 0 outside.
    """
    gap = (confidence - correct).numpy()
    places = np.ceil(confidence.numpy() * bins).clip(1, bins).astype(int) - 1
    means = np.bincount(places, gap, bins) / len(gap)
    squares = np.bincount(places, gap**2, bins) / len(gap)
    sd = np.sqrt((squares - means**2).clip(1e-30) / n)
    law = stats.foldnorm(np.abs(means) / sd, scale=sd)
    return law.mean().sum(), math.sqrt((law.std() ** 2).sum())


def quantile_of(bias, sd):
    """Mean and 95 % quantile of an absolute error that is normal with this bias."""
    law = stats.foldnorm(abs(bias) / sd, scale=sd)
    return law.mean(), law.ppf(0.95)


def calibration(name, confidence, correct, seeds, sizes):
    """Print a row for every subset size: errors in points (hundredths)."""
    truth = {
        "ece": float(metrics.ece_from_confidence(confidence, correct)),
        "smece": float(metrics.smece_from_confidence(confidence, correct)),
        "accuracy": float(correct.mean()),
    }

    for n in sizes:
        errors = {key: [] for key in truth}
        for seed in range(seeds):
            generator = torch.Generator().manual_seed(seed)
            rows = torch.randint(len(correct), (n,), generator=generator)
            pair = confidence[rows], correct[rows]
            subset = {
                "ece": float(metrics.ece_from_confidence(*pair)),
                "smece": float(metrics.smece_from_confidence(*pair)),
                "accuracy": float(pair[1].mean()),
            }
            for key, value in subset.items():
                errors[key].append(100 * (value - truth[key]))

        mean, sd = folded(confidence, correct, n)
        bias = mean - truth["ece"]
        law = quantile_of(100 * bias, 100 * sd)
        e, s, a = (np.array(errors[key]) for key in ("ece", "smece", "accuracy"))

        print(
            f"| {name} | {100 * truth['ece']:.2f}, {100 * truth['smece']:.2f} | {n:,} | "
            f"{spread(e)} | {law[0]:.2f}, {law[1]:.2f} | {e.mean():+.2f} ({100 * bias:+.2f}) | "
            f"{spread(s)} | {s.mean():+.2f} | {spread(a)} |",
            flush=True,
        )


def spread(errors):
    return f"{np.abs(errors).mean():.2f}, {np.quantile(np.abs(errors), 0.95):.2f}"


def sharpest(problem, known=None, rtol=1e-3):
    """The leading eigenpairs of the Gauss-Newton matrix, from vectors known and a random one."""
    like = torch.empty(0, problem.size, dtype=problem.dtype, device=problem.device)
    start = random_vectors(1, like)
    start = start if known is None else torch.cat([known, start])
    found = solve(EagerBasis(GaussNewton(problem), start), rtol=rtol, budget=100)
    assert found.converged
    return float(found.values[0]), found.vectors


def sharpness(name, model, x, y, plan, rtol=3e-3):
    """Print a row for every subset size, `plan` saying how many seeds each has."""
    whole = LossCurvature(model, (x, y))
    value, vectors = sharpest(whole, rtol=rtol)
    image = whole.images(vectors[:1])
    q = (whole.weighted(image, "gn") * image).sum((0, 2)).double()  # (N,)
    top = float(q.sort(descending=True).values[: len(q) // 100].sum() / q.sum())

    for n, seeds in plan.items():
        ratios = []
        for seed in range(seeds):
            generator = torch.Generator().manual_seed(seed)
            rows = torch.randperm(len(y), generator=generator)[:n]
            subset = LossCurvature(model, (x[rows], y[rows]))
            ratios.append(100 * (sharpest(subset, vectors, rtol)[0] / value - 1))

        errors = np.array(ratios)
        finite = math.sqrt(1 - n / len(y))
        predicted = 100 * float(q.std() / q.mean()) / math.sqrt(n) * finite
        print(
            f"| {name} | {value:.1f} | {100 * top:.0f} % | {n:,} of {len(y):,} | "
            f"{spread(errors)} | "
            f"{errors.mean():+.1f} | {errors.std(ddof=1):.1f} ({predicted:.1f}) | {seeds} |",
            flush=True,
        )


def trained(x, y, steps, seed=0):
    """Yield (step, MLP) at these steps of SGD with batches of 128."""
    torch.manual_seed(seed)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(seed)
    for step in range(max(steps) + 1):
        if step in steps:
            yield step, model
        rows = torch.randint(len(y), (128,), generator=generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()


def sharpness_tables(arguments):
    print(
        "\n| network | sharpness | share of 1 % of the images | n | error, %: mean, 95 % | ", end=""
    )
    print("bias | standard deviation (formula) | seeds |")
    print("|---|---|---|---|---|---|---|---|")

    images = load_cifar10(arguments.data_root)
    if not arguments.weights:
        x = images.train_x.float()
        x, y = (x - x.mean(0)) / x.std(), images.train_y
        plan = {256: 20, 500: 20, 1000: 20, 2000: 20, 5000: 10, 10_000: 5}
        for step, model in trained(x, y, (500, 4000)):
            sharpness(f"MLP, SGD step {step:,}", model, x, y, plan)
        return

    model = load_published(resnet20(), arguments.weights)
    x, y = (images.test_x, images.test_y) if arguments.test else (images.train_x, images.train_y)
    x, y = x[: arguments.images].float() / 255, y[: arguments.images]
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    x = (x - mean[:, None, None]) / std[:, None, None]

    plan = {128: 5, 256: 4, 512: 3}
    name = f"ResNet-20, trained, {'test' if arguments.test else 'training'} images"
    sharpness(name, model, x, y, plan, rtol=1e-2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logits", help="a folder of published networks' outputs")
    parser.add_argument("--data-root", help="where CIFAR-10 lies")
    parser.add_argument("--weights", help="akamaster's ResNet-20 as an .npz")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--images", type=int, default=2048, help="the whole set of the ResNet-20")
    parser.add_argument("--test", action="store_true", help="its test images, not training images")
    arguments = parser.parse_args()

    if arguments.logits:
        print(
            "| network | ECE, smECE | n | ECE error: mean, 95 % | formula | bias (formula) | ",
            end="",
        )
        print("smECE error: mean, 95 % | bias | accuracy error: mean, 95 % |")
        print("|---|---|---|---|---|---|---|---|---|")
        for name, confidence, correct in published(arguments.logits):
            calibration(name, confidence, correct, arguments.seeds, SIZES)

    if arguments.data_root:
        sharpness_tables(arguments)


if __name__ == "__main__":
    main()
