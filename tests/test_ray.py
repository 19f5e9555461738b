"""Runs on a real Ray cluster of two nodes: the same numbers, whoever dies on the way."""

import itertools
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from test_ddp import draw_images
from test_resume import same_run
from test_sweep import CPU, Count, configs
from test_workers import ONE, Watching, wait_until
from toosure.cli import app
from toosure.runs import RunWriter
from toosure.sweep import Cluster, sweep
from toosure.sweep.driver import Driver
from toosure.sweep.folder_transfer import FolderPacker, unpack
from toosure.sweep.jobs import Jobs
from toosure.sweep.node import Mailbox, change_folder
from toosure.train import Runtime, train

SLOW = Runtime("cpu", checkpoint=0.0)  # a checkpoint a step: some 5 ms


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


PORT, CLIENT_PORT = free_port(), free_port()
ADDRESS = f"127.0.0.1:{PORT}"


def start_node(folder, *words):
    """Start a node with a CPU as `ray start` does, in a process group of its own."""
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
    start += ["--disable-usage-stats", "--node-ip-address", "127.0.0.1"]
    start += ["--num-cpus", "1", "--object-store-memory", str(80 * 2**20), *words]
    with open(folder / "log", "ab") as log:
        return subprocess.Popen(start, stdout=log, stderr=log, start_new_session=True)


def family(pid):
    """Return a process and all that descend from it."""
    found = {pid}
    for _ in range(4):  # ray start, raylet, worker, and one to spare
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                if int(stat.read_text().rsplit(")")[-1].split()[1]) in found:
                    found.add(int(stat.parent.name))
    return found


def lose(node):
    """Take a node away at once, with all its processes, as a power cut does."""
    for pid in family(node.pid):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    node.wait()


def wait_for(count):
    """Wait until the cluster has so many nodes."""
    import ray

    def alive():
        try:
            ray.init(ADDRESS, logging_level="ERROR")
            return sum(node["Alive"] for node in ray.nodes()) == count
        except (ConnectionError, RuntimeError, AssertionError):  # half up, half down
            return False
        finally:
            ray.shutdown()

    wait_until(alive)


@pytest.fixture(scope="module")
def head():
    """The head of a cluster: no telemetry, no dashboard, quick to notice a dead node."""
    if not find_spec("ray"):
        pytest.skip("the extra `ray` is not installed")
    patch = pytest.MonkeyPatch()  # before Ray is imported: a token of our own, for all our nodes
    patch.setenv("RAY_AUTH_MODE", "token")
    patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    folder = Path(tempfile.mkdtemp(prefix="ray-"))  # short: there are sockets in it
    quick = {"health_check_period_ms": 500, "health_check_failure_threshold": 2}
    words = ["--head", "--port", str(PORT), "--ray-client-server-port", str(CLIENT_PORT)]
    words += ["--include-dashboard", "false", "--temp-dir", str(folder)]
    node = start_node(folder, *words, "--system-config", json.dumps(quick))
    wait_for(1)
    yield folder
    lose(node)
    patch.undo()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def second(head):
    """A second node."""
    node = start_node(head, "--address", ADDRESS)
    wait_for(2)
    yield node
    if node.poll() is None:
        lose(node)
    wait_for(1)  # the cluster has noticed


class Acting(Watching):
    """Does something once, when so many runs are under way that have reached a step."""

    def __init__(self, action, runs=2, step=8):
        super().__init__()
        self.action, self.runs, self.step = action, runs, step
        self.reached = set()

    def beside(self):
        lane = Lane()
        lane.whole = self
        return lane

    def reach(self, path):
        self.reached.add(path)
        if len(self.reached) == self.runs and self.action:
            action, self.action = self.action, None
            action()


class Lane(Watching):
    def begin(self, config, path, step):
        self.path = path
        self.whole.begin(config, path, step)

    def row(self, row):
        if row["step"] >= self.whole.step:
            self.whole.reach(self.path)

    def say(self, message):
        self.whole.say(message)

    def end(self, path, outcome):
        self.whole.reached.discard(path)
        self.whole.end(path, outcome)


def ends_well(show, done, alone):
    """Every run complete exactly once, its rows those of the undisturbed one."""
    assert show.action is None and not done.stopped
    assert show.ended == ["complete"] * len(alone.runs)
    for one, other in zip(alone.runs, done.runs, strict=True):
        same_run(one, other)
        steps = [row["step"] for row in other.rows]
        assert steps == sorted(set(steps))


def test_a_lost_worker_and_a_lost_node(second, tmp_path):
    asked = configs(seed=[0, 1, 2], steps=[800], every=[20])
    wrong = configs(data=["cifar10"])
    alone = sweep(asked, tmp_path / "alone", ONE)

    def strike():
        workers = [int((path / "lock").read_text()) for path in show.reached]
        (on_head,) = set(workers) - family(second.pid)
        os.kill(on_head, signal.SIGKILL)
        lose(second)

    show = Acting(strike, step=20)
    done = sweep([*asked, *wrong], tmp_path / "ray", SLOW, show, on=ADDRESS)
    ends_well(show, done, alone)
    assert sum("its worker died" in message for message in show.said) == 2
    assert sum(step > 0 for _, step in show.begun) == 2  # both from their checkpoints
    assert list(done.failures) == [wrong[0].name]
    assert not list((tmp_path / "ray").glob(".sweep*"))


@pytest.mark.slow
def test_a_lost_node_whose_folders_are_brought_back(second, tmp_path):
    asked = configs(seed=[0, 1, 2], steps=[800], every=[20])
    alone = sweep(asked, tmp_path / "alone", ONE)
    show = Acting(lambda: lose(second), step=100)
    done = sweep(asked, tmp_path / "ray", SLOW, show, on=Cluster(ADDRESS, shared=False))
    ends_well(show, done, alone)
    assert any("its worker died" in message for message in show.said)
    assert any(step > 0 for _, step in show.begun)


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "brought back"])
def test_ctrl_c_from_afar_leaves_what_a_repeat_finishes(second, tmp_path, shared):
    asked = configs(seed=[0, 1], steps=[3000], every=[100])
    alone = sweep(asked, tmp_path / "alone", ONE)
    on = Cluster(f"ray://127.0.0.1:{CLIENT_PORT}", shared=shared)
    show = Acting(lambda: os.kill(os.getpid(), signal.SIGINT), runs=1)
    done = sweep(asked, tmp_path / "ray", CPU, show, on=on)
    assert done.stopped and done.failures == {}
    assert {run.status for run in done.runs} == {"stopped"}
    assert 100 <= max(run.outcome["step"] for run in done.runs) < 3000
    again = sweep(asked, tmp_path / "ray", ONE)
    for one, other in zip(alone.runs, again.runs, strict=True):
        same_run(one, other)


class PressWhenWaiting(Count):
    """Presses Ctrl-C once it is said that no node can take the runs."""

    def say(self, message):
        super().say(message)
        if "waiting for one" in message:
            os.kill(os.getpid(), signal.SIGINT)


def too_long(number, frame):
    raise AssertionError("it did not stop")


def test_ctrl_c_does_not_wait_for_a_node_that_never_comes(head, tmp_path):
    show, before = PressWhenWaiting(), signal.signal(signal.SIGALRM, too_long)
    signal.alarm(30)
    try:
        on = Cluster(ADDRESS, cpus_per_run=2, shared=False)
        done = sweep(configs(seed=[0, 1]), tmp_path, CPU, show, on=on)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert done.stopped and done.failures == {} and done.runs == []
    assert sweep(configs(seed=[0]), tmp_path, CPU).failures == {}  # its folder is free


OWN = """from math import prod
from torch import nn


def small(inputs, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(inputs), classes))
"""


@pytest.mark.slow  # Ray itself may fail to start beside other work
def test_paths_and_modules_are_meant_from_where_the_driver_stands(head, tmp_path, monkeypatch):
    draw_images(tmp_path / "here" / "pictures")
    (tmp_path / "here" / "own_to_ray.py").write_text(OWN)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend(tmp_path / "here")
    data = ["imagefolder:path=pictures,size=8,val=6"]
    asked = configs(data=data, model=["own_to_ray:small"])
    alone = sweep(asked, tmp_path / "alone", ONE)
    done = sweep(asked, tmp_path / "ray", ONE, on=f"ray://127.0.0.1:{CLIENT_PORT}")
    assert done.failures == {}
    same_run(alone.runs[0], done.runs[0])


def test_a_node_without_the_drivers_folder_refuses_a_relative_path(tmp_path):
    gone = tmp_path / "gone"
    (relative,) = configs(data=["imagefolder:path=pictures"])
    (absolute,) = configs(data=[f"imagefolder:path={tmp_path}"])
    assert f"no folder {gone}, in which pictures is meant" in change_folder(gone, relative)
    assert change_folder(gone, absolute) == change_folder(gone, configs()[0]) == ""


@pytest.mark.slow
def test_a_lost_mailbox_is_said_in_a_sentence(head, tmp_path):
    def strike():
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if file.read_bytes().startswith(b"ray::Mailbox"):
                    os.kill(int(file.parent.name), signal.SIGKILL)

    asked = configs(seed=[0], steps=[3000], every=[5])
    with pytest.raises(ValueError, match=r"the cluster's head was lost .* repeat the command"):
        sweep(asked, tmp_path, CPU, Acting(strike, runs=1), on=ADDRESS)


def test_what_cannot_be_lent_fails_alone_and_only_the_held_one_waits(tmp_path):
    asked = configs(seed=[0, 1, 2])
    damaged, other, held = (tmp_path / config.name for config in asked)
    for folder, text in ((damaged, "no json"), (other, '{"steps": 5}')):
        folder.mkdir()
        (folder / "config.json").write_text(text)
    driver = object.__new__(Driver)  # no cluster: nothing gets there
    driver.jobs = Jobs(asked, tmp_path, Count(), patience=60)
    driver.shared, driver.slots, driver.references = False, lambda: 1, {}
    driver.numbers = itertools.count()
    with RunWriter(held):
        driver.submit_jobs()
    assert [job.folder for job in driver.jobs.waiting] == [held] and not driver.references
    reasons = [driver.jobs.failures[folder.name] for folder in (damaged, other)]
    assert "config.json cannot be read" in reasons[0] and "another run" in reasons[1]


@pytest.mark.slow  # Ray itself may fail to start beside other work
def test_a_folder_that_cannot_be_made_is_said(head, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"cannot be written \(Not a directory\)"):
        sweep(configs(), tmp_path / "file" / "runs", CPU, on=ADDRESS)


def test_without_ray_it_is_said_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"pip install 'toosure\[ray\]'"):
        sweep(configs(), tmp_path, CPU, on="ray")


def test_on_and_workers_exclude_each_other(tmp_path):
    with pytest.raises(ValueError, match="use one of the two"):
        sweep(configs(), tmp_path, CPU, workers=2, on="ray")


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ({"gpus_per_run": -1}, "must not be negative; got 1 and -1"),
        ({"cpus_per_run": float("nan")}, "must be finite .* got nan and 0"),
        ({"gpus_per_run": 1.5}, "a share of one or a whole number; got 1.5"),
        ({"address": ""}, "needs an address"),
    ],
)
def test_what_a_run_cannot_take_of_a_cluster(said, wrong):
    with pytest.raises(ValueError, match=wrong):
        Cluster(**said)


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["--cpus-per-run", "2"], "only with --on"),
        (["--gpus-per-run", "0"], "only with --on"),
        (["--on", ""], "needs an address"),
    ],
)
def test_what_a_command_says_of_a_cluster_it_does_not_name(words, wrong, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    few = ["--data", "digits:train=60,val=40", "--model", "mlp:width=8", "--steps", "2"]
    said = CliRunner().invoke(app, ["train", *few, *words, "--out", str(tmp_path / "runs")])
    assert said.exit_code == 2 and wrong in said.output
    assert not (tmp_path / "runs").exists()


def test_a_run_thought_dead_is_told_to_stop():
    mailbox = Mailbox()
    assert not mailbox.post(1, ["a"]) and not mailbox.post(2, [])
    mailbox.disown(1)
    assert mailbox.post(1, ["b"]) and not mailbox.post(2, [])
    assert mailbox.take() == [(1, ["a"]), (2, []), (1, ["b"]), (2, [])] and mailbox.take() == []
    mailbox.stop()
    assert mailbox.post(2, [])


def test_a_folder_travels_in_pieces(tmp_path):
    (config,) = configs(steps=[8], every=[2])
    run = train(config, tmp_path / "here", CPU)
    packer, there = FolderPacker(run.path), tmp_path / "there"
    load = packer.pack()
    unpack(load, there)
    (there / "notes.txt").write_text("mine")
    (run.path / "snapshots" / "0.npz").unlink()
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 9}\n')
    again = packer.pack()
    assert [name for name, _ in again.files] == ["metrics.jsonl"]
    unpack(again, there)
    for name in again.names:
        assert (there / name).read_bytes() == (run.path / name).read_bytes()
    assert not (there / "snapshots" / "0.npz").exists() and (there / "notes.txt").exists()
    order = [name.split("/")[0] for name, _ in load.files]
    assert order.index("metrics.jsonl") < order.index("checkpoints") < order.index("status.json")
