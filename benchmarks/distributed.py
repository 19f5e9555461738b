"""Steps of `torchrun ... toosure train` against a DDP loop written by hand, and the exact scheme.

    PYTHONPATH=src python benchmarks/distributed.py --processes 2 --rounds 15

ResNet-20 on made-up images of 3 x 32 x 32, SGD with momentum, gloo on the CPU, one thread for each
process. The loops take turns of a few steps in the same processes; a turn is timed between two
barriers. The figures are ratios of ours to the loop by hand: of the fastest turns, the median over
rounds of neighbouring turns, and of the CPU time of the first process, which other work on the
machine disturbs least. All loops start from the same weights and see the same batches, so that
after the last round the weights of ours (DDP) and of the loop by hand must be equal bit for bit;
the script says whether they are.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from toosure.config import RunConfig
from toosure.data import Images, make_dataset
from toosure.processes import join
from toosure.processes.group import end
from toosure.train import ProgressListener, Runtime
from toosure.train.agreement import Agreement
from toosure.train.rank_zero import open_run
from toosure.train.training import Training

LR = 0.1
MOMENTUM = 0.9


def made_up_data(count):
    """Return images of noise with random labels."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(256, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)
    y = torch.randint(10, (count,), generator=generator)
    return make_dataset(Images(x, y, x[:10], y[:10], tuple("0123456789")), train=count)


class OurLoop:
    """The body of `toosure.train.loop.take_steps`, a few steps at a time."""

    def __init__(self, config, data, processes, out, exact):
        self.runtime = Runtime("cpu", exact=exact, checkpoint=1e9)
        self.writer = open_run(config, Path(out) / ("exact" if exact else "ddp"), processes)
        listener = ProgressListener()
        self.training = Training(config, self.runtime, self.writer, listener, data, processes)
        self.agreement = Agreement(processes, self.runtime.checkpoint, step=0)

    def take(self, steps):
        training = self.training
        for _ in range(steps):
            step = training.steps_taken
            self.agreement.update(step, training.check_divergence(), False)
            lr = training.set_rate(step)
            loss = training.step(training.batches.draw(step), lr)
            training.losses.append(loss)
            training.after_step(step)
            training.steps_taken += 1
            training.watch.step(lr=lr, epoch=training.epochs_taken)

    @property
    def weights(self):
        return nn.utils.parameters_to_vector(self.training.model.parameters())


class LoopByHand:
    """What one writes with torch alone: each process indexes its share of the batch."""

    def __init__(self, config, data, processes, order):
        torch.manual_seed(config.seed)
        model = config.word("model").build(inputs=data.inputs, classes=data.classes)
        self.network = DistributedDataParallel(model)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
        self.data = data.train
        self.order = order  # the same batches as ours
        self.own = processes.rows(config.batch)
        self.step = 0

    def take(self, steps):
        for _ in range(steps):
            own = self.order(self.step)[self.own]
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.network(self.data.x[own]), self.data.y[own])
            loss.backward()
            self.optimizer.step()
            self.step += 1

    @property
    def weights(self):
        return nn.utils.parameters_to_vector(self.network.parameters())


def work(rank, options, folder):
    """Take turns in one of the processes; the first one reports."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", store, rank=rank, world_size=options.processes)
    processes = join(torch.device("cpu"))
    data = made_up_data(options.batch * 8)
    steps = (options.rounds + 1) * options.steps
    settings = {"data": "cifar10", "model": "resnet20", "batch": options.batch, "measure": ()}
    settings |= {"optimizer": f"sgd:lr={LR},momentum={MOMENTUM}", "every": 10**6}
    config = RunConfig(**settings, steps=steps + 1)

    ours = OurLoop(config, data, processes, folder, exact=False)
    loops = {"ours, DDP": ours}
    loops["by hand"] = LoopByHand(config, data, processes, ours.training.batches.indices)
    if options.exact:
        loops["ours, exact"] = OurLoop(config, data, processes, folder, exact=True)

    seconds = {name: [] for name in loops}
    cpu_seconds = {name: [] for name in loops}
    for turn in range(options.rounds + 1):
        names = list(loops) if turn % 2 else list(loops)[::-1]  # nobody is always the first
        for name in names:
            dist.barrier()
            start, cpu_start = time.perf_counter(), time.process_time()
            loops[name].take(options.steps)
            dist.barrier()
            seconds[name].append(time.perf_counter() - start)
            cpu_seconds[name].append(time.process_time() - cpu_start)

    if processes.first:
        report(seconds, cpu_seconds, options)
        same = torch.equal(loops["ours, DDP"].weights, loops["by hand"].weights)
        print(f"weights of ours (DDP) and by hand after {steps} steps: equal bit for bit: {same}")
    dist.barrier()
    end(0)


def report(seconds, cpu_seconds, options):
    """Print a table of the loops, without the first turn of each, which is cold."""
    seconds = {name: times[1:] for name, times in seconds.items()}
    cpu = {name: median(times[1:]) for name, times in cpu_seconds.items()}
    print(f"{options.processes} processes, batch {options.batch}, {options.rounds} rounds of turns")
    print(
        "\n| loop | ms a step, fastest | median | ratio of fastest | median ratio | of CPU time |"
    )
    print("|---|---|---|---|---|---|")
    reference = seconds["by hand"]
    for name, times in seconds.items():
        fastest, middle = (1000 * t / options.steps for t in (min(times), median(times)))
        ratios = [own / other for own, other in zip(times, reference, strict=True)]
        ratio = min(times) / min(reference)
        own_cpu = cpu[name] / cpu["by hand"]
        figures = f"{ratio:.3f} | {median(ratios):.3f} | {own_cpu:.3f}"
        print(f"| {name} | {fastest:.0f} | {middle:.0f} | {figures} |")
    print()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=4, help="steps of a turn")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--exact", action="store_true", help="the exact scheme, too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (options, folder), nprocs=options.processes)
