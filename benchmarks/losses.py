"""Cost of each loss and objective, as a multiple of cross-entropy in the same run.

    PYTHONPATH=src python3 benchmarks/losses.py --device cpu             (or cuda)
    PYTHONPATH=src python3 benchmarks/losses.py --objectives --device cuda

Losses: forward and backward at (128, 10), (128, 1000) and (1024, 1000). Objectives: a whole step of
SGD (`--net`, `--batch`), eagerly and, on a GPU, replayed as a CUDA graph.
Everything takes turns in random order; the figure is the median over rounds of the ratio to
cross-entropy in the same round. Memory is the peak beyond what was there before.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from statistics import median

import torch
from torch import nn

from toosure.data.dataset import Dataset, Split
from toosure.losses import LOSSES, CSAMLoss
from toosure.models import mlp, resnet20
from toosure.objectives import OBJECTIVES, as_objective
from toosure.train.graph import GraphStep
from toosure.train.steps import Step
from toosure.words import parse

SHAPES = ((128, 10), (128, 1000), (1024, 1000))
SLOW = ("cpc",)  # its pairs take seconds at (1024, 1000) on a CPU: fewer rounds


def losses():
    return {**{name: kind() for name, kind in LOSSES.items()}, "csam (Eq. 4)": CSAMLoss()}


def once(loss, logits, labels):
    start = time.perf_counter()
    logits.grad = None
    loss(logits, labels).backward()
    if logits.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def time_losses(shape, device, rounds):
    n, classes = shape
    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(n, classes, generator=generator)).to(device).requires_grad_()
    labels = torch.randint(classes, (n,), generator=generator).to(device)
    every = losses()
    ratios = {}

    for loss in every.values():
        once(loss, logits, labels)

    for index in range(rounds):
        names = [n for n in every if n not in SLOW or index < 3]
        random.shuffle(names)
        for name in names:
            plain = min(once(every["ce"], logits, labels) for _ in range(3))
            ratios.setdefault(name, []).append(once(every[name], logits, labels) / plain)

    return {name: (median(values), len(values)) for name, values in ratios.items()}


def peak_memory(name, shape):
    """Return the peak MiB of one forward and backward pass, measured in a new process."""
    code = f"""
import torch
def memory(field):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024
from toosure.losses import LOSSES
torch.set_num_threads(1)
loss = LOSSES[{name!r}]()
z, y = torch.randn(8, 10).requires_grad_(), torch.zeros(8, dtype=torch.long)
loss(z, y).backward()
z, y = torch.randn{shape}.requires_grad_(), torch.zeros({shape[0]}, dtype=torch.long)
open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
before = memory("VmRSS")
loss(z, y).backward()
print(memory("VmHWM") - before)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(out.stdout)


def report_losses(device, rounds):
    columns = {shape: time_losses(shape, device, rounds) for shape in SHAPES}
    print("| loss | " + " | ".join(map(str, SHAPES)) + " |\n|---|" + "---|" * len(SHAPES))

    for name in columns[SHAPES[0]]:
        cells = [f"{columns[s][name][0]:.2f} ({columns[s][name][1]})" for s in SHAPES]
        print(f"| {name} | " + " | ".join(cells) + " |")

    if device == "cpu":
        for name in ("ce", "mmce", "skce", "cpc"):
            print(f"peak of {name} at {SHAPES[-1]}: {peak_memory(name, SHAPES[-1]):.0f} MiB")
    else:
        z = torch.randn(SHAPES[-1], device=device, requires_grad=True)
        y = torch.zeros(SHAPES[-1][0], dtype=torch.long, device=device)
        for name in ("ce", "mmce", "skce", "cpc"):
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            once(LOSSES[name](), z, y)
            peak = (torch.cuda.max_memory_allocated() - before) / 2**20
            print(f"peak of {name} at {SHAPES[-1]}: {peak:.0f} MiB")


class Case:
    """A network, an objective and a step of SGD on one batch."""

    def __init__(self, name, device, graph, net, batch):
        torch.manual_seed(0)
        self.device = device
        model = (resnet20() if net == "resnet20" else mlp()).to(device).train()
        x, y = torch.randn(1024, 3, 32, 32, device=device), torch.arange(1024, device=device) % 10
        split = Split(x, y, y, torch.arange(1024, device=device))
        one = torch.ones(3, 1, 1, device=device)
        data = Dataset(split, split, split, tuple("0123456789"), 0 * one, one)
        loss = nn.CrossEntropyLoss()
        objective = loss if name == "ce" else parse("objective", name).build(loss=loss)
        objective = as_objective(objective).to(device)
        if hasattr(objective, "setup"):
            data = objective.setup(model, data) or data

        own = [] if name == "ce" else list(objective.parameters())
        optimizer = torch.optim.SGD([*model.parameters(), *own], lr=0.01, momentum=0.9)
        self.step = Step(model, objective, optimizer)
        if graph:
            self.step = GraphStep(self.step, varies=False, fixed=False)
        places = torch.arange(batch, device=device)
        self.batch = data.train.x[places], data.train.y[places], places

    def __call__(self, repeats):
        start = time.perf_counter()
        for _ in range(repeats):
            self.step(self.batch, 0.01)
        if self.device == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - start) / repeats


def report_objectives(device, rounds, net, batch):
    repeats = 10 if device == "cuda" else 1
    print("| objective | how | median ms | times cross-entropy | n |\n|---|---|---|---|---|")
    for graph in (False, True) if device == "cuda" else (False,):
        cases = {}
        for name in ("ce", *OBJECTIVES, "calmo:smooth=0", "calmo:robust=0", "gamma_net:scope=full"):
            try:
                cases[name] = Case(name, device, graph, net, batch)
                cases[name](6 if graph else 1)
            except Exception as error:
                cases.pop(name, None)
                print(f"| {name} | {'graph' if graph else 'eager'} | - | {error} | - |"[:200])

        times = {name: [] for name in cases}
        for _ in range(rounds):
            for name in random.sample(list(cases), len(cases)):
                times[name].append(cases[name](repeats))

        for name, seconds in times.items():
            ratio = median(a / b for a, b in zip(seconds, times["ce"], strict=True))
            how = "graph" if graph else "eager"
            each = f"{1e3 * median(seconds):.2f} | {ratio:.2f} | {len(seconds)} |"
            print(f"| {name} | {how} | {each}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--objectives", action="store_true")
    parser.add_argument("--net", default="resnet20", choices=("resnet20", "mlp"))
    parser.add_argument("--batch", type=int, default=128)
    arguments = parser.parse_args()

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    random.seed(0)

    if arguments.objectives:
        report_objectives(arguments.device, arguments.rounds, arguments.net, arguments.batch)
    else:
        report_losses(arguments.device, arguments.rounds)


if __name__ == "__main__":
    main()
