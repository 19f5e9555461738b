"""Two gloo processes, half a batch each, against one process with the whole batch."""

import os
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

sys.path.insert(0, str(Path(__file__).parent))  # a spawned process starts without it

from slow_optimizers import batches, make_mlp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from toosure.optim import ASAM, BSAM, CSAM, SAM, VASSO

CASES = {
    "sam": lambda p: SAM(p, rho=0.1, lr=0.1, momentum=0.9),
    "csam": lambda p: CSAM(p, rho=0.1, gamma=2.0, lr=0.1),
    "asam": lambda p: ASAM(p, rho=0.5, lr=0.1),
    "vasso": lambda p: VASSO(p, rho=0.1, theta=0.5, lr=0.1),
    "bsam": lambda p: BSAM(p, lr=0.1, data_size=100),
}


def run(name, wrap, cut):
    """Train five steps; return the weights at w and at w + eps of each step."""
    model = make_mlp()
    net = wrap(model)
    optimizer = CASES[name](model.parameters())
    loss_of = optimizer.criterion() if name == "csam" else nn.CrossEntropyLoss()
    points = []
    for inputs, labels in batches("mlp", 5):

        def closure(inputs=inputs, labels=labels):
            points.append(nn.utils.parameters_to_vector(model.parameters()).detach().clone())
            loss = loss_of(net(cut(inputs)), cut(labels))
            loss.backward()
            return loss

        optimizer.step(closure)
    return torch.stack(points)


def worker(rank, folder):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=2)
    found = {name: run(name, DistributedDataParallel, lambda t: t.chunk(2)[rank]) for name in CASES}
    torch.save(found, f"{folder}/rank{rank}.pt")
    dist.barrier()
    os._exit(0)  # gloo's threads may abort an interpreter that ends in order, with plain SGD too


@pytest.mark.slow  # every day tests/processes/test_shares.py compares the same optimizers
@pytest.mark.skipif(not dist.is_available(), reason="torch was built without torch.distributed")
def test_two_processes_equal_one(tmp_path):
    mp.spawn(worker, (str(tmp_path),), nprocs=2)
    first, second = (torch.load(tmp_path / f"rank{rank}.pt") for rank in (0, 1))
    for name in CASES:
        alone = run(name, lambda model: model, lambda t: t)
        assert torch.equal(first[name], second[name]), f"{name}: ranks differ"
        assert (first[name] - alone).abs().max() < 1e-12, name
        assert not torch.equal(alone[0], alone[1])
