"""Start a run, kill it with SIGKILL at random moments, again and again; print what was seen.

Arguments: the config as JSON, the folder of runs, how many kills, the seed of the moments.
The parent only forks and kills: it computes nothing, so that its children start clean and fast.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import sklearn.datasets  # noqa: F401  (loaded once, before the forks)
import torch

from toosure.config import RunConfig
from toosure.runs import Run
from toosure.train import Means, train

torch.set_num_threads(1)
config, out = RunConfig.from_json(sys.argv[1]), Path(sys.argv[2])
kills, moments = int(sys.argv[3]), random.Random(int(sys.argv[4]))
path = out / config.name
measured = config.steps // config.every


def rows() -> int:
    file = path / "metrics.jsonl"
    return file.read_bytes().count(b"\n") if file.is_file() else 0


for number in range(kills):
    target = measured * (number + moments.random()) / (kills + 2)  # all along the run
    child = os.fork()
    if child == 0:
        train(config, out, Means("cpu", checkpoint=0.02))
        os._exit(0)
    while (
        rows() < target and os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    ):
        time.sleep(0.001)
    time.sleep(moments.uniform(0.0, 0.03))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        sys.exit(f"the run ended (code {os.waitstatus_to_exitcode(status)}) after {number} kills")
    print(json.dumps(Run(path).rows), flush=True)
