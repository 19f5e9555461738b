"""Cost of ensembles: a prediction, a training step and memory, as multiples of one network.

    PYTHONPATH=src python3 benchmarks/ensembles.py [--device cuda] [--model resnet20] [--rows 128]
    ... benchmarks/ensembles.py --device cuda --graph --model resnet18 --rows 256 --precision bf16

Each method is built with its default members. Times are medians of repeated passes in one process,
memory is the peak of a prediction beyond the weights (on a GPU) and the bytes of the weights. Where
torch-uncertainty is installed (`make peers`), its BatchEnsemble, MIMO-style packed layers and
MC-Dropout predict the same rows for comparison. The last table runs the members of a deep ensemble
one after another and at once, in turn, eager and, on a GPU, as CUDA graphs (`--only-members`: that
table alone). With `--graph`, the steps of the first table are replayed graphs, as those of
`toosure train --graph`: seconds alone on the device.
"""

import argparse
import statistics
import sys
import time
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

import torch
from torch import nn

from toosure import models
from toosure.ensembles import (
    MIMO,
    VI,
    BatchEnsemble,
    DeepEnsemble,
    MCDropout,
    Rank1,
    members_at_once,
)
from toosure.objectives import Plain
from toosure.train.build import lay_channels_last
from toosure.train.graph import GraphStep
from toosure.train.steps import Step

METHODS = {
    "one network": lambda: Plain(nn.CrossEntropyLoss()),
    "deep ensemble (4)": lambda: DeepEnsemble(members=4, own_order=False, at_once=False),
    "MC-Dropout (5)": lambda: MCDropout(samples=5, rate=0.1),
    "BatchEnsemble (4)": lambda: BatchEnsemble(members=4),
    "MIMO (3)": lambda: MIMO(members=3),
    "VI (5)": lambda: VI(samples=5),
    "VI, local (5)": lambda: VI(samples=5, estimator="local"),
    "Rank-1 (4)": lambda: Rank1(members=4),
}


def main() -> None:
    """Print the tables."""
    arguments = parse()
    device = torch.device(arguments.device)
    x = torch.randn(arguments.rows, 3, 32, 32, device=device)
    y = torch.arange(arguments.rows, device=device) % 10

    where = torch.cuda.get_device_name() if device.type == "cuda" else "CPU, one thread"
    print(f"{arguments.model}, {arguments.rows} rows, {where}, torch {torch.__version__}\n")
    if arguments.only_members:
        at_once(arguments, x, y)
        return
    print("| method | parameters | predict | step | peak MB of a prediction |")
    print("|---|---|---|---|---|")
    base: tuple[float, float] | None = None
    for name, make in METHODS.items():
        parameters, predict, step, peak = measured(arguments, make(), x, y, arguments.graph)
        base = base or (predict, step)
        print(
            f"| {name} | {parameters:,} | {1000 * predict:.1f} ms, {predict / base[0]:.2f} x | "
            f"{1000 * step:.1f} ms, {step / base[1]:.2f} x | {peak} |"
        )
    if not arguments.graph:
        peers(arguments, x)
        at_once(arguments, x, y)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--rounds", type=int, default=9, help="of the last table")
    parser.add_argument("--only-members", action="store_true", help="print the last table alone")
    parser.add_argument("--graph", action="store_true")
    arguments = parser.parse_args()
    torch.backends.cudnn.benchmark = arguments.graph  # as runs of many recorded steps search
    if arguments.device == "cpu":
        torch.set_num_threads(1)
    return arguments


def measured(arguments, objective, x, y, graph=False):
    """Return parameters, seconds of a prediction and of a step, and the peak of a prediction."""
    model = model_of(arguments, x)
    if hasattr(objective, "setup"):
        objective.setup(model, (x, y))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    step = Step(model, objective, optimizer, arguments.precision)
    if graph:
        step = GraphStep(step, varies=False, fixed=True)
    predict = getattr(objective, "predict", lambda model, x: model(x))

    def prediction():
        with torch.no_grad():
            predict(model, x)

    for _ in range(6 if graph else 1):  # before the graph is there
        step((x, y, y), 0.01)
    taken = seconds(lambda: step((x, y, y), 0.01), arguments.repeat, x.device)
    model.eval()
    needed = seconds(prediction, arguments.repeat, x.device)
    return count(model), needed, taken, peak_of(prediction, x.device)


def seconds(call, repeat, device):
    """Return the median time of a call, after one that warms up: on a CPU that of this process."""
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    times = []
    for _ in range(repeat + 1):
        start = clock()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(clock() - start)
    return statistics.median(times[1:])


def peak_of(call, device):
    """Return the memory a call needs beyond what is held, in MB; a dash on a CPU."""
    if device.type != "cuda":
        return "–"
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return f"{(torch.cuda.max_memory_allocated() - before) / 2**20:.0f}"


def count(model):
    return sum(p.numel() for p in model.parameters())


def peers(arguments, x):
    """Time what torch-uncertainty offers, where it is installed."""
    sys.meta_path.append(AbsentVision())
    try:
        from torch_uncertainty.layers.batch_ensemble import BatchConv2d, BatchLinear
        from torch_uncertainty.methods.batch_ensemble import BatchEnsemble as PeerEnsemble
        from torch_uncertainty.methods.mc_dropout import mc_dropout
    except ImportError as error:
        print(f"\ntorch-uncertainty is not here ({error}): no comparison.")
        return

    def batch_ensemble(net):
        # Its own conversion of all layers does not reach those within others.
        for path, layer in list(net.named_modules()):
            if isinstance(layer, nn.Conv2d):
                net.set_submodule(path, BatchConv2d.from_conv2d(layer, num_estimators=4))
            if isinstance(layer, nn.Linear):
                net.set_submodule(path, BatchLinear.from_linear(layer, num_estimators=4))
        return PeerEnsemble(net, 4)

    print("\n| torch-uncertainty | parameters | predict |\n|---|---|---|")
    makers = {
        "BatchEnsemble (4)": batch_ensemble,
        "MC-Dropout (5)": lambda net: mc_dropout(net, num_estimators=5, last_layer=False),
    }
    for name, make in makers.items():
        dropout = {"dropout": 0.1} if "Dropout" in name else {}
        model = make(getattr(models, arguments.model)(**dropout)).to(x.device).eval()
        with torch.no_grad():
            taken = seconds(lambda model=model: model(x), arguments.repeat, x.device)
        print(f"| {name} | {count(model):,} | {1000 * taken:.1f} ms |")


class AbsentVision(MetaPathFinder, Loader):
    """Let torch-uncertainty import torchvision and timm where they are not: nothing uses them."""

    def find_spec(self, name, path, target=None):
        absent = name.partition(".")[0] in ("torchvision", "timm")
        return ModuleSpec(name, self, is_package=True) if absent else None

    def create_module(self, spec):
        return AnyNames(spec.name)

    def exec_module(self, module):
        pass


class AnyNames(ModuleType):
    """A module that has every name, as an empty class."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


WAYS = {
    "one after another": None,
    "at once, grouped": 0,
    "at once, dense up to 16 channels": 16,
    "at once, dense up to 32 channels": 32,
}


def at_once(arguments, x, y):
    """Time a step of four members each way, in turn: medians of rounds, and of their ratios."""
    on_gpu = x.device.type == "cuda"
    print("\n| four members, a step | eager |" + " as a CUDA graph |" * on_gpu)
    print("|---|---|" + "---|" * on_gpu)
    widths = [c.out_channels for c in members_at_once.convolutions(model_of(arguments, x))]
    ways = {n: way for n, way in WAYS.items() if not way or (on_gpu and min(widths) <= way)}
    columns = []
    for graph in (False, True) if on_gpu else (False,):
        steps = {name: step_of(arguments, narrow, x, y, graph) for name, narrow in ways.items()}
        rounds = []
        for _ in range(arguments.rounds):
            rounds.append(
                {n: seconds(lambda s=s: s((x, y, y), 0.01), 9, x.device) for n, s in steps.items()}
            )
        columns.append(rounds)

    for name in ways:
        cells = []
        for rounds in columns:
            taken = statistics.median(each[name] for each in rounds)
            ratios = sorted(each["one after another"] / each[name] for each in rounds)
            spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
            cells.append(f"{1000 * taken:.1f} ms, {statistics.median(ratios):.2f} x ({spread})")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def step_of(arguments, narrow, x, y, graph):
    """Return a step of four members, one after another or at once with `narrow`."""
    model = model_of(arguments, x)
    before = members_at_once.NARROW
    members_at_once.NARROW = (narrow,)
    objective = DeepEnsemble(members=4, own_order=False, at_once=narrow is not None)
    objective.setup(model, (x, y))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    step = Step(model, objective, optimizer, arguments.precision)
    if graph:
        step = GraphStep(step, varies=False, fixed=True)
    members_at_once.NARROW = before
    for _ in range(6 if graph else 1):  # before the graph is there
        step((x, y, y), 0.01)
    return step


def model_of(arguments, x):
    """Return the network as training lays it out."""
    torch.manual_seed(0)
    model = getattr(models, arguments.model)().to(x.device)
    if x.device.type == "cuda":
        lay_channels_last(model)
    return model


if __name__ == "__main__":
    main()
