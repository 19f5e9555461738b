"""Other engines by DDP and FSDP2: each process measures its share, and rows are those of one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from loops import Net, loader, problem

from toosure import Run, Watch
from waiting import LIMIT

pytest.importorskip("lightning")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")

HERE = Path(__file__).parent
SOURCES = (HERE, HERE.parent, HERE.parents[1] / "src")


def same_end(folder, name):
    """Both processes trained alike and watched; return the weights of the first."""
    first, second = (torch.load(folder / f"{name}-{rank}.pt") for rank in range(2))
    own, other = first.pop("weights"), second.pop("weights")
    assert first == second == {"watches": True, "steps": 8, "backend": "gloo", "processes": 2}
    parameters = [key for key in own if "running" not in key]  # each has its own half of the data
    assert all(torch.equal(own[key], other[key]) for key in parameters)
    return own


@pytest.mark.slow
def test_rows_of_two_processes_are_those_of_one(tmp_path):
    paths = os.pathsep.join(map(str, SOURCES))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node=2", str(HERE / "distributed_loops.py"), str(tmp_path)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**environment, "PYTHONPATH": paths},
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr

    names = ("lightning", "trainer", "accelerate", "lightning_fsdp2")
    assert {file.parent.name for file in tmp_path.rglob("metrics.jsonl")} == set(names)
    for name in names:
        run = Run(tmp_path / name)
        assert run.status == "ended" and [row["step"] for row in run.rows] == [0, 2, 4, 6, 8]
        net = Net()
        net.load_state_dict(same_end(tmp_path, name))
        alone = Watch(net, None, loader(), problem(41), measure=("gn_sharpness",), rtol=1e-6).last
        assert run.last.get("gathered") is (True if "fsdp2" in name else None)
        wanted = {key: value for key, value in alone.items() if "/" in key and "error" not in key}
        found = {key: run.last[key] for key in wanted}
        sharpness = {key: found.pop(key) for key in list(found) if "sharpness" in key}
        assert found == pytest.approx({key: wanted[key] for key in found}, rel=1e-6, abs=1e-6)
        assert sharpness == pytest.approx({key: wanted[key] for key in sharpness}, rel=1e-3)
