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

import sklearn.datasets  # noqa: F401  (loaded once, before the forks)
import torch

from toosure.config import RunConfig
from toosure.runs import Run
from toosure.train import Means, train
from toosure.train.show import Show


class Bell(Show):
    """Tell the parent that the loop is about to begin."""

    def __init__(self, pipe):
        self.pipe = pipe

    def begin(self, config, path, step):
        os.write(self.pipe, b"!")


torch.set_num_threads(1)
config, out = RunConfig.from_json(sys.argv[1]), sys.argv[2]
kills, moments = int(sys.argv[3]), random.Random(int(sys.argv[4]))
path = os.path.join(out, config.name)
done = 0
while done < kills:
    listen, pipe = os.pipe()
    child = os.fork()
    if child == 0:
        train(config, out, Means("cpu", checkpoint=0.03), Bell(pipe))
        os._exit(0)
    os.close(pipe)
    if moments.random() < 0.8:  # the others die on their way in
        os.read(listen, 1)
    time.sleep(moments.uniform(0.0, 0.5))
    os.close(listen)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        sys.exit(f"the run ended (code {os.waitstatus_to_exitcode(status)}) after {done} kills")
    done += 1
    rows = Run(path).rows if os.path.isdir(path) else []
    print(json.dumps(rows), flush=True)
