"""Bytes that each process holds under FSDP2: parameters, gradients, optimizer state.

    PYTHONPATH=src python3 benchmarks/distributed_memory.py

An MLP of 3 x 2048 (10.5 M parameters, float32) is sharded layer by layer over 1, 2 and 4 gloo
processes and takes a step. Counted are the bytes of local shards after the step, in the process
that holds most. During a step SAM and its variants hold one more copy of the parameters' shards,
and FSDP2 gathers one layer at a time.
"""

import argparse
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from toosure.optim import CSAM, SAM, VASSO, Muon
from toosure.processes.dtensor import local_shards

WIDTH = 2048
METHODS = {
    "SGD, momentum": lambda m: torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.9),
    "AdamW": lambda m: torch.optim.AdamW(m.parameters(), lr=0.001),
    "SAM, SGD": lambda m: SAM(m.parameters(), rho=0.05, lr=0.01, momentum=0.9),
    "CSAM, AdamW": lambda m: CSAM(m.parameters(), torch.optim.AdamW, rho=0.05, lr=0.001),
    "VASSO, SGD": lambda m: VASSO(m.parameters(), rho=0.05, lr=0.01, momentum=0.9),
    "Muon": lambda m: Muon(m, lr=0.02),
}


def held_bytes(model, optimizer):
    """Return the bytes of a process's parameters, gradients and state."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    state = [v for s in optimizer.state.values() for v in s.values() if isinstance(v, Tensor)]
    tensors = [*model.parameters(), *gradients, *state]
    with torch.no_grad():
        return sum(t.nbytes for t in local_shards(tensors))


def step_of(model, optimizer, x, y):
    loss_of = optimizer.criterion() if isinstance(optimizer, CSAM) else nn.CrossEntropyLoss()

    def closure():
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        return loss

    return lambda: optimizer.step(closure)


def worker(rank, world, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meeting{world}", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (world,))
    found = {}
    for name, make in METHODS.items():
        torch.manual_seed(0)
        layers = [nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()]
        model = nn.Sequential(*layers, nn.Linear(WIDTH, WIDTH // 2))
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)

        optimizer = make(model)
        step = step_of(model, optimizer, torch.randn(8, WIDTH), torch.arange(8))
        step()
        found[name] = held_bytes(model, optimizer)

    torch.save(found, f"{folder}/{world}-{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--worlds", type=int, nargs="+", default=[1, 2, 4])
    worlds = parser.parse_args().worlds

    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for world in worlds:
            mp.spawn(worker, (world, folder), nprocs=world)
            files = [Path(folder) / f"{world}-{rank}.pt" for rank in range(world)]
            rows[world] = [torch.load(file) for file in files]

    print(
        "| optimizer | "
        + " | ".join(f"{w} process{'es' * (w > 1)}, MiB each" for w in worlds)
        + " |"
    )
    print("|---|" + "---|" * len(worlds))
    for name in METHODS:
        most = [max(rank[name] for rank in rows[world]) for world in worlds]
        print(f"| {name} | " + " | ".join(f"{held / 2**20:.1f}" for held in most) + " |")


if __name__ == "__main__":
    main()
