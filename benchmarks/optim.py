"""Cost of a step of each two-pass optimizer, as a multiple of its base optimizer's step.

    PYTHONPATH=src python3 benchmarks/optim.py --device cpu      (or cuda)

With pytorch-optimizer importable (`make peers`, then .peers/bin/python) its SAM is timed too.
All optimizers take turns in one run; the figure is the median over rounds of the ratio to the base
in the same round, with its quartiles. Memory (cuda) is the peak of a step beyond the base's, in
copies of the parameters. Graphs are captured with model=, as the documentation asks.

--calls counts instead of timing, which any machine can repeat: calls of torch's operators in a
step by the way a GPU takes (foreach SGD; the host does not read the norm), and on a GPU also the
kernels that run.
"""

import argparse
import os
import random
import time
from collections import Counter
from statistics import median, quantiles
from unittest import mock

import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

import toosure.optim.asam
import toosure.optim.passes
import toosure.optim.sam
from toosure.models import mlp, resnet20
from toosure.optim import ASAM, CSAM, SAM, VASSO

try:
    from pytorch_optimizer import SAM as PeerSAM
except ImportError:
    PeerSAM = None

SGD = {"lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4}
METHODS = ["sgd", "SAM", "CSAM", "ASAM", "VASSO"]


def make_net(name):
    if name == "resnet20":
        return resnet20()
    return mlp()


class Case:
    """One network with one optimizer, and a step of it."""

    def __init__(self, method, net, batch, device, named=False, **sgd):
        torch.manual_seed(0)
        self.model = make_net(net).to(device)
        self.inputs = torch.randn(batch, 3, 32, 32, device=device)
        self.labels = torch.randint(10, (batch,), device=device)
        self.criterion, self.method = F.cross_entropy, method

        params = self.model.parameters()
        if method == "sgd":
            self.optimizer = torch.optim.SGD(params, **SGD, **sgd)
        elif method == "pytorch-optimizer SAM":
            self.optimizer = PeerSAM(params, torch.optim.SGD, rho=0.05, **SGD)
        else:
            kind = {"SAM": SAM, "CSAM": CSAM, "ASAM": ASAM, "VASSO": VASSO}[method]
            model = self.model if named else None
            self.optimizer = kind(params, rho=0.05, model=model, **SGD, **sgd)

        if method == "CSAM":
            self.criterion = self.optimizer.criterion(nn.CrossEntropyLoss())

    def closure(self):
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(self.inputs), self.labels)
        loss.backward()
        return loss

    def step(self):
        if self.method == "pytorch-optimizer SAM":
            self.closure()  # its own contract: the first gradient is the caller's
        self.optimizer.step(self.closure)

    def captured(self):
        """The same step as one CUDA graph."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            self.step()
        return graph.replay


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def seconds(step, repeats, device):
    """Time on the wall; on the CPU the time of this process's own work, for others share it."""
    clock = time.perf_counter if device == "cuda" else time.process_time
    wait(device)
    start = clock()
    for _ in range(repeats):
        step()
    wait(device)
    return (clock() - start) / repeats


def extra_copies(cases):
    """Peak memory of an eager step beyond the base's, in copies of the parameters."""
    peaks = {}
    for name, case in cases.items():
        case.optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        case.step()
        torch.cuda.synchronize()
        peaks[name] = torch.cuda.max_memory_allocated() - before
    size = sum(p.numel() * p.element_size() for p in cases["sgd"].model.parameters())
    return {name: (peak - peaks["sgd"]) / size for name, peak in peaks.items()}


def measure(net, batch, repeats, rounds, device, graph):
    methods = METHODS + (["pytorch-optimizer SAM"] if PeerSAM and not graph else [])
    cases = {name: Case(name, net, batch, device, named=graph) for name in methods}
    steps = {name: case.captured() if graph else case.step for name, case in cases.items()}
    times = {name: [] for name in methods}

    for step in steps.values():
        seconds(step, 2, device)
    memory = extra_copies(cases) if device == "cuda" and not graph else {}

    for _ in range(rounds):
        for name, step in random.sample(list(steps.items()), len(steps)):
            times[name].append(seconds(step, repeats, device))

    for name in methods:
        ratios = [t / base for t, base in zip(times[name], times["sgd"], strict=True)]
        low, middle, high = quantiles(ratios, n=4)
        copies = f"{memory[name]:.2f}" if memory else "-"
        how = f"{device}{', CUDA graph' if graph else ''}"
        print(
            f"| {net}, batch {batch} | {how} | {name} | {median(times[name]) * 1e3:.2f} "
            f"| {middle:.3f} | {low:.3f} to {high:.3f} | {rounds} | {copies} |"
        )


class Calls(TorchDispatchMode):
    """Count the operators that reach a device."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        launches = ("empty", "detach", "view", "expand", "transpose", "t.", "alias", "unsqueeze")
        if operator.namespace == "aten" and not operator.name().startswith(
            tuple(f"aten::{name}" for name in launches)
        ):
            self.counts[operator.name()] += 1
        return operator(*args, **(kwargs or {}))


def climb_as_a_gpu(parameters, directions, radius, norm, keep=False):
    toosure.optim.passes.climb_without_waiting_(parameters, directions, radius, norm, keep)


def count(net, device):
    """Print how many operators (and kernels) a step of each optimizer calls, and the ratio."""
    first = {}
    for method in METHODS:
        case = Case(method, net, 8, device, named=True, foreach=True)
        with (
            mock.patch.object(toosure.optim.sam, "climb_", climb_as_a_gpu),
            mock.patch.object(toosure.optim.asam, "climb_", climb_as_a_gpu),
        ):
            case.step()
            case.step()
            with Calls() as calls:
                case.step()

        figures = [calls.counts.total()]
        if device == "cuda":
            with profile(activities=[ProfilerActivity.CUDA]) as trace:
                case.step()
                wait(device)
            on_device = torch.autograd.DeviceType.CUDA
            figures.append(sum(event.device_type == on_device for event in trace.events()))

        first = first or figures
        cells = [f"{n} | {n / one:.3f}" for n, one in zip(figures, first, strict=True)]
        print(f"| {net} | {method} | {' | '.join(cells)} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--calls", action="store_true", help="count operators, do not time")
    arguments = parser.parse_args()

    device = arguments.device
    if arguments.calls:
        kernels = " kernels | times SGD |" if device == "cuda" else ""
        print(f"| network | step | operators | times SGD |{kernels}")
        print("|---|---|---|---|" + "---|---|" * bool(kernels))
        for net in ("mlp", "resnet20"):
            count(net, device)
        return

    if device == "cpu":
        torch.set_num_threads(1)
    machine = torch.cuda.get_device_name() if device == "cuda" else f"{os.cpu_count()}-core CPU"
    print(f"{machine}, torch {torch.__version__}\n")
    print("| network | where | step | median ms | times SGD | quartiles | n | extra copies |")
    print("|---|---|---|---|---|---|---|---|")

    for net, batch, rounds in (("mlp", 128, 150), ("resnet20", 32, 20)):
        if device == "cpu":
            measure(net, batch, 1, rounds, device, graph=False)
        else:
            measure(net, 128, 30, 20, device, graph=False)
            measure(net, 128, 30, 20, device, graph=True)


if __name__ == "__main__":
    main()
