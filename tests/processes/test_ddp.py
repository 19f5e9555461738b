"""A run on two processes equals that of one: rows, weights, its end; also killed and resumed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from compared import CLOSE, close, numbers
from ddp_cases import (
    BF16,
    BUDGET,
    DIVERGES,
    FEW,
    HALF,
    LOST,
    STOPPED,
    cases,
    data_of,
    few_cases,
    images,
    in_shards,
)
from ddp_pair import own_loop
from groups import ROOT, Group, environment, start
from torch import nn

from toosure.config import RunConfig
from toosure.processes import ALONE, Processes
from toosure.processes.whole_batch import as_whole_batch, whole_batch_layers
from toosure.runs import Run
from toosure.sweep import sweep
from toosure.sweep.sweep import wants_to_stop
from toosure.train import Runtime, train
from toosure.train.interrupt import Stop
from toosure.train.rank_zero import NullWriter, closed_run, open_run
from toosure.words.tables import TABLES
from waiting import LIMIT, wait_until

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="torch was built without gloo"
)
CPU = Runtime("cpu")
ONE_PAIR = pytest.mark.xdist_group("pair")  # one pytest worker runs all tests of the pair
PROC = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks into /proc")

# -- the table ------------------------------------------------------------------------------


@ONE_PAIR
@pytest.mark.parametrize("name", FEW)
def test_the_exact_scheme_equals_one_process(name, pair, alone):
    compare_exact(cases()[name], pair, alone)


@pytest.mark.slow
@ONE_PAIR
@pytest.mark.parametrize("name", cases())
def test_the_exact_scheme_equals_one_process_for_every_method(name, exact_pair, alone):
    compare_exact(cases()[name], exact_pair, alone)


def compare_exact(config, pair, alone):
    wanted = train(config, alone, CPU, data=data_of(config))
    assert wanted.status == "complete"
    found = pair.run(config)
    close(found, wanted)
    assert (found.environment["processes"], found.environment["engine"]) == (2, "exact")
    assert "processes" not in wanted.environment
    before, after = (wanted.rows[i]["train/loss"] for i in (0, -1))
    assert abs(before - after) > 1e-4  # it trains, so that equal rows say something
    for file in ("predictions.npz", *(["best.npz"] if "best" in config.measure else [])):
        arrays = [np.load(run.path / file) for run in (found, wanted)]
        assert arrays[0].files == arrays[1].files
        assert all(np.allclose(arrays[0][k], arrays[1][k], atol=CLOSE) for k in arrays[0].files)
    assert found.snapshots == wanted.snapshots


def test_docs_list_every_method():
    text = (ROOT / "docs" / "scale.md").read_text()
    listed = [name for kind in ("optimizer", "loss", "objective") for name in TABLES[kind]]
    assert not [name for name in listed if f"`{name}`" not in text]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_two_processes_on_one_gpu_equal_one(tmp_path):
    """They share it by gloo; NCCL wants a GPU for each."""
    torch.set_num_threads(1)
    with Group(2, "ddp_pair.py", tmp_path / "pair", "cuda:0", "few") as pair:
        for config in few_cases().values():
            wanted = train(config, tmp_path / "alone", Runtime("cuda:0"))
            close(pair.run(config), wanted, 1e-6)


# -- ends -----------------------------------------------------------------------------------


@ONE_PAIR
def test_a_run_that_diverges_ends_at_the_same_step(pair, alone):
    found, wanted = pair.run(DIVERGES), train(DIVERGES, alone, CPU)
    assert found.status == wanted.status == "diverged"
    assert found.outcome == wanted.outcome
    assert [row["step"] for row in found.rows] == [row["step"] for row in wanted.rows]


@ONE_PAIR
def test_a_budget_is_kept_by_one_clock(pair):
    found = pair.run(BUDGET)
    assert found.status == "complete" and found.rows[-1]["step"] == BUDGET.steps


@ONE_PAIR
def test_half_precision_is_close(pair, alone):
    found, wanted = pair.run(BF16), train(BF16, alone, CPU)
    assert found.last["train/loss"] == pytest.approx(wanted.last["train/loss"], rel=0.05)


@ONE_PAIR
def test_one_begins_and_two_finish(pair, alone):
    close(pair.run(HALF), train(HALF, alone, CPU))
    assert pair.run(HALF).environment["resumed"][0]["processes"] == 2


@ONE_PAIR
def test_two_begin_one_is_lost_and_one_finishes(pair, alone):
    """The second process ends without a word; the first says so, and does not wait for it."""
    interrupted = pair.done().run(LOST)
    assert pair.codes == [1, 9]
    assert "process 0 of 2 ends" in pair.said[0] and "Repeat the command" in pair.said[0]
    assert interrupted.status == "failed"
    reached = interrupted.outcome["step"]
    assert 0 < reached < LOST.steps
    finished = train(LOST, pair.out, CPU)
    assert finished.rows[0]["step"] == 0
    close(finished, train(LOST, alone, CPU))


@ONE_PAIR
def test_an_error_of_all_processes_fails_that_run_only(pair):
    pair.done()
    for rank in range(2):
        said = json.loads((pair.out / f"said{rank}.json").read_text())
        assert "validation data" in said["wrong"]
        assert said["compile"].startswith("compile works with DDP or in one process")


@ONE_PAIR
def test_all_stop_when_one_is_asked_to(pair, alone):
    pair.done()
    for rank in range(2):
        said = json.loads((pair.out / f"said{rank}.json").read_text())
        assert [said["stopped"], said["stopped again"]] == ["stopped", "complete"]
    close(pair.run(STOPPED), train(STOPPED, alone, CPU))


@ONE_PAIR
def test_a_request_to_stop_between_two_runs_reaches_all(pair):
    pair.done()
    for rank in range(2):
        said = json.loads((pair.out / f"said{rank}.json").read_text())
        assert said["between"] == [True, 1, {}]


class Broken(Processes):
    """Stands for processes of which one has gone."""

    def broadcast(self, value):
        raise RuntimeError("Connection closed by peer\nat line 5")

    def largest(self, *numbers):
        return self.broadcast(numbers)


@pytest.mark.parametrize(
    "ask",
    [
        lambda out, processes: open_run(HALF, out, processes),
        lambda out, processes: closed_run(NullWriter(out), processes),
        lambda out, processes: wants_to_stop(Stop(), processes),
    ],
    ids=["to open", "to close", "between runs"],
)
def test_a_lost_process_ends_the_others_with_a_message(ask, tmp_path):
    with pytest.raises(
        SystemExit, match=r"process 1 of 2 ends: another has ended or does not answer\."
    ):
        ask(tmp_path, Broken(1, 2))


@ONE_PAIR
def test_streamed_images_are_decoded_by_both(pair, alone):
    config = images(pair.out / "images")
    wanted = train(config, alone, CPU, data=data_of(config))
    close(pair.run(config), wanted)
    assert wanted.rows[0]["train/loss"] - wanted.last["train/loss"] > 1e-4


@ONE_PAIR
def test_shards_are_read_in_shares_by_ddp(pair, alone):
    config = in_shards(pair.out / "shards")
    wanted = train(config, alone, CPU, data=data_of(config))
    close(pair.run(config), wanted)
    assert wanted.rows[0]["train/loss"] - wanted.last["train/loss"] > 1e-4


@ONE_PAIR
def test_own_loop(pair, tmp_path):
    own_loop(tmp_path / "own")
    found, wanted = Run(pair.done().out / "own"), Run(tmp_path / "own")
    assert len(wanted.rows) == 3
    mine, other = (np.load(run.path / "predictions.npz")["val_logits"] for run in (found, wanted))
    assert mine.shape == (21, 10) and np.allclose(mine, other, rtol=CLOSE)
    for mine, other in zip(numbers(found.rows), numbers(wanted.rows), strict=True):
        assert mine == pytest.approx(other, rel=CLOSE, abs=CLOSE)


def test_workers_are_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="torchrun started 2 processes"):
        sweep([HALF], tmp_path, CPU, workers=2)


# -- the command ----------------------------------------------------------------------------

WORDS = {"data": "digits:train=100,val=60", "precision": "float64"}
WORDS |= {"optimizer": "sam:lr=0.05,momentum=0.9", "steps": 60, "every": 10, "batch": 32}


def torchrun(out, model):
    words = [w for k, v in {**WORDS, "model": model}.items() for w in (f"--{k}", str(v))]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "-m", "toosure", "train", *words, "--device", "cpu"]
    command += ["--out", str(out), "--checkpoint", "0", "--exact"]
    return subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def children(pid):
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


THREADS = """
import os, torch
from toosure.processes.group import join, leave
def gloo():
    tasks = os.listdir("/proc/self/task")
    return sum("gloo" in open(f"/proc/self/task/{task}/comm").read() for task in tasks)
join(torch.device("cpu")).largest(1)
print(gloo() > 0, end=" ")
leave()
print(gloo())
"""


@pytest.mark.slow
@PROC
def test_no_thread_of_gloo_outlives_the_group():
    """One that does may abort the process while Python shuts down."""
    for process in start(2, "-c", THREADS):
        said = process.communicate(timeout=LIMIT)[0]
        assert (process.returncode, said) == (0, "True 0\n")


ENDS = """
import atexit, os, sys
from toosure.processes.group import end
class Aborts:
    def __del__(self):
        os.abort()  # what gloo may do while Python shuts down
kept = Aborts()
atexit.register(print, "left in order")
for code in (None, 0, 3, "a word"):
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    else:
        end(code)
end(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="ends children of one process")
def test_a_process_ends_without_pythons_shutdown():
    """With no code, with a number, and with a sentence, which is said."""
    command = [sys.executable, "-c", ENDS]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    left = "left in order\n"
    assert done.stdout == f"{left}0\n{left}0\n{left}3\n{left}1\n{left}"
    assert (done.returncode, done.stderr) == (0, "a word\n")


@pytest.mark.slow
@PROC
def test_torchrun_killed_and_repeated_equals_one(tmp_path, alone):
    model = f"own_model:held,until={tmp_path / 'go'},after=70"  # 35 steps
    config = RunConfig(**WORDS, model=model)
    file = tmp_path / config.name / "metrics.jsonl"
    first = torchrun(tmp_path, model)
    wait_until(lambda: file.is_file() and file.read_bytes().count(b"\n") > 3, first)
    for pid in (first.pid, *children(first.pid)):
        os.kill(pid, signal.SIGKILL)
    first.communicate()
    killed = Run(tmp_path / config.name)
    assert killed.status == "interrupted" and len(killed.rows) == 4
    (tmp_path / "go").touch()
    again = torchrun(tmp_path, model)
    said = again.communicate(timeout=LIMIT)[0]
    assert again.returncode == 0, said
    assert "resumed at step" in said and said.count("complete at step 60") == 1
    close(Run(tmp_path / config.name), train(config, alone, CPU), 1e-6)


# -- the parts ------------------------------------------------------------------------------


def test_shares_cover_all_rows():
    for n in range(12):
        for count in (1, 2, 3, 5):
            shares = [Processes(rank, count).rows(n) for rank in range(count)]
            rows = [row for share in shares for row in range(n)[share]]
            sizes = [share.stop - share.start for share in shares]
            assert rows == list(range(n)) and max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 2, 2)])
def test_batch_norm_is_torchs(momentum, shape):
    kind = nn.BatchNorm1d if len(shape) == 2 else nn.BatchNorm2d
    found, wanted = (kind(3, momentum=momentum).double() for _ in range(2))
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    for _ in range(2):
        with as_whole_batch([found], len(x), ALONE):
            ours = found(x)
        theirs = wanted(x)
        assert torch.allclose(ours, theirs, atol=1e-12)
    gradients = [torch.autograd.grad(out.pow(3).sum(), x)[0] for out in (ours, theirs)]
    assert torch.allclose(*gradients, atol=1e-12)
    for ours, theirs in zip(found.buffers(), wanted.buffers(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-12)
    found.eval(), wanted.eval()
    with as_whole_batch([found], len(x), ALONE):
        assert torch.allclose(found(x), wanted(x), atol=1e-12)
    assert "forward" not in vars(found)


def test_batch_norm_without_running_statistics_is_refused():
    with pytest.raises(ValueError, match="BatchNorm1d without running statistics"):
        whole_batch_layers(nn.Sequential(nn.BatchNorm1d(2, track_running_stats=False)))
    assert len(whole_batch_layers(nn.Sequential(nn.BatchNorm1d(2)))) == 1


def test_batch_norm_has_second_derivatives():
    layer = nn.BatchNorm1d(2, track_running_stats=False).double()
    x = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    with as_whole_batch([layer], 4, ALONE):
        assert torch.autograd.gradgradcheck(layer, x)
