"""The examples of this room run as a user runs them, and are short."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from waiting import LIMIT

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(*command):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=environment, timeout=LIMIT
    )


@pytest.mark.parametrize("name", ["sam_plain", "sam_amp", "sam_ddp"])
def test_at_most_forty_lines(name):
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= 40


def test_plain_loop():
    out = run(EXAMPLES / "sam_plain.py").stdout
    assert float(re.search(r"test accuracy (\S+)", out)[1]) > 0.95


def test_mixed_precision():
    out = run(EXAMPLES / "sam_amp.py").stdout
    assert float(re.search(r"loss (\S+)", out)[1]) < 0.3


@pytest.mark.slow
def test_two_processes():
    """Not asked: the exit status (gloo may abort at exit, with plain SGD too) and whole lines."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]  # a free port
    done = run(*launch, EXAMPLES / "sam_ddp.py")
    ranks = re.findall(r"rank (\d): weights agree: (True|False)", done.stdout)
    assert sorted(ranks) == [("0", "True"), ("1", "True")], done.stdout + done.stderr
