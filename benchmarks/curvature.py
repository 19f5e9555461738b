"""What it costs to know the sharpness at every step of training, and how right it is.

    PYTHONPATH=src .peers/bin/python benchmarks/curvature.py --data-root DIR  # windows, CPU
    PYTHONPATH=src python3 benchmarks/curvature.py --data-root DIR --device cuda --steps 2000

Full-batch GD at 2/30 and 2/70 and SGD with batches of 128, the MLP 3072-200-200-10 (tanh) on 5,000
CIFAR-10 images, or ResNet-20. Steps are compared with a converged reference, in float64 unless
--reference says float32 (of ResNet-20 on a GPU, where float64 convolutions take minutes).
Overheads are multiples of one full-batch training step timed in the same run; on a CPU, of the
processor's seconds on one thread. With --loop (a GPU, GD) whole loops are timed instead: training
replayed as a graph and measured after every step, nothing waited for but the value, less as many
steps alone; the forward pass counts.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
import torch.nn.functional as F

from toosure.curvature import CurvatureTracker, gn_sharpness
from toosure.curvature.eigen.eager_basis import EagerBasis
from toosure.curvature.eigen.solver import solve
from toosure.curvature.eigen.vectors import random_vectors
from toosure.curvature.operators import GaussNewton
from toosure.curvature.products.loss_curvature import LossCurvature
from toosure.data import load_cifar10
from toosure.models import mlp, resnet20

WARM_UP = 15
Row = tuple[float, float, float, bool, float]  # products, seconds, true error, converged, value
SETTINGS = {"gd 2/30": (2 / 30, None), "gd 2/70": (2 / 70, None), "sgd 128": (2 / 70, 128)}


def cifar(root: str, n: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    images = load_cifar10(root)
    x = images.train_x[:n].float()
    x = (x - x.mean(0)) / x.std()
    return x.to(device), images.train_y[:n].to(device)


def clock(device: str) -> float:
    """Seconds: on a CPU those it worked for us, which a busy machine does not stretch much."""
    if device != "cuda":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def timed(function: Callable[[], Any], device: str, repeats: int = 9) -> float:
    """Median seconds of a call."""
    function()
    seconds = []
    for _ in range(repeats):
        start = clock(device)
        function()
        seconds.append(clock(device) - start)
    return statistics.median(seconds)


def graphed(step: Callable[[], Any]) -> Callable[[], Any]:
    """The training step replayed as a CUDA graph: the fastest a user could run it."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


class Reference:
    """The converged sharpness, followed with a random vector in every start."""

    def __init__(
        self,
        model: torch.nn.Module,
        data: tuple[torch.Tensor, torch.Tensor],
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.source = model
        self.model = copy.deepcopy(model).to(dtype)
        self.curvature = LossCurvature(self.model, (data[0].to(dtype), data[1]))
        self.rtol = 1e-7 if dtype == torch.float64 else 1e-4
        self.known: torch.Tensor | None = None
        self.steps = 0

    def value(self) -> float:
        with torch.no_grad():
            theirs = self.source.state_dict()  # BatchNorm's statistics too
            for name, ours in self.model.state_dict().items():
                ours.copy_(theirs[name])

        self.steps += 1
        start = random_vectors(1, self.curvature.vector_like, self.steps)
        start = start if self.known is None else torch.cat([self.known, start])
        basis = EagerBasis(GaussNewton(self.curvature), start)
        solution = solve(basis, rtol=self.rtol, budget=300)
        self.known = solution.improved
        return float(solution.values[0])


def training(
    model: torch.nn.Module, data: tuple[torch.Tensor, torch.Tensor], lr: float, batch: int | None
) -> Iterator[int]:
    """Endless plain training; yields before every update."""
    x, y = data
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    step = 0
    while True:
        yield step
        rows: Any = slice(None)
        if batch:
            rows = torch.randperm(len(x), generator=generator)[:batch].to(x.device)
        optimizer.zero_grad()
        F.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
        step += 1


def peers(model: torch.nn.Module, data: tuple[torch.Tensor, torch.Tensor]) -> dict[str, Callable]:
    """Return what a user would do today, where installed; each call gives the value."""
    methods: dict[str, Callable] = {"cold Lanczos (ours)": lambda: gn_sharpness(model, data).value}

    try:
        import numpy as np
        from curvlinops import GGNLinearOperator
        from scipy.sparse.linalg import LinearOperator, eigsh

        def by_curvlinops() -> float:
            loss, parameters = torch.nn.CrossEntropyLoss(), list(model.parameters())
            operator = GGNLinearOperator(model, loss, parameters, [data], check_deterministic=False)
            size = operator.shape[0]

            def product(v):
                v = torch.as_tensor(np.asarray(v).reshape(-1), dtype=torch.float32)
                return (operator @ v.to(data[0].device)).detach().cpu().numpy()

            wrapped = LinearOperator((size, size), matvec=product, dtype=np.float32)
            return float(eigsh(wrapped, k=1, which="LA", tol=1e-3, return_eigenvectors=False)[0])

        methods["curvlinops + eigsh"] = by_curvlinops
    except ImportError:
        print("curvlinops is not installed here: left out")

    try:
        from pyhessian import hessian

        def by_pyhessian() -> float:
            cuda = data[0].is_cuda
            computer = hessian(model, torch.nn.CrossEntropyLoss(), data=data, cuda=cuda)
            return float(computer.eigenvalues(maxIter=100, tol=1e-3)[0][0])

        methods["PyHessian (Hessian)"] = by_pyhessian
    except ImportError:
        print("PyHessian is not installed here: left out")
    return methods


def measure_window(
    tracker: CurvatureTracker,
    reference: Reference,
    run: Iterator[int],
    steps: int,
    device: str,
    check_every: int,
    share_forward: bool,
) -> list[Row]:
    """Measure and train in turns; check every so many values against the reference."""
    rows: list[Row] = []
    for _ in range(steps):
        next(run)
        if share_forward:  # full-batch training made this pass already
            tracker.curvature.refresh_pass()

        start = clock(device)
        result = tracker.measure()["gn_sharpness"]
        seconds = clock(device) - start

        error = float("nan")
        if len(rows) % check_every == 0:
            error = abs(result.value / reference.value() - 1)
        rows.append((result.products, seconds, error, result.converged, result.value))
    return rows


def loop(
    model: torch.nn.Module,
    data: tuple[torch.Tensor, torch.Tensor],
    lr: float,
    tracker: CurvatureTracker,
    steps: int,
) -> Iterator[tuple[int, float, float]]:
    """Time loops of training steps alone and measured, in turns: (first step, value, overhead)."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(data[0]), data[1]).backward()
        optimizer.step()

    replayed = graphed(step)
    part = max(20, steps // 10)
    alone = 0.0
    with_tracker = 0.0
    for first in range(0, steps, part):
        state = copy.deepcopy(model.state_dict())
        seconds = []
        for measured in (False, True):
            model.load_state_dict(state)
            start = clock("cuda")
            for _ in range(part):
                replayed()
                if measured:
                    result = tracker.measure()["gn_sharpness"]
            seconds.append(clock("cuda") - start)

        alone += seconds[0]
        with_tracker += seconds[1]
        yield first, result.value, seconds[1] / seconds[0] - 1
    yield -1, result.value, with_tracker / alone - 1


def summary(rows: list[Row], step_seconds: float) -> str:
    """Summarise measured steps as one row of a table."""
    products = statistics.fmean(r[0] for r in rows)
    overhead = statistics.median(r[1] for r in rows) / step_seconds
    mean = statistics.fmean(r[1] for r in rows) / step_seconds
    checked = [r for r in rows if r[2] == r[2]]
    worst = max((r[2] for r in checked), default=float("nan"))
    missed = sum(r[2] > 1e-3 for r in checked)
    unflagged = sum(r[2] > 1e-3 and r[3] for r in checked)
    value = statistics.fmean(r[4] for r in rows)
    return (
        f"{value:8.2f} | {products:5.2f} | {overhead:5.2f} | {mean:5.2f} | {worst:.1e} | "
        f"{missed} of {len(checked)}, {unflagged} unflagged"
    )


def build(name: str, device: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return (mlp() if name == "mlp" else resnet20()).to(device)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-root", required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", default="mlp", choices=["mlp", "resnet20"])
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--steps", type=int, default=0, help="a whole run instead of windows")
    parser.add_argument("--windows", default="0,300,900", help="first steps of the windows")
    parser.add_argument("--check-every", type=int, default=1)
    parser.add_argument("--replay", action="store_true", help="CUDA graphs")
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS))
    parser.add_argument("--ranks", nargs="*", choices=["auto", "none"], help="of an MLP")
    parser.add_argument("--reference", default="float64", choices=["float64", "float32"])
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--loop", action="store_true", help="whole loops of --steps, on a GPU")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    device = arguments.device
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_num_threads(1)
    data = cifar(arguments.data_root, arguments.images, device)
    model = build(arguments.model, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(data[0]), data[1]).backward()
        optimizer.step()

    base = timed(step, device)
    print(f"{arguments.model}, {arguments.images} images, {device}, torch {torch.__version__}")
    print(f"training step, eager: {1e3 * base:.2f} ms")
    if device == "cuda":
        base = timed(graphed(step), device)
        print(f"training step, CUDA graph: {1e3 * base:.3f} ms (overheads are multiples of this)")

    curvature = LossCurvature(model, data, replay=arguments.replay)
    v = torch.randn(1, curvature.size, device=device)
    curvature.images(v)
    u = curvature.logits()[None].clone()
    print(
        f"JVP {timed(lambda: curvature.images(v), device) / base:.2f}, "
        f"VJP {timed(lambda: curvature.pull(u), device) / base:.2f}, "
        f"HVP {timed(lambda: curvature.apply(v, 'hessian'), device) / base:.2f} training steps"
    )

    print(
        "\nsetting, steps | lambda | products | overhead: median | mean | largest error | over 1e-3"
    )
    ranks = ("auto", None) if arguments.model == "mlp" else (None,)
    if arguments.ranks:
        ranks = tuple(None if rank == "none" else rank for rank in arguments.ranks)
    for name in arguments.settings:
        lr, batch = SETTINGS[name]
        for rank in ranks:
            label = name if rank or len(ranks) == 1 else f"{name}, all directions"
            compare = rank == ranks[0] and not arguments.no_peers
            windows(label, lr, batch, rank, compare, arguments, data, base)


def windows(
    label: str,
    lr: float,
    batch: int | None,
    rank: Literal["auto"] | None,
    compare: bool,
    arguments: argparse.Namespace,
    data: tuple[torch.Tensor, torch.Tensor],
    base: float,
) -> None:
    """Train with one setting and print a row per window of steps, or per tenth of a whole run."""
    device = arguments.device
    model = build(arguments.model, device)
    tracker = CurvatureTracker(model, data, input_rank=rank, replay=arguments.replay)
    reference = Reference(model, data, getattr(torch, arguments.reference))
    run = training(model, data, lr, batch)
    if arguments.model == "resnet20":
        for at in run:  # running statistics that have seen the data
            if at == 30:
                break

    if arguments.loop:
        for first, value, overhead in loop(model, data, lr, tracker, arguments.steps):
            where = "whole run" if first < 0 else f"{first:5d}+"
            print(
                f"{label}, {where} | {value:8.2f} | overhead in the loop {overhead:.2f}", flush=True
            )
        return

    if arguments.steps:
        rows = measure_window(
            tracker, reference, run, arguments.steps, device, arguments.check_every, batch is None
        )
        size = max(10, len(rows) // 10)
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            print(f"{label}, {start:5d}+ | {summary(part, base)}", flush=True)
        print(f"{label}, whole run | {summary(rows, base)}", flush=True)
        return

    for first in map(int, arguments.windows.split(",")):
        for at in run:
            if at >= first - 1:
                break
            if at >= first - WARM_UP:  # the tracker has followed the run before a window
                tracker.measure()
        rows = measure_window(
            tracker, reference, run, 30, device, arguments.check_every, batch is None
        )
        print(f"{label}, {first:5d}+30 | {summary(rows, base)}", flush=True)
        if compare:
            exact = reference.value()
            for peer, call in peers(model, data).items():
                seconds = timed(call, device, repeats=1)
                error = abs(call() / exact - 1)
                print(
                    f"    {peer}: {seconds / base:.1f} training steps, error {error:.1e}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
