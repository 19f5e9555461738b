"""What the processes of a group train by DistributedDataParallel, to be compared with one process.

`ddp_pair.py` does it with two processes in everyday tests; the slow tests start this file with
four, and pass the folder of runs.
"""

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path

import torch
from ddp_cases import call_after, data_of, refused
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from own_model import normed
from toosure.config import RunConfig
from toosure.data import digits
from toosure.processes import join
from toosure.processes.group import end
from toosure.train import Runtime, train
from toosure.train.batches import Batches
from toosure.watch import Watch

SMALL = {"data": "digits:train=48,val=23", "batch": 12, "steps": 4, "every": 2}
SMALL |= {"model": "mlp:width=8", "precision": "float64", "measure": ("gn_sharpness",)}
EQUAL = {
    "sgd": {"optimizer": "sgd:lr=0.1,momentum=0.9"},
    "sam": {"optimizer": "sam:lr=0.1,momentum=0.9"},
    "csam": {"optimizer": "csam:lr=1,gamma=2", "steps": 16, "every": 4},
    "asam": {"optimizer": "asam:lr=0.1", "clip": 0.5},
    "vasso": {"optimizer": "vasso:lr=0.1"},
    "muon": {"optimizer": "muon:fp32=true"},
    "bulksgd": {"optimizer": "bulksgd:lr=0.1,k=2", "steps": 2},
    "full batch": {"batch": None, "optimizer": "gd:lr=0.5"},
    "sum": {"loss": "ce:reduction=sum", "optimizer": "sgd:lr=0.01"},
    "focal": {"loss": "focal", "optimizer": "sam:lr=0.1"},
    "mmce": {"loss": "mmce", "optimizer": "sam:lr=0.1"},
    "mmce, csam": {"loss": "mmce", "optimizer": "csam:lr=1", "steps": 16, "every": 16},
    "sece, sum": {"loss": "sece:base=ce:reduction=sum,reduction=sum", "optimizer": "sgd:lr=0.01"},
    "mdca": {"loss": "mdca"},
    "crl": {"objective": "crl", "steps": 8, "every": 4},
    "calmo": {"objective": "calmo"},
    "margin_tail": {"objective": "margin_tail", "optimizer": "sam:lr=0.1"},
    "adafocal": {"objective": "adafocal", "steps": 8, "every": 4},
}
ON_THEIR_SHARES = {
    "mixup": {"objective": "mixup"},
    "ccat": {"objective": "ccat:attack_steps=3"},
    "bsam": {"optimizer": "bsam:lr=0.2"},
    "balcal": {"objective": "balcal", "steps": 8, "every": 4},
    "noisy": {"model": "own_model:noisy"},
    "bf16": {"precision": "bf16", "loss": "mmce"},
}
REFUSED = {
    "gamma_net": {"objective": "gamma_net:width=8"},
    "ensemble": {"objective": "batch_ensemble"},
    "uneven": {"batch": 7},
}
SYNCED = RunConfig(**{**SMALL, "model": "own_model:normed"})
LOST = RunConfig(**{**SMALL, "steps": 24, "optimizer": "csam:lr=0.1,momentum=0.9", "seed": 3})
BITS = {"precision": "float32", "steps": 8, "every": 8, "optimizer": "sgd:lr=0.05", "seed": 4}
BITS = RunConfig(**{**SMALL, **BITS})


WATCHED = {"measure": ("gn_sharpness", "batch_sharpness"), "rtol": 1e-6}


def configs(settings):
    return {name: RunConfig(**{**SMALL, **more}) for name, more in settings.items()}


def by_hand(config, processes):
    """Train a run's network in a loop written with torch alone; return its weights."""
    data = data_of(config)
    torch.manual_seed(config.seed)
    model = config.word("model").build(inputs=data.inputs, classes=data.classes)
    network = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    batches = Batches(data, config.batch, config.seed)
    own = processes.rows(config.batch)
    for step in range(config.steps):
        x, labels, _ = batches.draw(step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x[own]), labels[own]).backward()
        optimizer.step()
    return model.state_dict()


def watched_data():
    """Return the training data and the validation split of the loop."""
    data = digits(train=40, val=21)
    return TensorDataset(data.train.x, data.train.y), data.val


def normed_network():
    torch.manual_seed(0)
    return normed((64,), 10)


def watched_loop(processes, folder):
    """Train a network with BatchNorm by DDP on a loader in shares, watched by all."""
    train_data, val = watched_data()
    model = normed_network()
    network = DistributedDataParallel(model)
    sampler = DistributedSampler(train_data, processes.count, processes.rank)
    loader = DataLoader(train_data, 5, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    every = {"every": 1, "processes": "all"}

    with Watch(network, None, loader, val, folder, **WATCHED, **every) as watch:
        for x, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(x), labels).backward()
            optimizer.step()
            watch.step()
    return model


class Unlucky(nn.Linear):
    """A network that one process cannot measure, once it is told so."""

    failing = False

    def forward(self, x):
        if self.failing:
            raise ZeroDivisionError("this process has no luck")
        return super().forward(x)


def measured_together(processes):
    """Let the last process fail while it measures; return what each process says of it."""
    data = torch.randn(8, 2, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 2
    model = Unlucky(2, 2)
    watch = Watch(model, None, data, processes="all", measure=(), every=1)
    model.failing = processes.rank == processes.count - 1
    try:
        watch.step()
    except (RuntimeError, ZeroDivisionError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def train_in_shares(out: Path, device: str = "cpu") -> dict[str, object]:
    """Train all that is compared, and return what else is asked of the processes."""
    processes = join(torch.device(device))
    runtime = Runtime(device)
    for config in (*configs(EQUAL).values(), *configs(ON_THEIR_SHARES).values()):
        train(config, out, runtime, data=data_of(config))
    train(SYNCED, out, Runtime(device, sync_batchnorm=True), data=data_of(SYNCED))
    train(BITS, out, runtime, data=data_of(BITS))
    torch.save(by_hand(BITS, processes), out / f"by_hand{processes.rank}.pt")

    model = watched_loop(processes, out / "watched")
    torch.save(model.state_dict(), out / f"watched{processes.rank}.pt")
    said: dict[str, object] = {"failed": measured_together(processes)}
    for name, config in configs(REFUSED).items():
        said[name] = refused(config, out, runtime)
    return said


def main(out: Path) -> None:
    """Train all, then lose the last process in the middle of a run."""
    torch.set_num_threads(1)
    processes = join(torch.device("cpu"))
    said = train_in_shares(out)
    (out / f"said{processes.rank}.json").write_text(json.dumps(said))
    if processes.rank == processes.count - 1:
        call_after(20, partial(os.kill, os.getpid(), signal.SIGKILL))
    train(LOST, out, Runtime("cpu", checkpoint=0.0))


def finish(out: Path) -> None:
    """Go on with the run that lost a process, with another number of them."""
    torch.set_num_threads(1)
    train(LOST, out, Runtime("cpu"))


if __name__ == "__main__":
    try:
        {"main": main, "finish": finish}[sys.argv[2]](Path(sys.argv[1]))
    except SystemExit as ended:
        end(ended.code)
    end(0)
