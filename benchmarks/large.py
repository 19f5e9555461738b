"""Cost of watching networks on images of 224 x 224 pixels: ResNet-50 and ViT-S/16.

    PYTHONPATH=src python3 benchmarks/large.py --device cuda --out large.md
    PYTHONPATH=src python3 benchmarks/large.py --device cpu --quick        # tiny nets, a minute

Images are made up on the device (a pattern of the class under noise). A network takes some bf16
autocast training steps, which are timed; then, for a watched subset of n images: a row without
curvature (forward pass and all metrics), the Gauss-Newton sharpness cold and warm, and products.
Curvature is in float32 without TF32, in chunks. Memory is the peak above what lay there before.
Each network has its share of --seconds; what would not fit, judged by the smaller n before it,
is named and left out.
"""

import argparse
import statistics
import time
from contextlib import ExitStack

import torch
import torch.nn.functional as F
from torch import nn

from toosure import Watch
from toosure.curvature import CurvatureTracker
from toosure.curvature.products.loss_curvature import LossCurvature
from toosure.objectives import as_objective
from toosure.train.steps import Step
from toosure.words import parse

NETWORKS = {"resnet50": "sgd:lr=0.01,momentum=0.9", "vit_s16": "adamw:lr=0.0003"}
QUICK = {
    "resnet50:width=8": "sgd:lr=0.01,momentum=0.9",
    "vit:depth=2,heads=2,width=32": "adamw:lr=0.0003",
}
PASSES = ("forward, float32", "JVP", "VJP", "Gauss-Newton product", "Hessian product")
OPENING = 4  # measurements before the follower is in its stride


class Bench:
    """One network: its clock, its share of the time, and the rows of its table."""

    def __init__(self, name, device, seconds, lines):
        self.name, self.device, self.lines = name, device, lines
        self.until = time.perf_counter() + seconds
        self.step_seconds = 1.0
        self.known = {}  # what -> (n, seconds)

    def clock(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def timed(self, call):
        """Seconds of a call, GiB at its peak above what lay there before, and its answer."""
        cuda = self.device.type == "cuda"
        before = torch.cuda.memory_allocated() if cuda else 0
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        start = self.clock()
        answer = call()
        seconds = self.clock() - start
        memory = (torch.cuda.max_memory_allocated() - before) / 2**30 if cuda else float("nan")
        return seconds, memory, answer

    def fits(self, what, n, times=1):
        """Whether it will end in time, if its cost grows in proportion to n."""
        if what not in self.known:
            return time.perf_counter() < self.until
        smaller, seconds = self.known[what]
        needs = times * seconds * n / smaller
        if time.perf_counter() + needs < self.until:
            return True
        self.row(what, n, needs / times, note="not run: reckoned from the smaller n")
        return False

    def keep(self, what, n, timing, note=""):
        seconds, memory, _ = timing
        self.known[what] = n, seconds
        self.row(what, n, seconds, memory, note)

    def row(self, what, n, seconds, memory=float("nan"), note=""):
        gib = "" if memory != memory else f"{memory:.2f}"
        self.lines.say(
            f"| {self.name} | {what} | {n:,} | {seconds:.4g} | {seconds / self.step_seconds:.3g} | "
            f"{gib} | {note} |"
        )


class Lines:
    """Print as it goes, and keep a copy in a file."""

    def __init__(self, file):
        self.file = file

    def say(self, text):
        print(text, flush=True)
        if self.file:
            self.file.write(text + "\n")
            self.file.flush()


def images(count, side, classes, device):
    """Standardised images of a class's coarse pattern under noise, and their labels."""
    generator = torch.Generator(device).manual_seed(0)
    y = torch.randint(classes, (count,), generator=generator, device=device)
    patterns = torch.randn(classes, 3, 8, 8, generator=generator, device=device)
    x = torch.empty(count, 3, side, side, device=device)
    for part, labels in zip(x.split(256), y.split(256), strict=True):
        part.normal_(generator=generator).mul_(0.8)
        part.add_(F.interpolate(patterns[labels], size=(side, side)), alpha=0.6)
    return x, y


def make_step(model, word, data, batch):
    """A training step of `toosure train --precision bf16` on the next images of the pool."""
    optimizer = parse("optimizer", word).build(model.parameters())
    step = Step(model, as_objective(nn.CrossEntropyLoss()), optimizer, "bf16")
    taken = 0
    x, y = data

    def train_step():
        nonlocal taken
        rows = torch.arange(taken, taken + batch, device=x.device) % len(y)
        taken += batch
        model.train()
        return step((x[rows], y[rows], rows), 0.1)

    return train_step


def training(bench, train_step, batch, steps):
    """Time training: the median step after five that do not count."""
    for _ in range(5):
        train_step()
    timings = [bench.timed(train_step) for _ in range(steps)]
    bench.step_seconds = statistics.median(seconds for seconds, _, _ in timings)
    memory = max(memory for _, memory, _ in timings)
    speed = f"{batch / bench.step_seconds:,.0f} images/s"
    bench.row("training step, bf16", batch, bench.step_seconds, memory, speed)


def rows(bench, model, data, sizes):
    for n in sizes:
        if bench.fits("row without curvature", n, times=2):
            split = data[0][:n], data[1][:n]
            watch = Watch(model, nn.CrossEntropyLoss(), split, measure=(), every=1)  # measures once
            note = f"images {split[0].nbytes / 2**30:.2f} GiB"
            bench.keep("row without curvature", n, bench.timed(watch.step), note)


def products(bench, model, data, sizes, chunk, whats=PASSES):
    """Single passes of the curvature room: forward, JVP, VJP, and a product with the Hessian."""
    for n in sizes:
        problem = LossCurvature(model, (data[0][:n], data[1][:n]), chunk=min(chunk, n))
        vectors = torch.randn(1, problem.size, device=problem.device)
        vectors /= vectors.norm()
        cotangents = torch.randn(1, n, problem.classes, device=problem.device)
        calls = (
            problem.logits,
            lambda p=problem, v=vectors: p.images(v),
            lambda p=problem, u=cotangents: p.pull(u),
            lambda p=problem, v=vectors: p.apply(v, "gn"),
            lambda p=problem, v=vectors: p.apply(v, "hessian"),
        )

        for what, call in zip(PASSES, calls, strict=True):
            if what in whats and bench.fits(what, n):
                if what not in bench.known:
                    call()  # kernels are chosen and loaded
                problem.release()
                bench.keep(what, n, bench.timed(call), f"chunk {problem.chunk}")
        problem.release()


def chunks(bench, model, data, n, sizes):
    """Time and memory of a product against the size of a chunk."""
    for chunk in sizes:
        problem = LossCurvature(model, (data[0][:n], data[1][:n]), chunk=chunk)
        v = torch.randn(1, problem.size, device=problem.device)
        if bench.fits("Gauss-Newton product", n):
            timing = bench.timed(lambda p=problem, v=v: p.apply(v / v.norm(), "gn"))
            note = f"chunk {problem.chunk}{'' if chunk else ', its own choice'}"
            bench.row("Gauss-Newton product", n, *timing[:2], note)
        problem.release()


def sharpness(bench, model, data, train_step, arguments, sizes):
    """Gauss-Newton sharpness: cold, then a training step apart until the follower is warm."""
    for n in sizes:
        if not bench.fits("sharpness, cold", n):
            continue

        tracker = CurvatureTracker(
            model, (data[0][:n], data[1][:n]), rtol=arguments.rtol, chunk=min(arguments.chunk, n)
        )
        timing = bench.timed(tracker.measure)
        bench.keep("sharpness, cold", n, timing, result_text(timing[2]))
        vector = 4 * tracker.curvature.size
        for number in range(2, OPENING + 3):
            what = "sharpness, warm" if number > OPENING else "sharpness, opening"
            if not bench.fits(what, n):
                break
            train_step()
            timing = bench.timed(tracker.measure)
            bench.keep(what, n, timing, f"measurement {number}: {result_text(timing[2])}")
            tracker.release()
        memory = tracker._pairs["gn_sharpness"].history
        kept = sum(v.nbytes for v in [*memory.leading, *memory.spaces])
        bench.lines.say(
            f"| {bench.name} | kept by the tracker | {n:,} | | | {kept / 2**30:.2f} | "
            f"{kept / vector:g} vectors of {vector / 2**20:.0f} MiB |"
        )


def result_text(results):
    result = results["gn_sharpness"]
    flag = "" if result.converged else ", not converged"
    return f"{result.products:g} products, value {result.value:.4g}, error {result.error:.0e}{flag}"


def network(word, optimizer, data, arguments, seconds, lines):
    device = data[0].device
    bench = Bench(word.split(":")[0], device, seconds, lines)

    torch.manual_seed(0)
    shape, classes = tuple(data[0].shape[1:]), arguments.classes
    model = parse("model", word).build(inputs=shape, classes=classes).to(device)
    train_step = make_step(model, optimizer, data, arguments.batch)
    training(bench, train_step, arguments.batch, arguments.steps)

    sizes = [n for n in arguments.sizes if n <= len(data[1])]
    rows(bench, model, data, sizes)
    products(bench, model, data, sizes[:1], arguments.chunk)
    sharpness(bench, model, data, train_step, arguments, sizes[:1])
    chunks(bench, model, data, sizes[0], (None, *arguments.chunks))
    products(bench, model, data, sizes[1:], arguments.chunk, (PASSES[0], *PASSES[3:]))
    sharpness(bench, model, data, train_step, arguments, sizes[1:])


def run(arguments, lines):
    device = torch.device(arguments.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU, no GPU"
    lines.say(
        f"{name}, torch {torch.__version__}, {arguments.side} x {arguments.side} pixels, "
        f"{arguments.classes:,} classes, batch {arguments.batch}, rtol {arguments.rtol:g}\n"
    )
    lines.say("| network | what | n | seconds | training steps | GiB above | |")
    lines.say("|---|---|---|---|---|---|---|")

    began = time.perf_counter()
    data = images(max(arguments.sizes), arguments.side, arguments.classes, device)
    networks = QUICK if arguments.quick else NETWORKS
    networks = {word: o for word, o in networks.items() if word.split(":")[0] in arguments.models}

    for place, (word, optimizer) in enumerate(networks.items()):
        left = arguments.seconds - (time.perf_counter() - began)
        network(word, optimizer, data, arguments, left / (len(networks) - place), lines)


def parsed(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", default=None, help="a file for the table, beside the screen")
    parser.add_argument("--quick", action="store_true", help="tiny networks and images")
    parser.add_argument("--models", nargs="*", default=["resnet50", "vit_s16", "vit"])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--sizes", type=int, nargs="*", default=[256, 1000, 2000, 10_000])
    parser.add_argument("--chunk", type=int, default=64, help="images a pass of curvature takes")
    parser.add_argument("--chunks", type=int, nargs="*", default=[16, 128, 256])
    parser.add_argument("--steps", type=int, default=15, help="training steps timed")
    parser.add_argument("--rtol", type=float, default=1e-2, help="of sharpness")
    parser.add_argument("--seconds", type=float, default=100.0, help="for all networks together")
    arguments = parser.parse_args(argv)

    if arguments.quick:
        arguments.batch, arguments.side, arguments.classes, arguments.steps = 8, 32, 10, 2
        arguments.sizes, arguments.chunk, arguments.chunks = [8, 20], 8, [4]

    arguments.sizes.sort()
    return arguments


def main(argv=None):
    arguments = parsed(argv)
    with ExitStack() as stack:
        file = arguments.out and stack.enter_context(open(arguments.out, "w", encoding="utf-8"))
        run(arguments, Lines(file))


if __name__ == "__main__":
    main()
