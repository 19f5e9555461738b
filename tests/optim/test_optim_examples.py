"""The examples of this room run, and are short; those of two processes as a user runs them."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from toosure import Run
from waiting import LIMIT

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

TWO = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")  # a free port


def run(*command, folder=None):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        env=environment,
        timeout=LIMIT,
        cwd=folder,
    )


@pytest.mark.parametrize("name", ["sam_plain", "sam_amp", "sam_ddp", "fsdp2_csam"])
def test_at_most_forty_lines(name):
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= 40


def test_plain_loop(capsys):
    runpy.run_path(str(EXAMPLES / "sam_plain.py"))
    out = capsys.readouterr().out
    assert float(re.search(r"test accuracy (\S+)", out)[1]) > 0.95


def test_mixed_precision(capsys):
    runpy.run_path(str(EXAMPLES / "sam_amp.py"))
    out = capsys.readouterr().out
    assert float(re.search(r"loss (\S+)", out)[1]) < 0.3


@pytest.mark.slow
def test_two_processes():
    """Not asked: the exit status (gloo may abort at exit, with plain SGD too) and whole lines."""
    done = run(*TWO, EXAMPLES / "sam_ddp.py")
    ranks = re.findall(r"rank (\d): weights agree: (True|False)", done.stdout)
    assert sorted(ranks) == [("0", "True"), ("1", "True")], done.stdout + done.stderr


@pytest.mark.slow
def test_sharded_by_fsdp2(tmp_path):
    done = run(*TWO, EXAMPLES / "fsdp2_csam.py", folder=tmp_path)
    accuracies = re.findall(r"rank \d: accuracy (\S+)", done.stdout)
    assert len(accuracies) == 2 and len(set(accuracies)) == 1, done.stdout + done.stderr
    assert float(accuracies[0]) > 0.85

    rows = Run(tmp_path / "runs" / "fsdp2").rows
    assert [row["step"] for row in rows] == [0, 25, 50, 75, 100]
    assert all(row["train/critical_sharpness"] > 0 for row in rows)
