"""Runs on a real Ray cluster of two nodes: the same numbers, whoever dies on the way."""

import itertools
import json
import os
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
from groups import draw_images, environment
from test_resume import same_run
from test_sweep import CPU, Count, configs
from test_workers import ONE, Acting, Held
from typer.testing import CliRunner

from toosure.cli import app
from toosure.runs import Run, RunWriter
from toosure.sweep import Cluster, sweep
from toosure.sweep.driver import Driver
from toosure.sweep.folder_transfer import FolderPacker, unpack
from toosure.sweep.jobs import Jobs
from toosure.sweep.node import Mailbox, change_folder
from toosure.sweep.silence import SILENCE, SilenceWatch
from toosure.train import Runtime, train
from waiting import LIMIT, free_port, wait_until

EVERY_STEP = Runtime("cpu", checkpoint=0.0)
ONE_CLUSTER = pytest.mark.xdist_group("ray")  # workers of pytest share the cluster


def start_node(folder, *words):
    """Start a node with a CPU as `ray start` does, in a process group of its own."""
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
    start += ["--disable-usage-stats", "--node-ip-address", "127.0.0.1"]
    start += ["--num-cpus", "1", "--object-store-memory", str(80 * 2**20), *words]
    cache = tempfile.mkdtemp(dir=folder)  # of this node alone
    with open(folder / "log", "ab") as log:
        return subprocess.Popen(
            start,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=environment(TOOSURE_CACHE=cache),
        )


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


def count_nodes(address):
    """How many nodes the cluster has; none while it is half up, or half down."""
    import ray

    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port)), LIMIT).close()  # Ray would try it for long
        ray.init(address, logging_level="ERROR")
        return sum(node["Alive"] for node in ray.nodes())
    except Exception:
        return 0
    finally:
        ray.shutdown()


# However busy the machine is, Ray waits for its own processes and ends none for want of memory.
PATIENT = {
    "RAY_gcs_server_port_wait_time_s": "120",
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_memory_monitor_refresh_ms": "0",
}
# A node whose process is gone refuses the connection, and is noticed at the second check.
CHECKS = {
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 2,
    "health_check_timeout_ms": 120_000,
}


class Head:
    """The head of a cluster: no telemetry, no dashboard, quick to notice a dead node."""

    def __init__(self, folder):
        self.folder = folder
        for _ in range(5):  # Ray itself may fail to start beside other work
            port, client_port = free_port(), free_port()
            self.address, self.from_afar = f"127.0.0.1:{port}", f"ray://127.0.0.1:{client_port}"
            words = ["--head", "--port", str(port), "--ray-client-server-port", str(client_port)]
            words += ["--include-dashboard", "false", "--temp-dir", str(folder)]
            self.node = start_node(folder, *words, "--system-config", json.dumps(CHECKS))
            wait_until(lambda: self.node.poll() is not None or count_nodes(self.address) == 1)
            if self.node.poll() is None:
                return
        raise AssertionError((folder / "log").read_text())


@pytest.fixture(scope="module")
def head(ray_token):
    if not find_spec("ray"):
        pytest.skip("the extra `ray` is not installed")
    patch = pytest.MonkeyPatch()  # before Ray is imported
    for name, value in PATIENT.items():
        patch.setenv(name, value)
    head = Head(Path(tempfile.mkdtemp(prefix="ray-")))  # short: there are sockets in it
    yield head
    lose(head.node)
    patch.undo()
    shutil.rmtree(head.folder, ignore_errors=True)


@pytest.fixture
def second(head):
    """A second node."""
    node = start_node(head.folder, "--address", head.address)
    wait_until(lambda: count_nodes(head.address) == 2, node)
    yield node
    if node.poll() is None:
        lose(node)
    wait_until(lambda: count_nodes(head.address) == 1)  # the cluster has noticed


def ends_well(show, done, alone):
    """Every run complete exactly once, its rows those of the undisturbed one."""
    assert show.action is None and not done.stopped
    assert show.ended == ["complete"] * len(alone.runs)
    for one, other in zip(alone.runs, done.runs, strict=True):
        same_run(one, other)
        steps = [row["step"] for row in other.rows]
        assert steps == sorted(set(steps))


@pytest.mark.slow
@ONE_CLUSTER
def test_a_lost_worker_and_a_lost_node(head, second, tmp_path):
    held = Held(tmp_path, after=30)
    asked = configs(seed=[0, 1, 2], steps=[60], every=[20], model=[held.model])
    wrong = configs(data=["cifar10"])
    alone = held.alone(asked, tmp_path / "alone")

    def strike():
        workers = [int((path / "lock").read_text()) for path in show.reached]
        (on_head,) = set(workers) - family(second.pid)
        os.kill(on_head, signal.SIGKILL)
        lose(second)
        held.go.touch()

    show = Acting(strike, step=20)
    done = sweep([*asked, *wrong], tmp_path / "ray", EVERY_STEP, show, on=head.address)
    ends_well(show, done, alone)
    assert sum("its worker died" in message for message in show.said) == 2
    assert sum(step > 0 for _, step in show.begun) == 2  # both from their checkpoints
    assert list(done.failures) == [wrong[0].name]
    assert not list((tmp_path / "ray").glob(".sweep*"))


@ONE_CLUSTER
@pytest.mark.slow
@pytest.mark.parametrize("place", ["brought back", "in a storage"])
def test_a_lost_node_that_does_not_share_a_folder(place, head, second, tmp_path, monkeypatch):
    """Its runs go on from what the driver, or a storage, has of them."""
    monkeypatch.setenv("TOOSURE_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "ray" if place == "brought back" else f"file://{tmp_path}/ray"
    held = Held(tmp_path, after=100, seconds=0.1)
    asked = configs(seed=[0, 1, 2], steps=[800], every=[20], model=[held.model])
    alone = held.alone(asked, tmp_path / "alone")

    def strike():
        lose(second)
        held.go.touch()

    def brought_back(paths):
        folders = [tmp_path / "ray" / path.name for path in paths]
        return all(any(folder.glob("checkpoints/*.pt")) for folder in folders)

    show = Acting(strike, step=20, when=brought_back)
    done = sweep(asked, out, EVERY_STEP, show, on=Cluster(head.address, shared=False))
    done.runs = [Run(tmp_path / "ray" / run.name) for run in done.runs]  # with checkpoints
    ends_well(show, done, alone)
    assert any("its worker died" in message for message in show.said)
    assert any(step > 0 for _, step in show.begun)


@ONE_CLUSTER
@pytest.mark.slow
def test_a_node_that_falls_silent_is_explained_while_ray_waits_for_it(head, second, tmp_path):
    """Its processes stand still and keep their connections, as behind a cut cable."""
    held = Held(tmp_path, after=30)
    asked = configs(seed=[0, 1], steps=[60], every=[20], model=[held.model])
    alone = held.alone(asked, tmp_path / "alone")
    stopped = []

    def strike():
        for pid in family(second.pid):
            os.kill(pid, signal.SIGSTOP)
            stopped.append(pid)

    class Hearing(Acting):
        def message(self, message):
            super().message(message)
            if "was not heard of" in message:
                while stopped:
                    os.kill(stopped.pop(), signal.SIGCONT)
                held.go.touch()

    show = Hearing(strike, step=20)
    done = sweep(asked, tmp_path / "ray", EVERY_STEP, show, on=head.address)
    ends_well(show, done, alone)
    assert any("starts again elsewhere from its last checkpoint" in said for said in show.said)


def test_a_silent_run_is_named_once_and_again_after_it_was_heard():
    now = 0.0
    watch = SilenceWatch(clock=lambda: now)
    watch.hear(1)
    watch.hear(2)
    now = SILENCE - 1
    watch.hear(2)
    assert watch.newly_silent() == []
    now = SILENCE + 1
    assert watch.newly_silent() == [1] and watch.newly_silent() == []
    watch.hear(1)
    now = 3 * SILENCE
    assert sorted(watch.newly_silent()) == [1, 2]
    watch.forget(1)
    watch.hear(2)
    now = 5 * SILENCE
    assert watch.newly_silent() == [2]


@ONE_CLUSTER
@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "brought back"])
def test_ctrl_c_from_afar_leaves_what_a_repeat_finishes(head, second, tmp_path, shared):
    held = Held(tmp_path, after=300, seconds=0.3)
    asked = configs(seed=[0, 1], steps=[3000], every=[100], model=[held.model])
    alone = held.alone(asked, tmp_path / "alone")
    on = Cluster(head.from_afar, shared=shared)
    show = Acting(lambda: os.kill(os.getpid(), signal.SIGINT), runs=1)
    done = sweep(asked, tmp_path / "ray", CPU, show, on=on)
    assert done.stopped and done.failures == {}
    assert {run.status for run in done.runs} == {"stopped"}
    assert 100 <= max(run.outcome["step"] for run in done.runs) < 3000
    held.go.touch()
    again = sweep(asked, tmp_path / "ray", ONE)
    for one, other in zip(alone.runs, again.runs, strict=True):
        same_run(one, other)


class PressWhenWaiting(Count):
    """Presses Ctrl-C once it is said that no node can take the runs."""

    def message(self, message):
        super().message(message)
        if "waiting for one" in message:
            os.kill(os.getpid(), signal.SIGINT)


def too_long(number, frame):
    raise AssertionError("it did not stop")


@ONE_CLUSTER
def test_ctrl_c_does_not_wait_for_a_node_that_never_comes(head, tmp_path):
    show, before = PressWhenWaiting(), signal.signal(signal.SIGALRM, too_long)
    signal.alarm(int(LIMIT))
    try:
        on = Cluster(head.address, cpus_per_run=2, shared=False)
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


@ONE_CLUSTER
@pytest.mark.slow
def test_paths_and_modules_are_meant_from_where_the_driver_stands(head, tmp_path, monkeypatch):
    draw_images(tmp_path / "here" / "pictures")
    (tmp_path / "here" / "own_to_ray.py").write_text(OWN)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend(tmp_path / "here")
    data = ["imagefolder:path=pictures,size=8,val=6"]
    asked = configs(data=data, model=["own_to_ray:small"])
    alone = sweep(asked, tmp_path / "alone", ONE)
    two = Runtime("cpu", threads=2)
    own = {"threads": 1}
    done = sweep(asked, tmp_path / "ray", two, on=head.from_afar, changes=lambda _: own)
    assert done.failures == {}
    assert done.runs[0].environment["threads"] == 1
    same_run(alone.runs[0], done.runs[0])


def test_a_node_without_the_drivers_folder_refuses_a_relative_path(tmp_path):
    gone = tmp_path / "gone"
    (relative,) = configs(data=["imagefolder:path=pictures"])
    (absolute,) = configs(data=[f"imagefolder:path={tmp_path}"])
    assert f"no folder {gone}, in which pictures is meant" in change_folder(gone, relative)
    assert change_folder(gone, absolute) == change_folder(gone, configs()[0]) == ""


@ONE_CLUSTER
@pytest.mark.slow
def test_a_lost_mailbox_is_said_in_a_sentence(head, tmp_path):
    def strike():
        for pid in family(head.node.pid):
            with suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::Mailbox"):
                    os.kill(pid, signal.SIGKILL)

    held = Held(tmp_path, after=20, seconds=0.3)
    asked = configs(seed=[0], steps=[3000], every=[5], model=[held.model])
    with pytest.raises(ValueError, match=r"the cluster's head was lost .* repeat the command"):
        sweep(asked, tmp_path, CPU, Acting(strike, runs=1), on=head.address)


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


@ONE_CLUSTER
@pytest.mark.slow
def test_a_folder_that_cannot_be_made_is_said(head, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"cannot be written \(Not a directory\)"):
        sweep(configs(), tmp_path / "file" / "runs", CPU, on=head.address)


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
        (["--on", "no-such-host.invalid:6379"], "nothing answers at 'no-such-host.invalid:6379'"),
        (["--on", "ray://127.0.0.1:1"], "nothing answers at 'ray://127.0.0.1:1'"),
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
