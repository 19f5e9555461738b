"""What two processes train together: runs of the exact scheme, runs by DDP, and their ends.

The tests start this file twice, with the environment that torchrun would set, and pass the folder
of runs, the device, and whether all cases of the exact scheme are wanted.
"""

import json
import os
import signal
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import torch
from ddp_cases import (
    BETWEEN,
    BF16,
    BUDGET,
    DIVERGES,
    HALF,
    LOST,
    STOPPED,
    WRONG,
    call_after,
    cases,
    data_of,
    few_cases,
    images,
    in_shards,
    refused,
)
from ddp_shares import train_in_shares
from torch import nn

from toosure.data import digits
from toosure.models import mlp
from toosure.optim import SAM
from toosure.processes import Sharded, join, share_gradients
from toosure.processes.group import end
from toosure.sweep import sweep
from toosure.train import Runtime, train
from toosure.watch import Watch


def own_loop(folder: Path) -> None:
    """Train in a hand-written loop that all processes watch."""
    processes = join(torch.device("cpu"))
    torch.manual_seed(0)
    model, data = mlp((1, 8, 8), width=8).double(), digits(train=40, val=21)
    network = Sharded(model, processes)
    x, y = data.train.x.double(), data.train.y
    loss, optimizer = nn.CrossEntropyLoss(), SAM(model.parameters(), rho=0.1, lr=0.1)
    watch = Watch(model, loss, (x, y), data.val, folder, every=2, processes=processes)

    def closure():
        value = loss(network(x), y)
        value.backward()
        share_gradients(model.parameters(), (), processes)
        return value

    for _ in range(4):
        optimizer.step(closure)
        watch.step()
    watch.finish()
    watch.close()


def pressed_between(out, runtime, processes):
    """Sweep over two runs; Ctrl-C reaches the second process alone, after the first of them."""
    module = import_module("toosure.sweep.sweep")
    run_one = module.run_one

    def then_press(*arguments):
        result = run_one(*arguments)
        signal.raise_signal(signal.SIGINT)
        return result

    module.run_one = run_one if processes.first else then_press
    done = sweep(BETWEEN, out, runtime)
    module.run_one = run_one
    return [done.stopped, len(done.runs), done.failures]


def main(out: Path, device: str, wanted: str) -> None:
    torch.set_num_threads(1)
    exact = Runtime(device, exact=True)
    if wanted == "all":
        for config in cases().values():
            train(config, out, exact, data=data_of(config).to(device))
        return

    for config in (*few_cases().values(), DIVERGES, BUDGET, BF16, images(out / "images")):
        train(config, out, exact, data=data_of(config).to(device))
    config = in_shards(out / "shards")
    train(config, out, Runtime(device), data=data_of(config).to(device))
    train(HALF, out, Runtime(device, exact=True, checkpoint=0.0))  # somebody else has begun it
    said = train_in_shares(out / "ddp")
    said["wrong"] = refused(WRONG, out, exact)
    said["compile"] = refused(LOST, out, Runtime(device, exact=True, compile=True))
    own_loop(out / "own")
    processes = join(torch.device(device))
    said["between"] = pressed_between(out, exact, processes)
    if not processes.first:  # one of them is asked to stop, and all do
        call_after(20, partial(signal.raise_signal, signal.SIGINT))
    # With a checkpoint at every step they also agree at every step, however fast steps are.
    said["stopped"] = train(STOPPED, out, Runtime(device, exact=True, checkpoint=0.0)).status
    said["stopped again"] = train(STOPPED, out, exact).status
    (out / f"said{processes.rank}.json").write_text(json.dumps(said))
    if not processes.first:  # one is lost
        call_after(20, partial(os._exit, 9))
    train(LOST, out, Runtime(device, checkpoint=0.0))


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
    except SystemExit as ended:
        end(ended.code)
    end(0)
