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

import torch

from toosure.config import RunConfig
from toosure.runs import Run
from toosure.train import ProgressListener, Runtime, train


def kill_often(config: RunConfig, out: Path, kills: int, moments: random.Random) -> None:
    path = out / config.name
    measured = config.steps // config.every
    for number in range(kills):
        target = measured * (number + moments.random()) / (kills + 2)  # all along the run
        child = os.fork()
        if child == 0:
            train(config, out, Runtime("cpu", checkpoint=0.02), NeverEnds(config))
            os._exit(0)
        while rows(path) < target and not ended(child):
            time.sleep(0.001)
        time.sleep(moments.uniform(0.0, 0.03))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            code = os.waitstatus_to_exitcode(status)
            sys.exit(f"the run ended (code {code}) after {number} kills")
        print(json.dumps(Run(path).rows), flush=True)


class NeverEnds(ProgressListener):
    """Kills its process before the end, should we come too late to do so."""

    def __init__(self, config: RunConfig) -> None:
        self.last = config.steps - config.every

    def row(self, row: dict[str, object]) -> None:
        if row["step"] >= self.last:
            os.kill(os.getpid(), signal.SIGKILL)


def rows(path: Path) -> int:
    file = path / "metrics.jsonl"
    return file.read_bytes().count(b"\n") if file.is_file() else 0


def ended(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


if __name__ == "__main__":
    torch.set_num_threads(1)
    kill_often(
        RunConfig.from_json(sys.argv[1]),
        Path(sys.argv[2]),
        int(sys.argv[3]),
        random.Random(int(sys.argv[4])),
    )
