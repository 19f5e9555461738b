"""Signals to a run: answered at once, obeyed after a checkpoint; a closed terminal is not one."""

import os
import signal
import socket
import subprocess
import sys

import pytest
from test_resume import CPU, SMALL, timeless

from toosure.config import RunConfig
from toosure.runs import Run
from toosure.train import ProgressListener, train
from toosure.train.interrupt import interruptible
from waiting import LIMIT, wait_until

SLOW_MODEL = """
import time
from math import prod
from pathlib import Path
from torch import nn

class Slow(nn.Linear):
    def forward(self, x):
        Path("measuring").touch()
        while not Path("go_on").exists():  # a measurement that takes for ever
            time.sleep(0.01)
        return super().forward(x)

def slow(inputs, classes):
    return nn.Sequential(nn.Flatten(), Slow(prod(inputs), classes))
"""

# One call of a library that never returns and, as torch's do, lets other threads run: a mutex
# that is locked already. No signal wakes it, and Python's handlers wait behind it.
STUCK_MODEL = """
import ctypes
from math import prod
from pathlib import Path
from torch import nn

class Stuck(nn.Linear):
    def forward(self, x):
        mutex = ctypes.create_string_buffer(64)
        lock = ctypes.CDLL(None).pthread_mutex_lock
        lock(mutex)
        Path("measuring").touch()
        lock(mutex)

def slow(inputs, classes):
    return nn.Sequential(nn.Flatten(), Stuck(prod(inputs), classes))
"""


@pytest.fixture
def model_source():
    return SLOW_MODEL


@pytest.fixture
def measuring(tmp_path, model_source):
    """A run in its first measurement, which goes on until there is a file `go_on`, or for ever."""
    (tmp_path / "slow_model.py").write_text(model_source)
    words = ["--data", "digits:train=60,val=40", "--model", "slow_model:slow", "--device", "cpu"]
    words += ["--steps", "4", "--measure", "none"]
    running = subprocess.Popen(
        [sys.executable, "-m", "toosure", "train", *words],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until((tmp_path / "measuring").exists, running, "the first measurement")
    yield running
    running.kill()
    running.communicate()


def only_run(folder):
    (path,) = (folder / "runs").iterdir()
    return Run(path)


def test_a_request_during_the_first_measurement_is_answered_and_then_obeyed(measuring, tmp_path):
    measuring.send_signal(signal.SIGTERM)
    said = measuring.stderr.readline()  # comes while the measurement still goes on
    assert said.startswith("toosure: SIGTERM: ") and "a second signal ends it at once" in said
    assert measuring.poll() is None
    (tmp_path / "go_on").touch()
    _, said = measuring.communicate(timeout=LIMIT)
    assert measuring.returncode == 130 and "repeat the command" in said
    run = only_run(tmp_path)
    assert run.status == "stopped" and [row["step"] for row in run.rows] == [0]


def test_a_second_signal_ends_at_once(measuring, tmp_path):
    measuring.send_signal(signal.SIGTERM)
    measuring.stderr.readline()
    measuring.send_signal(signal.SIGTERM)
    _, said = measuring.communicate(timeout=LIMIT)  # without `go_on`
    assert measuring.returncode == 130
    assert said == "Ended at once; repeat the command to go on from the last checkpoint.\n"
    assert only_run(tmp_path).status == "interrupted"


@pytest.mark.parametrize("model_source", [STUCK_MODEL])
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_signals_inside_one_long_call_are_answered_and_the_second_ends_it(
    measuring, tmp_path, number
):
    measuring.send_signal(number)
    said = measuring.stderr.readline()  # the call never returns
    assert said.startswith(f"toosure: {number.name}: ") and "a second signal ends it" in said
    assert measuring.poll() is None

    measuring.send_signal(number)
    _, said = measuring.communicate(timeout=LIMIT)
    assert measuring.returncode == 130
    assert said == "Ended at once; repeat the command to go on from the last checkpoint.\n"
    assert only_run(tmp_path).status == "interrupted"


def test_one_request_has_one_answer_and_a_child_keeps_its_own_signals(capfd):
    before = signal.getsignal(signal.SIGTERM)
    with interruptible() as stop:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7 and not stop.requested

        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(lambda: stop.received == stop.handled == 1)
        assert stop.requested
    assert capfd.readouterr().err.count("SIGTERM") == 1
    assert signal.getsignal(signal.SIGTERM) is before and signal.set_wakeup_fd(-1) == -1


def test_an_event_loop_keeps_the_signals_that_it_watches():
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno())
    try:
        with interruptible() as stop:
            os.kill(os.getpid(), signal.SIGTERM)
            assert reader.recv(1) == bytes([signal.SIGTERM]) and stop.requested
    finally:
        assert signal.set_wakeup_fd(-1) == writer.fileno()
        reader.close()
        writer.close()


def test_a_closed_terminal_stops_nothing(tmp_path, capfd):
    config = RunConfig(**SMALL, steps=6, every=2)

    class HangUp(ProgressListener):
        def row(self, row):
            if row["step"] == 2:
                os.kill(os.getpid(), signal.SIGHUP)

    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    try:
        run = train(config, tmp_path / "a", CPU, HangUp())
        assert run.status == "complete" and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)
    assert timeless(run.rows) == timeless(train(config, tmp_path / "b", CPU).rows)
    said = capfd.readouterr().err
    assert f"training goes on; `kill {os.getpid()}` stops it with a checkpoint" in said


def test_a_run_under_nohup_still_ignores_the_terminal(capfd):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert capfd.readouterr().err == ""
