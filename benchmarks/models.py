"""One short CIFAR-10 run per family of networks: accuracy, calibration, speed and memory.

    PYTHONPATH=src python3 benchmarks/models.py --data-root DATA --out models.md     (on a GPU)
    PYTHONPATH=src python3 benchmarks/models.py --quick        (made-up images, to see that it runs)

Every run is `toosure train` as anybody would call it: crop and flip, bf16, a CUDA graph, cosine
schedule with warm-up, measured only at the end. Accuracy and ECE (15 bins) are of the 10,000
test images, one seed. Seconds are from the first step to the last, capture included, evaluation
not; memory is the peak of what torch had allocated, with the data on the device. --scale multiplies
the steps, --steps sets them for all, --only picks networks by the beginning of their words.
"""

import argparse
import gc
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from toosure.config import RunConfig
from toosure.data import Images, make_dataset
from toosure.metrics import accuracy, ece
from toosure.train import Runtime, train

DATA, BATCH = "cifar10:augment=true", 256
SGD = "sgd:lr={},momentum=0.9,weight_decay=0.0005,nesterov=true"
HEADER = "| network | parameters | steps | epochs | seconds | test accuracy | test ECE | images/s "
HEADER += "| peak memory, GB | command: `toosure train` ... |\n" + "|---" * 10 + "|"


@dataclass
class Family:
    """A network, and how it is trained here."""

    model: str
    steps: int
    optimizer: str = SGD.format(0.2)


FAMILIES = [
    Family("mlp:width=1000,activation=relu", 2000, SGD.format(0.05)),
    Family("resnet20", 2600),
    Family("resnet18", 2600),
    Family("vit", 3500, "adamw:lr=0.001,weight_decay=0.05"),
    Family("wrn28_10", 1000, SGD.format(0.1)),
    Family("densenet40", 1000),
    Family("densenet_bc100", 1000),
    Family("pyramidnet110:alpha=48", 1000),
    Family("resnet50", 1200, SGD.format(0.1)),
]


def config_of(family: Family, args: argparse.Namespace) -> RunConfig:
    steps = args.steps or max(2, round(family.steps * args.scale))
    return RunConfig(
        data=DATA, model=family.model, optimizer=family.optimizer, steps=steps, batch=args.batch,
        schedule=f"cosine:warmup={max(1, steps // 10)}", precision="bf16", measure=(), at=(steps,),
    )  # fmt: skip


def command(config: RunConfig, graph: bool) -> str:
    """What to type for the same run, less the data root."""
    options = {n: getattr(config, n) for n in ("data", "model", "optimizer", "schedule", "steps")}
    options |= {"batch": config.batch, "precision": config.precision, "at": config.at[0]}
    text = " ".join(f"--{name} {value}" for name, value in options.items())
    return f"`{text} --measure none{' --graph' if graph else ''}`"


def made_up(count: int = 64):
    """Images of noise around class means, where no CIFAR-10 is at hand."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(count) % 10
    means = 128 + 40 * torch.randn(10, 3, 32, 32, generator=generator)
    noise = 30 * torch.randn(count, 3, 32, 32, generator=generator)
    x = (means[y] + noise).clamp(0, 255).to(torch.uint8)
    images = Images(x, y, x[:16], y[:16], tuple("0123456789"))
    return make_dataset(images, train=count - 16, val=16, augment=True)


def seconds_of(run) -> float:
    """From the first step to the beginning of the only measurement, the one at the end."""
    (end,) = run.rows
    return end["seconds"] - end["seconds_measuring"]


def row(family: Family, data, runtime: Runtime, args: argparse.Namespace) -> str:
    """Train one network and write its line of the table."""
    config, cuda = config_of(family, args), runtime.torch_device.type == "cuda"
    gc.collect()
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()

    with tempfile.TemporaryDirectory() as folder:
        run = train(config, folder, runtime, data=data)
        if run.status != "complete":
            return f"| {family.model} | {run.status}: {run.ending} " + "| " * 8 + "|"
        seconds = seconds_of(run)
        with np.load(run.path / "predictions.npz") as arrays:
            logits, labels = (torch.from_numpy(arrays[f"test_{n}"]) for n in ("logits", "labels"))

    memory = f"{torch.cuda.max_memory_allocated() / 1e9:.1f}" if cuda else "-"
    with torch.device("meta"):
        model = config.word("model").build(inputs=data.inputs, classes=data.classes)
    parameters = sum(p.numel() for p in model.parameters())
    images = config.steps * args.batch
    right, error = (f"{100 * float(f(logits, labels)):.2f} %" for f in (accuracy, ece))

    return (
        f"| {family.model} | {parameters:,} | {config.steps} | {images / len(data.train):.1f} "
        f"| {seconds:.1f} | {right} | {error} | {images / seconds:,.0f} | {memory} "
        f"| {command(config, runtime.graph)} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-root", type=Path, default=None, help="where CIFAR-10 lies")
    parser.add_argument("--device", default=None)
    parser.add_argument("--steps", type=int, default=None, help="of every run")
    parser.add_argument("--scale", type=float, default=1.0, help="times the steps of each family")
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--only", nargs="*", default=[""], help="words that begin so")
    parser.add_argument("--out", type=Path, default=None, help="write the table here too")
    parser.add_argument("--quick", action="store_true", help="made-up images, two steps")
    args = parser.parse_args()

    quick = args.quick or args.data_root is None
    if quick:
        args.steps, args.batch = args.steps or 2, 8
    device = Runtime(args.device).torch_device
    runtime = Runtime(args.device, graph=device.type == "cuda" and not quick, checkpoint=1e9)
    data = made_up() if quick else RunConfig(data=DATA).word("data").build(root=args.data_root)
    data = data.to(device)

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    lines = [f"{name}, torch {torch.__version__}; n = 1. {'Made-up images. ' * quick}", "", HEADER]
    print("\n".join(lines), flush=True)

    for family in FAMILIES:
        if family.model.startswith(tuple(args.only)):
            lines.append(row(family, data, runtime, args))
            print(lines[-1], flush=True)
            if args.out:
                args.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
