"""A run killed at any moment goes on to the same numbers, bit for bit; damage is stepped over."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from toosure.config import RunConfig
from toosure.runs import RunError
from toosure.train import ProgressListener, Runtime, train
from toosure.train.checkpoint import checkpoints, load_checkpoint

SMALL = {"data": "digits:train=100,val=60,noise=0.1", "model": "mlp:width=16", "batch": 32}
CPU = Runtime("cpu")


def timeless(rows):
    return [{k: v for k, v in row.items() if "seconds" not in k} for row in rows]


def weights(run):
    state, _ = load_checkpoint(run.path)
    return state["model"], state["optimizer"]["state"]


def equal(one, two):
    """Compare nested states bit for bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, two) and one.dtype == two.dtype
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(equal(one[k], two[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(equal, one, two))
    return one == two


def same_run(one, two):
    assert timeless(one.rows) == timeless(two.rows)
    assert equal(weights(one), weights(two))
    assert one.snapshots == two.snapshots
    for step in one.snapshots:
        pairs = zip(one.snapshot(step).values(), two.snapshot(step).values(), strict=True)
        assert all(a.tobytes() == b.tobytes() for a, b in pairs)


class Cut(Exception):
    """Stands for the power cut."""


class CutAt(ProgressListener):
    def __init__(self, step):
        self.at = step

    def row(self, row):
        if row["step"] >= self.at:
            raise Cut("power cut")


def interrupted(config, out, *steps, runtime=None):
    """Run with a cut after each of the given rows, then to the end."""
    runtime = runtime or Runtime("cpu", checkpoint=0.0)  # a checkpoint a step
    for step in steps:
        with pytest.raises(Cut):
            train(config, out, runtime, CutAt(step))
    return train(config, out, runtime)


OPTIMIZERS = [
    "sgd:lr=0.1,momentum=0.9",
    "adamw:lr=0.01",
    "muon:lr=0.02",
    "sam:base=adamw,rho=0.1,lr=0.01",
    "csam:lr=0.1,rho=0.1,momentum=0.9",
    "asam:lr=0.1",
    "vasso:lr=0.1",
    "bsam:lr=0.2",
    "bulksgd:lr=0.1,k=2",
    "gd:lr=0.5",
]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_resumes_bit_for_bit(optimizer, tmp_path):
    model = "own_model:noisy" if "bulk" not in optimizer else "mlp:width=16"
    settings = {**SMALL, "model": model, "optimizer": optimizer, "schedule": "cosine:warmup=3"}
    config = RunConfig(**settings, steps=10, every=5, seed=3)
    whole = train(config, tmp_path / "whole", CPU)
    same_run(interrupted(config, tmp_path / "cut", 5), whole)


@pytest.mark.slow
def test_everything_measured_resumes_bit_for_bit(tmp_path):
    measure = ("gn_sharpness", "hessian_sharpness", "kappa_min", "batch_sharpness", "jacobian_norm")
    config = RunConfig(**SMALL, steps=9, every=3, measure=measure)
    same_run(interrupted(config, tmp_path / "cut", 3, 6), train(config, tmp_path / "whole", CPU))


def test_killed_before_the_first_checkpoint_begins_again(tmp_path):
    config = RunConfig(**SMALL, steps=6, every=2)
    run = interrupted(config, tmp_path / "cut", 4, runtime=CPU)  # 30 s to the first checkpoint
    same_run(run, train(config, tmp_path / "whole", CPU))


def killed(config, tmp_path, kills, seed):
    script = Path(__file__).with_name("kill_often.py")
    words = [sys.executable, str(script), config.to_json(), str(tmp_path / "cut")]
    done = subprocess.run([*words, str(kills), str(seed)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(shown) == kills
    whole = timeless(train(config, tmp_path / "whole", CPU).rows)
    for rows in shown:  # at every kill, what could be seen is what an undisturbed run shows
        assert timeless(rows) == whole[: len(rows)]
    assert any(0 < len(rows) < len(whole) for rows in shown)
    same_run(train(config, tmp_path / "cut", CPU), train(config, tmp_path / "whole", CPU))


def test_kill_9_three_times(tmp_path):
    torch.set_num_threads(1)
    killed(
        RunConfig(**SMALL, optimizer="sam:lr=0.1,momentum=0.9", steps=100, every=5), tmp_path, 3, 0
    )


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd:lr=0.1,momentum=0.9", "csam:lr=0.1", "muon", "adamw"])
def test_kill_9_twenty_times(optimizer, tmp_path):
    torch.set_num_threads(1)
    config = RunConfig(data="digits:noise=0.1", optimizer=optimizer, steps=600, every=10)
    killed(config, tmp_path, 20, seed=len(optimizer))


# -- damage ---------------------------------------------------------------------------------


def test_truncated_checkpoint_falls_back_to_the_one_before(tmp_path):
    config = RunConfig(**SMALL, steps=12, every=3)
    with pytest.raises(Cut):
        train(config, tmp_path, Runtime("cpu", checkpoint=0.0), CutAt(9))
    files = checkpoints(tmp_path / config.name)
    assert [f.stem for f in files] == ["7", "8"]
    files[-1].write_bytes(files[-1].read_bytes()[:1000])
    said = []
    show = ProgressListener()
    show.message = said.append
    run = train(config, tmp_path, CPU, show)
    assert said == ["checkpoints/8.pt is damaged; resumed at step 7"]
    same_run(run, train(config, tmp_path / "whole", CPU))


def test_all_checkpoints_damaged_is_an_error_that_changes_nothing(tmp_path):
    config = RunConfig(**SMALL, steps=12, every=3)
    with pytest.raises(Cut):
        train(config, tmp_path, Runtime("cpu", checkpoint=0.0), CutAt(9))
    folder = tmp_path / config.name
    for file in checkpoints(folder):
        file.write_bytes(b"")
    rows = (folder / "metrics.jsonl").read_bytes()
    with pytest.raises(RunError, match=r"no checkpoint can be used .*move the folder away"):
        train(config, tmp_path, CPU)
    assert (folder / "metrics.jsonl").read_bytes() == rows


def test_a_checkpoint_cannot_run_code(tmp_path):
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "touched",))

    config = RunConfig(**SMALL, steps=4, every=2)
    with pytest.raises(Cut):
        train(config, tmp_path, Runtime("cpu", checkpoint=0.0), CutAt(4))
    for file in checkpoints(tmp_path / config.name):
        torch.save({"step": 1, "evil": Evil()}, file)
    with pytest.raises(RunError, match="no checkpoint can be used"):
        train(config, tmp_path, CPU)
    assert not (tmp_path / "touched").exists()


def test_torn_row_is_cut_and_measured_again(tmp_path):
    config = RunConfig(**SMALL, steps=12, every=3)
    with pytest.raises(Cut):
        train(config, tmp_path / "cut", Runtime("cpu", checkpoint=0.0), CutAt(9))
    with (tmp_path / "cut" / config.name / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 12, "train/lo')
    same_run(train(config, tmp_path / "cut", CPU), train(config, tmp_path / "whole", CPU))
