"""The callbacks in two real processes (gloo): both measure and train, the first writes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from loops import Net, problem

from toosure import Run, Watch
from waiting import LIMIT, free_port

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="torch was built without gloo"
)

HERE = Path(__file__).parent


def pair(*words):
    """Start the script in two processes of one group, and return their codes and what they said."""
    group = {
        **os.environ,
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "TORCHELASTIC_RUN_ID": "a test",  # by which Lightning knows torchrun
        "GROUP_RANK": "0",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONPATH": os.pathsep.join([str(HERE.parent), str(HERE.parents[1] / "src")]),
    }
    processes = [
        subprocess.Popen(
            [sys.executable, str(HERE / "callback_pair.py"), *words],
            env={**group, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [process.communicate(timeout=LIMIT)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [process.returncode for process in processes], said


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["lightning", "transformers"])
def test_the_first_process_writes_and_both_train(loop, tmp_path):
    pytest.importorskip(loop)
    codes, said = pair(str(tmp_path), loop)
    assert codes == [0, 0], said
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert (first.pop("watches"), second.pop("watches")) == (True, True)
    assert first == second == {"steps": 4, "backend": "gloo", "processes": 2}

    run = Run(tmp_path / "run")
    assert run.status == "ended" and [row["step"] for row in run.rows] == [0, 3, 4]
    assert list(tmp_path.rglob("metrics.jsonl")) == [tmp_path / "run" / "metrics.jsonl"]

    weights = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    parameters = [name for name in weights[0] if "running" not in name]  # each has its own half
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in parameters)

    # The last row is that of the network which the first process ended with.
    net = Net()
    net.load_state_dict(weights[0])
    again = Watch(net, None, problem(), problem(), measure=()).last
    keys = [key for key in again if key.startswith(("train/", "val/"))]
    found = {key: run.last[key] for key in keys}
    assert keys and found == pytest.approx({key: again[key] for key in keys}, rel=1e-6, abs=1e-6)
