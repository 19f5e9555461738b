"""Certificates of real networks: the table, how tight each bound is, and what each part costs.

    python benchmarks/margins.py --data FOLDER_OF_CIFAR10 [--weights RESNET20.npz] [--device cuda]

Costs are multiples of one forward-backward pass over the same samples, measured in the same run.
The MLP (3072-200-200-10, tanh) is trained on 5,000 CIFAR-10 images until every margin is positive.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toosure.data import load_cifar10
from toosure.margins import attacked_margin, certified_margin, certify, certify_sam, true_margin
from toosure.margins.certified import METHODS
from toosure.models import load_published, mlp, resnet20

IMAGENET = (torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225]))


def seconds(work: Callable[[], object], device: str) -> float:
    """Time one call, everything on the device finished."""
    start = time.perf_counter()
    work()
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def forward_backward(model: nn.Module, x: Tensor, y: Tensor, device: str) -> float:
    """Seconds of one forward-backward pass over the data in chunks of 500: the best of three."""

    def work() -> None:
        for a, b in zip(x.split(500), y.split(500), strict=True):
            loss = F.cross_entropy(model(a), b)
            torch.autograd.grad(loss, list(model.parameters()))

    return min(seconds(work, device) for _ in range(3))


def train(model: nn.Module, x: Tensor, y: Tensor, goal: float = 0.5, epochs: int = 400) -> int:
    """Train by SGD until the smallest margin passes `goal`; return the epochs it took."""
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(1, epochs + 1):
        for batch in torch.randperm(len(x), generator=generator).split(100):
            optimizer.zero_grad()
            F.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
        with torch.no_grad():
            if true_margin(model(x), y).min() > goal:
                return epoch
    raise SystemExit(f"not separated after {epochs} epochs")


def tightness(
    model: nn.Module, x: Tensor, y: Tensor, radii: list[float], device: str, **options: int
) -> None:
    """Print, for each radius and method, how far below the attacked margins the proofs lie."""
    unit = forward_backward(model, x, y, device)
    with torch.no_grad():
        clean = true_margin(model(x).double(), y)

    print(f"\nn = {len(x)}; clean: mean margin {clean.mean():.3f}, right {share(clean)}")
    print("| linf eps | kind | mean margin | share > 0 | log Q_eps | cost |")
    print("|---|---|---|---|---|---|")

    for eps in radii:
        rows: list[tuple[str, Callable[[], Tensor]]] = [
            ("attacked", lambda eps=eps: attacked_margin(model, x, y, eps).values)
        ]
        for method in METHODS:
            rows.append(
                (
                    f"certified, {method}",
                    lambda eps=eps, m=method: (
                        certified_margin(model, x, y, eps, method=m, **options).values
                    ),
                )
            )

        for name, work in rows:
            margins: list[Tensor] = []
            took = seconds(lambda work=work, margins=margins: margins.append(work()), device)
            log_q = float((-margins[0]).logsumexp(0) - torch.tensor(len(x)).log())
            numbers = f"{margins[0].mean():.3f} | {share(margins[0])} | {log_q:.3f}"
            print(f"| {eps:g} | {name} | {numbers} | {took / unit:.1f} |", flush=True)


def share(margins: Tensor) -> str:
    return f"{(margins > 0).double().mean():.3f}"


def whole(model: nn.Module, train_set, test_set, eps: float, device: str, **options) -> None:
    """Print a whole certificate and what its parts cost."""
    unit = forward_backward(model, *train_set, device)
    if device != "cpu":  # its kernels are loaded once, and that is not the parts' time
        few = tuple(part[:20] for part in train_set)
        certify(model, few, eps=eps, test=test_set and tuple(p[:20] for p in test_set), **options)

    certificate = certify(model, train_set, eps=eps, test=test_set, **options)
    print(f"\n```\n{certificate}\n```")
    for name, summary in certificate.margins.items():
        values = ", ".join(f"{q:g}: {v:.3f}" for q, v in summary.quantiles.items())
        print(f"quantiles of {name} margins: {values}; heaviest 1 % carry {summary.heaviest:.2f}")

    with torch.no_grad():
        parts = train_set[0].split(500)
        forward = min(seconds(lambda: [model(a) for a in parts], device) for _ in range(3))

    print(f"\nforward-backward {unit:.3f} s; forward alone {forward / unit:.2f} of it")
    print("| part | multiples of forward-backward |\n|---|---|")
    for part, took in certificate.seconds.items():
        print(f"| {part} | {took / unit:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="holds cifar-10-batches-py")
    parser.add_argument("--weights", type=Path, help="published ResNet-20 weights, .npz")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--samples", type=int, default=5000, help="training images of the MLP")
    parser.add_argument("--compare", type=int, default=500, help="images for the methods' table")
    parser.add_argument("--images", type=int, default=100, help="images for ResNet-20")
    parser.add_argument("--chunk", type=int, default=500)
    parser.add_argument(
        "--units", type=int, default=512, help="widest layer of ResNet-20 tightened"
    )
    parser.add_argument("--generators", type=int, default=0, help="3072: each input number")
    args = parser.parse_args()
    torch.manual_seed(0)
    images = load_cifar10(args.data)
    machine = "NVIDIA GPU" if args.device != "cpu" else f"CPU, {torch.get_num_threads()} thread(s)"
    print(f"# Margins: {machine}, torch {torch.__version__}")

    pixels = images.train_x[: args.samples].float() / 255
    mean, std = pixels.mean(0), (pixels - pixels.mean(0)).std()
    x = ((pixels - mean) / std).to(args.device)
    y = images.train_y[: args.samples].to(args.device)
    test = ((images.test_x[: args.samples].float() / 255 - mean) / std).to(args.device)
    test_set = (test, images.test_y[: args.samples].to(args.device))
    model = mlp().to(args.device)
    took = train(model, x, y)
    print(f"\n## MLP 3072-200-200-10, tanh: separated after {took} epochs of SGD; std {std:.4f}")
    whole(model, (x, y), test_set, 0.002, args.device, chunk=args.chunk)
    radii = [0.0005, 0.002, 0.01, float(2 / 255 / std)]
    tightness(model, x[: args.compare], y[: args.compare], radii, args.device)
    print(f"\n```\n{certify_sam(model, (x[:500], y[:500]), rho=0.05)}\n```")

    if args.weights:
        model = load_published(resnet20(), args.weights).eval().to(args.device)
        centre, scale = (v.view(3, 1, 1) for v in IMAGENET)
        x = ((images.test_x[: args.images].float() / 255 - centre) / scale).to(args.device)
        y = images.test_y[: args.images].to(args.device)
        print(f"\n## ResNet-20, published weights, the first {args.images} test images")
        sizes = {"units": args.units, "generators": args.generators}
        whole(model, (x, y), None, 1e-4, args.device, chunk=args.chunk, **sizes)
        tightness(model, x, y, [1e-6, 1e-4, 1e-2], args.device, **sizes)


if __name__ == "__main__":
    main()
