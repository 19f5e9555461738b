"""Runs side by side: the same numbers, and whoever is killed, nothing is lost."""

import os
import queue
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from groups import draw_images, environment
from test_resume import same_run, timeless
from test_sweep import CPU, Count, configs

from toosure.runs import Run, RunWriter, find_runs
from toosure.runs.files import is_locked
from toosure.sweep import sweep
from toosure.sweep.jobs import Jobs, RunOutcome
from toosure.sweep.pool import settings_of
from toosure.train import Runtime, train
from waiting import LIMIT, wait_until

ONE = Runtime("cpu", threads=1)
EVERY_STEP = Runtime("cpu", threads=1, checkpoint=0.0)


class Watching(Count):
    """Notes which runs begin, row by row, in this process."""

    def __init__(self):
        super().__init__()
        self.paths = []

    def begin(self, config, path, step):
        super().begin(config, path, step)
        self.paths.append(path)


def test_rows_equal_those_of_one_process_bit_for_bit(tmp_path):
    """Also where other runs are there already, cannot be read, or lack their data."""
    asked = configs(data=["digits:train=60,val=40", "cifar10"], seed=[0, 1, 2])
    (unreadable,) = configs(seed=[3])
    show = Watching()
    alone = sweep(asked[1:3], tmp_path / "alone", ONE)
    sweep([asked[0], unreadable], tmp_path / "beside", ONE)
    (tmp_path / "beside" / unreadable.name / "status.json").write_text("no json")
    done = sweep([unreadable, *asked], tmp_path / "beside", ONE, show, workers=2)
    assert [run.name for run in done.runs] == [config.name for config in asked[:3]]
    assert sorted(show.begun) == [(1, 0), (2, 0)] and show.ended == ["complete"] * 3
    assert done.failures.keys() == {config.name for config in (unreadable, *asked[3:])}
    assert "status.json" in done.failures[unreadable.name]
    for one, other in zip(alone.runs, done.runs[1:], strict=True):
        same_run(one, other)
        assert other.environment["threads"] == 1
        assert other.environment["command"] == one.environment["command"]


class Acting(Watching):
    """Does something once, when so many runs are under way that have reached a step.

    `when` may ask for more of their folders.
    """

    def __init__(self, action, runs=2, step=8, when=lambda paths: True):
        super().__init__()
        self.action, self.runs, self.step, self.when = action, runs, step, when
        self.reached = set()

    def for_concurrent_run(self):
        return Lane(self)

    def reach(self, path):
        self.reached.add(path)
        if self.action and len(self.reached) == self.runs and self.when(self.reached):
            action, self.action = self.action, None
            action()


class Lane(Watching):
    """Is told of one of the runs, and passes it on."""

    def __init__(self, whole):
        super().__init__()
        self.whole = whole

    def begin(self, config, path, step):
        self.path = path
        self.whole.begin(config, path, step)

    def row(self, row):
        if row["step"] >= self.whole.step:
            self.whole.reach(self.path)

    def message(self, message):
        self.whole.message(message)

    def end(self, path, outcome):
        self.whole.reached.discard(path)
        self.whole.end(path, outcome)


class Held:
    """Runs of a network that stands still after some steps, until `go` is made."""

    def __init__(self, folder, after, seconds=3600.0):
        self.go = folder / "go"
        self.model = f"own_model:held,until={self.go},after={after},seconds={seconds}"

    def alone(self, asked, out):
        """Carry out the runs without a stop, one after another."""
        self.go.touch()
        done = sweep(asked, out, ONE)
        self.go.unlink()
        return done


def test_a_killed_worker_loses_nothing_and_a_deadly_run_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("toosure.sweep.jobs.MAX_TRIES", 2)  # each of them starts a process
    held, killed = Held(tmp_path, after=8), []
    fair = configs(seed=[0, 1], steps=[30], every=[2], model=[held.model])
    deadly = configs(model=["own_model:deadly"])
    alone = held.alone(fair, tmp_path / "alone")

    def strike():
        (path,) = show.reached
        killed.append(int((path / "lock").read_text()))
        os.kill(killed[0], signal.SIGKILL)
        held.go.touch()

    show = Acting(strike, runs=1, step=6)
    done = sweep([fair[0], *deadly, fair[1]], tmp_path / "cut", EVERY_STEP, show, workers=2)
    assert killed and killed != [os.getpid()]
    for one, other in zip(alone.runs, done.runs, strict=True):
        same_run(one, other)
    assert show.ended == ["complete"] * 2
    again = [step for seed, step in show.begun if step]
    assert len(again) == 1 and again[0] >= 5  # it went on from the checkpoint, not from the start
    (reason,) = done.failures.values()
    assert "killed (SIGKILL), 2 times" in reason
    assert Run(tmp_path / "cut" / deadly[0].name).status == "failed"


def command(out, seeds="0..1", model="mlp:width=8"):
    words = [sys.executable, "-m", "toosure", "train", "--data", "digits:train=60,val=40"]
    words += ["--model", model, "--steps", "3000", "--every", "50", "--measure", "none"]
    words += ["--seed", seeds]
    words += ["--device", "cpu", "--threads", "1", "--workers", "2", "--out", str(out)]
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment()
    )


def rows_in(out):
    """How many rows each run has."""
    files = sorted(Path(out).glob("*/metrics.jsonl"))
    return [file.read_bytes().count(b"\n") for file in files]


def grown(out, before):
    """Whether all these runs have more than three rows beyond those they had."""
    now = rows_in(out)
    return len(now) == len(before) and all(n > b + 3 for n, b in zip(now, before, strict=True))


@pytest.mark.slow
def test_ctrl_c_and_a_killed_parent_leave_what_a_repeat_finishes(tmp_path):
    cut, held = tmp_path / "cut", Held(tmp_path, after=300, seconds=0.3)
    first = command(cut, model=held.model)
    wait_until(lambda: grown(cut, [0, 0]), first)
    first.send_signal(signal.SIGINT)
    said, _ = first.communicate(timeout=LIMIT)
    assert first.returncode == 130, said
    assert "stopping: the runs write checkpoints" in said and "repeat the command" in said
    assert [run.status for run in find_runs(cut)] == ["stopped"] * 2

    before = rows_in(cut)
    second = command(cut, model=held.model)
    wait_until(lambda: grown(cut, before), second)
    second.kill()
    second.communicate(timeout=LIMIT)
    wait_until(lambda: not any(is_locked(run.path) for run in find_runs(cut)))
    assert [run.status for run in find_runs(cut)] == ["stopped"] * 2  # each with a checkpoint
    assert all(run.outcome["step"] > 300 for run in find_runs(cut))

    asked = configs(seed=[0, 1], steps=[3000], every=[50], measure=[()], model=[held.model])
    alone = held.alone(asked, tmp_path / "alone")
    held.go.touch()
    done = sweep(asked, cut, ONE)
    for one, other in zip(alone.runs, done.runs, strict=True):
        same_run(one, other)
        steps = [row["step"] for row in other.rows]
        assert steps == sorted(set(steps))


@pytest.mark.slow
def test_two_sweeps_share_a_folder(tmp_path):
    both = [command(tmp_path / "both", "0..4") for _ in range(2)]
    said = [process.communicate(timeout=LIMIT)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    asked = configs(seed=range(5), steps=[3000], every=[50], measure=[()])
    for run in sweep(asked, tmp_path / "alone", ONE).runs:
        other = Run(tmp_path / "both" / run.name)
        assert sum(text.count(f"begun at step 0: {other.path}") for text in said) == 1
        same_run(run, other)


def test_a_run_of_another_process_is_left_to_it(tmp_path):
    asked, show = configs(seed=[0, 1]), Count()
    with RunWriter(tmp_path / asked[0].name):
        done = sweep(asked, tmp_path, CPU, show)
    assert [run.name for run in done.runs] == [asked[1].name]
    assert "is held by an earlier" in done.failures[asked[0].name]
    assert sweep(asked, tmp_path, CPU).failures == {}


def test_busy_runs_are_tried_again_while_patience_lasts(tmp_path):
    jobs = Jobs(configs(seed=[0]), tmp_path, Count(), patience=0.6)
    tries = 0
    while jobs.left:
        if job := jobs.next():
            tries += 1
            jobs.record(job, RunOutcome("busy", "it is busy"))
        time.sleep(0.01)
    assert tries in (2, 3) and list(jobs.sweep().failures.values()) == ["it is busy"]


def test_the_end_is_told_once_though_the_worker_died_after_it(tmp_path):
    (config,), show = configs(), Count()
    path = train(config, tmp_path, CPU).path
    jobs = Jobs([config], tmp_path, show)
    end = {"event": "end", "path": str(path), "outcome": Run(path).outcome}
    for result in (RunOutcome("died", "lost"), RunOutcome("ended", "complete")):
        job = jobs.next()
        jobs.receive(job, end)
        jobs.record(job, result)
    assert show.ended == ["complete"] and len(jobs.sweep().runs) == 1 and not jobs.left


def test_a_mistake_in_somebodys_code_is_told_with_its_place(tmp_path):
    show = Count()
    done = sweep(configs(model=["own_model:mistaken", "mlp:width=8"]), tmp_path, CPU, show)
    assert len(done.runs) == 1
    assert list(done.failures.values()) == ["ZeroDivisionError: division by zero"]
    assert "own_model.py" in show.said[0]
    (file,) = tmp_path.glob("*/traceback.txt")
    assert "own_model.py" in file.read_text(encoding="utf-8")


def test_workers_share_the_cores_and_the_gpus(monkeypatch):
    from toosure.sweep import pool

    monkeypatch.setattr(pool, "available_cores", lambda: 8)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    assert [settings_of(0, CPU, n)["threads"] for n in (2, 3, 16)] == [4, 2, 1]
    assert settings_of(0, Runtime("cpu", threads=5), 4)["threads"] == 5
    automatic = Runtime()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [settings_of(n, automatic, 3)["device"] for n in range(3)] == [
        "cuda:0",
        "cuda:1",
        "cuda:0",
    ]
    assert settings_of(1, CPU, 3)["device"] == "cpu"
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)  # the user said OMP_NUM_THREADS=1
    assert settings_of(0, CPU, 2)["threads"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("said", ["no json", "[]"])
def test_a_run_that_cannot_be_read_fails_alone(tmp_path, said):
    asked = configs(seed=[0, 1])
    for config in asked:
        train(config, tmp_path, CPU)
    (tmp_path / asked[0].name / "status.json").write_text(said)
    done = sweep(asked, tmp_path, CPU, workers=2)
    assert [run.name for run in done.runs] == [asked[1].name]
    assert "status.json" in done.failures[asked[0].name]


def test_decoders_share_the_cores(monkeypatch, tmp_path):
    from toosure.sweep import pool
    from toosure.train import loading

    draw_images(tmp_path / "images")
    (config,) = configs(data=[f"imagefolder:path={tmp_path / 'images'},size=8,stream=true"])
    monkeypatch.setattr(loading, "usable_cores", lambda: 8)
    monkeypatch.setattr(pool, "available_cores", lambda: 8)
    assert [settings_of(0, CPU, n)["decoders"] for n in (2, 3, 16)] == [4, 2, 1]

    def decoders(runtime):
        return loading.load_data(config, runtime).stream.x.workers

    assert decoders(CPU) == 8 and decoders(Runtime(**settings_of(0, CPU, 3))) == 2
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    assert decoders(CPU) == 2


FORKS = """
import os, signal, sys
from toosure.sweep import worker

def fork(*arguments):
    if os.fork() == 0:
        signal.pause()
    os.kill(os.getpid(), signal.SIGKILL)

worker.run_one = fork
worker.main()
"""


def test_a_worker_that_dies_is_noticed_though_its_decoders_live(tmp_path, monkeypatch):
    from toosure.sweep import pool

    monkeypatch.setattr(pool, "START", FORKS)
    said = queue.Queue()
    worker = pool.Worker(0, tmp_path, settings_of(0, CPU, 1), said)
    try:
        worker.take(Jobs(configs(), tmp_path, Count()).next())
        assert said.get(timeout=LIMIT) == (worker, None)  # its output has ended
        assert worker.wait() == "its worker was killed (SIGKILL)"
    finally:
        with suppress(OSError):
            os.killpg(worker.process.pid, signal.SIGKILL)  # the child that lives on


def test_torchrun_and_workers_exclude_each_other(monkeypatch, tmp_path):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="use one of the two"):
        sweep(configs(), tmp_path, CPU, workers=2)
    with pytest.raises(ValueError, match="workers must be at least 1; got 0"):
        sweep(configs(), tmp_path, CPU, workers=0)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_may_have_a_runtime_of_its_own(tmp_path, workers):
    def changes(config):
        return {"threads": 2} if config.seed == 1 else {}

    done = sweep(configs(seed=[0, 1, 2]), tmp_path, ONE, workers=workers, changes=changes)
    assert [run.environment["threads"] for run in done.runs] == [1, 2, 1]


def test_threads_are_set_for_a_run_and_put_back(tmp_path):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        (run,) = sweep(configs(), tmp_path, ONE).runs
        assert run.environment["threads"] == 1 and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert timeless(run.rows)
    for threads in (0, 100_000):
        with pytest.raises(ValueError, match="threads must be from 1 to 1,024; got"):
            Runtime("cpu", threads=threads)
