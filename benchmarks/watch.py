"""Cost of watching a run, and the speed of our training loop.

    PYTHONPATH=src python3 benchmarks/watch.py --device cpu            (or cuda)
    PYTHONPATH=src python3 benchmarks/watch.py --device cuda --graph   (also replayed as graphs)

1. The paper's setting (MLP 3072-200-200-10, full-batch gradient descent on 5,000 images, 5,000 for
   validation), measured every 20 steps on both splits: metrics, margins, Gauss-Newton sharpness.
   The figure is seconds watched / seconds unwatched, each from the start of the first step to the
   end of the last; both take turns in one process. Set-up and the measurement of step 0 are apart.
2. On a GPU: ResNet-20, batch 128: a step of `toosure train`, eager and with --graph, against the
   loop a user would write (data on the GPU, no watch), the three in turns.

With --data-root the images are CIFAR-10's; else they are made up (noise around class means).
"""

import argparse
import tempfile
import time
from statistics import median

import torch
from torch import nn

from toosure.config import RunConfig
from toosure.data import Images, cifar10, make_dataset
from toosure.models import resnet20
from toosure.train import Runtime, train


def load(root, train_size, val_size):
    if root:
        return cifar10(root, train=train_size, val=val_size, standardise="global")
    generator = torch.Generator().manual_seed(0)
    count = train_size + val_size
    y = torch.randint(10, (count,), generator=generator)
    means = 128 + 20 * torch.randn(10, 3, 32, 32, generator=generator)
    x = means[y] + 50 * torch.randn(count, 3, 32, 32, generator=generator)
    x = x.clamp(0, 255).to(torch.uint8)
    images = Images(x, y, x[:10], y[:10], tuple("0123456789"))
    return make_dataset(images, train=train_size, val=val_size, standardise="global")


def loop_seconds(run):
    """Seconds from the first step to the end of the last; an unwatched run's last row is not it."""
    first, last = run.rows[0], run.rows[-1]
    end = last["seconds"] - (last["seconds_measuring"] if len(run.rows) == 2 else 0)
    return end - first["seconds"]


def timed(config, means, data):
    with tempfile.TemporaryDirectory() as folder:
        run = train(config, folder, means, data=data)
        assert run.status == "complete", run.ending
        return loop_seconds(run), run


def watching(args, data, graph):
    """Print the ratio of a watched run to an unwatched one, over rounds."""
    means = Runtime(args.device, graph=graph, checkpoint=1e9)
    common = {"data": "cifar10", "optimizer": f"gd:lr={args.lr}", "steps": args.steps}
    watched = RunConfig(**common, every=20)
    alone = RunConfig(**common, at=(0, args.steps), measure=())

    ratios, shares, pace = [], [], []
    for _ in range(args.rounds + args.warm):
        plain, _ = timed(alone, means, data)
        whole, run = timed(watched, means, data)
        ratios.append(whole / plain)
        pace.append(1e3 * plain / args.steps)
        shares.append(1e3 * median(row["seconds_measuring"] for row in run.rows[1:]))

    ratios, shares, pace = (each[args.warm :] for each in (ratios, shares, pace))
    low, mid, high = min(ratios), median(ratios), max(ratios)
    print(
        f"| {'graph' if graph else 'eager'} | {mid:.2f} ({low:.2f} to {high:.2f}) | "
        f"{median(pace):.2f} | {median(shares):.1f} | {args.rounds} |",
        flush=True,
    )


def by_hand(data, steps):
    """Return the seconds of the loop that a user would write."""
    torch.manual_seed(0)
    model = resnet20().to(data.train.x.device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    loss_of, (x, y) = nn.CrossEntropyLoss(), data.train

    for phase in (20, steps):  # a short one first
        torch.cuda.synchronize()
        start, done = time.perf_counter(), 0
        while done < phase:
            for batch in torch.randperm(len(y), device=x.device).split(128):
                if len(batch) < 128 or done == phase:
                    break
                optimizer.zero_grad()
                loss_of(model(x[batch]), y[batch]).backward()
                optimizer.step()
                done += 1
        torch.cuda.synchronize()
    return time.perf_counter() - start


def resnet(args, data):
    """Print the speed of a ResNet-20 step against the loop by hand."""
    common = {"data": "cifar10", "model": "resnet20", "batch": 128, "steps": args.resnet_steps}
    common |= {"optimizer": "sgd:lr=0.1,momentum=0.9,weight_decay=5e-4", "measure": ()}
    config = RunConfig(**common, at=(0, args.resnet_steps))

    rows = {"by hand": [], "eager": [], "graph": []}
    for _ in range(args.rounds + 1):
        rows["by hand"].append(by_hand(data, args.resnet_steps))
        for name in ("eager", "graph"):
            means = Runtime(args.device, graph=name == "graph", checkpoint=1e9)
            rows[name].append(timed(config, means, data)[0])
    print("\n| ResNet-20, batch 128 | ms a step | times the speed of the loop by hand | rounds |")
    print("|---|---|---|---|")
    for name, seconds in rows.items():
        ratios = [a / b for a, b in zip(rows["by hand"][1:], seconds[1:], strict=True)]
        each = 1e3 * median(seconds[1:]) / args.resnet_steps
        spread = f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"| {name} | {each:.2f} | {spread} | {args.rounds} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default=None)
    parser.add_argument("--data-root", default=None)
    parser.add_argument("--graph", action="store_true", help="on a GPU: eager and graph")
    parser.add_argument("--examples", type=int, default=5000)
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--resnet-steps", type=int, default=1000)
    parser.add_argument("--lr", type=float, default=0.04)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    device = Runtime(args.device).torch_device
    args.steps = args.steps or (2000 if device.type == "cuda" else 400)
    args.warm = int(device.type == "cuda")  # rounds that do not count: kernels are loaded

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(
        f"{name}, torch {torch.__version__}, {torch.get_num_threads()} threads, float32, ", end=""
    )
    print(f"{args.examples} + {args.examples} images, {args.steps} steps\n")
    data = load(args.data_root, args.examples, args.examples).to(device)
    print("| paper's MLP, GD | watched / unwatched | ms a step unwatched | ms a row | rounds |")
    print("|---|---|---|---|---|")

    for graph in (False, True) if args.graph else (False,):
        watching(args, data, graph)

    if device.type == "cuda":
        resnet(args, data)


if __name__ == "__main__":
    main()
