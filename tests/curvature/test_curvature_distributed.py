"""Two processes with half of the data each give the answers of one with all of it."""

import os
import tempfile

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from dense import make

from toosure.curvature import CurvatureTracker, batch_sharpness, gn_sharpness, gni, kappa_min, trace

BATCHES = {"rtol": 0.0, "batch": 6, "max_batches": 12}
VECTORS = {"rtol": 0.0, "max_vectors": 12}
SAMPLED = [*((of, BATCHES) for of in (batch_sharpness, gni)), (trace, VECTORS)]


def worker(rank: int, store: str, results: str) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    model, (x, y) = make("cnn with BatchNorm", n=21)
    mine = slice(0, 8) if rank == 0 else slice(8, None)  # unequal shards count by their size
    data, group = (x[mine], y[mine]), dist.group.WORLD
    tracker = CurvatureTracker(model, data, group=group)
    values = [tracker.measure()["gn_sharpness"].value for _ in range(6)]
    values.append(gn_sharpness(model, data, rtol=1e-8, group=group).value)
    values.append(kappa_min(model, data, rtol=1e-8, group=group).value)
    values += [of(model, data, group=group, **few).value for of, few in SAMPLED]
    torch.save(values, f"{results}/{rank}")
    dist.barrier()
    os._exit(0)  # gloo threads may abort an orderly exit


@pytest.mark.slow  # every day tests/processes compares the same with shares of one row more
@pytest.mark.skipif(not dist.is_gloo_available(), reason="torch was built without gloo")
def test_two_processes_equal_one():
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, (f"{folder}/store", folder), nprocs=2)
        first, second = (torch.load(f"{folder}/{rank}") for rank in range(2))
    assert first == second
    model, data = make("cnn with BatchNorm", n=21)
    tracker = CurvatureTracker(model, data)
    alone = [tracker.measure()["gn_sharpness"].value for _ in range(6)]
    alone += [m(model, data, rtol=1e-8).value for m in (gn_sharpness, kappa_min)]
    alone += [of(model, data, **few).value for of, few in SAMPLED]
    assert first == pytest.approx(alone, rel=1e-6)
