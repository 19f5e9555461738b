"""Runs in a storage: equal to those of a folder, killed anywhere and resumed by another machine."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from toosure import Watch
from toosure.cli import app
from toosure.config import RunConfig
from toosure.runs import Run, RunError, RunFolder, RunWriter, find_runs, stored_folder
from toosure.runs import storage as storage_module
from toosure.runs.storage import StorageError, as_url, check_local, local_folder
from toosure.runs.stored_folder import StoredFolder
from toosure.sweep import sweep
from toosure.train import ProgressListener, Runtime, train
from toosure.train.checkpoint import checkpoints, load_checkpoint

fsspec = pytest.importorskip("fsspec")

CPU = Runtime("cpu", checkpoint=0.0)
CONFIG = RunConfig(data="digits:train=60,val=30", model="mlp:width=4", steps=6, every=1, measure=())
SHARED = Path(__file__).parents[1]


@pytest.fixture
def on_node(tmp_path, monkeypatch):
    """Return a function after which this process works as another machine: with another cache."""

    def change(name):
        monkeypatch.setenv("TOOSURE_CACHE", str(tmp_path / name))

    change("first")
    return change


@pytest.fixture(params=["memory", "file"])
def url(request, tmp_path, on_node):
    """The URL of an empty storage."""
    if request.param == "file":
        yield f"file://{tmp_path}/storage/runs"
        return
    files = fsspec.filesystem("memory")
    files.store.clear()
    yield "memory://bucket/runs"
    files.store.clear()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The run in a plain folder."""
    return train(CONFIG, tmp_path_factory.mktemp("plain"), CPU)


def files_of(url):
    """Return the names of all files of a storage."""
    files, root = fsspec.core.url_to_fs(url)
    return sorted(path.removeprefix(root).lstrip("/") for path in files.find(root))


def read(url, name):
    files, root = fsspec.core.url_to_fs(url)
    return files.cat_file(f"{root}/{name}")


def check_equal(run, wanted):
    """Rows and the last checkpoint are equal bit for bit, but for times."""

    def numbers(rows):
        return [{k: v for k, v in row.items() if "seconds" not in k} for row in rows]

    assert run.status == wanted.status == "complete"
    assert numbers(run.rows) == numbers(wanted.rows)
    found, expected = (load_checkpoint(each.path)[0] for each in (run, wanted))
    for part in ("model", "optimizer"):
        assert str(found[part]) == str(expected[part])
    assert all(map(torch.equal, found["model"].values(), expected["model"].values()))


class Killed(Exception):
    """Stands for the end of a machine."""


class KilledAt(ProgressListener):
    """End the machine at a row: nothing is uploaded any more."""

    def __init__(self, step, monkeypatch):
        self.at = step
        self.monkeypatch = monkeypatch

    def row(self, row):
        if row["step"] == self.at:
            for name in ("upload", "close"):
                self.monkeypatch.setattr(StoredFolder, name, lambda folder: None)
            raise Killed


def train_until_killed(url, step, on_node):
    """Train on a machine that dies at a row, then change to another one."""
    with pytest.MonkeyPatch.context() as monkeypatch, pytest.raises(Killed):
        train(CONFIG, url, CPU, KilledAt(step, monkeypatch))
    on_node("second")


def test_a_run_in_a_storage_is_that_of_a_folder(url, undisturbed):
    run = train(CONFIG, url, CPU)
    check_equal(run, undisturbed)
    plain = [f for f in files_of(f"file://{undisturbed.path}") if f != "lock"]
    assert files_of(f"{url}/{CONFIG.name}") == plain
    assert read(url, f"{CONFIG.name}/metrics.jsonl") == (run.path / "metrics.jsonl").read_bytes()


def test_a_killed_run_is_finished_by_another_machine(url, undisturbed, on_node):
    train_until_killed(url, 4, on_node)
    killed = Run(f"{url}/{CONFIG.name}")
    assert killed.status == "running" and killed.last["step"] < 6  # as far as is known
    assert not (killed.path / "checkpoints").exists()  # readers leave them where they are

    said = []
    listener = ProgressListener()
    listener.message = said.append
    finished = train(CONFIG, url, CPU, listener)
    assert said == ["resumed at step 3"]
    check_equal(finished, undisturbed)
    assert Run(f"{url}/{CONFIG.name}").status == "complete"
    assert not any("part" in name or "writer" in name for name in files_of(url))


def test_a_half_uploaded_checkpoint_is_stepped_over(url, undisturbed, on_node):
    train_until_killed(url, 5, on_node)
    files, root = fsspec.core.url_to_fs(f"{url}/{CONFIG.name}")
    whole = files.cat_file(f"{root}/checkpoints/4.pt")
    files.pipe_file(f"{root}/checkpoints/4.pt", whole[: len(whole) // 2])

    said = []
    listener = ProgressListener()
    listener.message = said.append
    check_equal(train(CONFIG, url, CPU, listener), undisturbed)
    assert said == ["checkpoints/4.pt is damaged; resumed at step 3"]


@pytest.mark.parametrize("breaks", ["metrics.jsonl", "checkpoints/3.pt", "status.json"])
def test_an_upload_that_breaks_off_leaves_what_can_continue(breaks, url, undisturbed, on_node):
    """The file under way arrives by half; it is the last that the machine does."""

    def put(folder, name, whole=StoredFolder.put):
        reached = [int(file.stem) for file in checkpoints(folder.folder)]
        if name != breaks or max(reached, default=0) < 3:
            return whole(folder, name)
        target = folder.path(name) if "checkpoints" in name else folder.path(f".{name}.part")
        content = (folder.folder / name).read_bytes()
        folder.files.pipe_file(target, content[: len(content) // 2])
        monkeypatch.setattr(StoredFolder, "close", lambda folder: None)
        monkeypatch.setattr(StoredFolder, "upload", lambda folder: None)
        raise Killed

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(StoredFolder, "put", put)
        with pytest.raises(Killed):
            train(CONFIG, url, CPU)
    on_node("second")
    check_equal(train(CONFIG, url, CPU), undisturbed)


def test_a_process_that_is_killed_in_truth(tmp_path, undisturbed, on_node):
    """The command, killed by SIGKILL, and repeated elsewhere."""
    code = (
        "import os, signal, sys; from toosure.config import RunConfig;"
        "from toosure.train import Runtime, ProgressListener, train;"
        "listener = ProgressListener();"
        "listener.row = lambda row: row['step'] == 3 and os.kill(os.getpid(), signal.SIGKILL);"
        f"config = RunConfig.read({str(undisturbed.path)!r});"
        "train(config, sys.argv[1], Runtime('cpu', checkpoint=0.0), listener)"
    )
    url = f"file://{tmp_path}/shared"
    done = subprocess.run([sys.executable, "-c", code, url], cwd=SHARED.parent)
    assert done.returncode == -9

    on_node("second")
    words = ["--config", str(undisturbed.path), "--out", url, "--device", "cpu"]
    said = CliRunner().invoke(app, ["train", *words, "--checkpoint", "0"])
    assert said.exit_code == 0 and "resumed at step 2" in said.output, said.output
    assert f"uploaded to {url} from {tmp_path}/second" in said.output
    check_equal(find_runs(local_folder(url))[0], undisturbed)


def test_the_last_machine_to_open_a_run_is_its_writer(url, on_node):
    first = RunWriter(f"{url}/run", {"a": 1})
    first.append({"step": 0})
    first.set_status("running", 0)

    on_node("second")
    with RunWriter(f"{url}/run", {"a": 1}) as second:
        assert second.has_rows
        with pytest.raises(RunError, match=r"was taken over by .* meanwhile"):
            first.set_status("running", 1)
        second.set_status("complete", 2)
    with pytest.raises(RunError, match="finished elsewhere or deleted meanwhile"):
        first.close()
    assert first.lock is None
    assert json.loads(read(url, "run/status.json"))["step"] == 2


def test_another_config_is_refused(url):
    with RunWriter(f"{url}/run", {"a": 1}) as writer:
        writer.set_status("running", 0)
    with pytest.raises(RunError, match="it differs in a"):
        RunWriter(f"{url}/run", {"a": 2})


def test_a_writer_that_is_silent_counts_as_dead(url, on_node, monkeypatch):
    writer = RunWriter(f"{url}/run")
    writer.append({"step": 0})
    writer.set_status("running", 0)
    assert Run(f"{url}/run").status == "running"  # by the lock
    on_node("second")
    assert Run(f"{url}/run").status == "running"  # by its mark
    monkeypatch.setattr(stored_folder, "STALE", 0.0)
    assert Run(f"{url}/run").status == "interrupted"
    writer.close()


def test_readers_fetch_what_changed(url, on_node, monkeypatch):
    configs = [CONFIG, replace(CONFIG, seed=1)]
    swept = sweep(configs, url, CPU)
    assert [run.status for run in swept.runs] == ["complete", "complete"]

    on_node("second")
    fetched = []

    def fetch(folder, name, whole=StoredFolder.fetch):
        fetched.append(name)
        return whole(folder, name)

    monkeypatch.setattr(StoredFolder, "fetch", fetch)
    assert [run.last["step"] for run in find_runs(url)] == [6, 6]
    assert fetched.count("metrics.jsonl") == 2
    assert not any("checkpoints" in name for name in fetched)

    # Nothing is fetched twice, and a run that is gone there is gone here.
    fetched.clear()
    files, root = fsspec.core.url_to_fs(url)
    files.rm(f"{root}/{configs[0].name}", recursive=True)
    assert [run.name for run in find_runs(url)] == [configs[1].name]
    assert fetched == []
    assert [run.name for run in RunFolder(url).refresh()] == [configs[1].name]


def test_a_growing_folder_is_fetched_again_after_a_while(url, on_node, monkeypatch):
    with RunWriter(f"{url}/run") as writer:
        writer.append({"step": 0})
        writer.set_status("running", 0)
        on_node("second")
        folder = RunFolder(url)
        assert [run.count for run in folder.refresh()] == [1]
        writer.append({"step": 1})
        writer.set_status("running", 1)
        assert [run.count for run in folder.refresh()] == [1]
        folder.fetched_at -= 11.0
        assert [run.count for run in folder.refresh()] == [2]


def test_commands_read_a_url(url, on_node, tmp_path):
    train(CONFIG, url, CPU)
    on_node("second")
    listed = CliRunner().invoke(app, ["runs", "--out", url])
    assert listed.exit_code == 0 and "complete" in listed.output
    page = tmp_path / "report.html"
    done = CliRunner().invoke(app, ["report", url, "-o", str(page)])
    assert done.exit_code == 0 and url in page.read_text()
    for command in (["tune", "--optimizer", "sgd:lr=0.1..1"], ["reproduce", "csam"]):
        refused = CliRunner().invoke(app, [*command, "--out", url])
        assert refused.exit_code == 2 and "works in a folder of this machine" in refused.output


@pytest.mark.slow
def test_workers_upload_their_runs(tmp_path, on_node):
    url = f"file://{tmp_path}/shared"
    configs = [CONFIG, replace(CONFIG, seed=1)]
    runs = sweep(configs, url, CPU, workers=2).runs
    assert [run.status for run in runs] == ["complete", "complete"]
    on_node("second")
    again = sweep(configs, url, CPU, workers=2)  # nothing is left to do
    assert [run.rows for run in again.runs] == [run.rows for run in runs]


def test_a_watch_in_a_loop_of_ones_own(url, on_node):
    torch.manual_seed(0)
    model, x, y = nn.Linear(2, 3), torch.randn(9, 2), torch.arange(9) % 3
    words = {"train": (x, y), "run": f"{url}/mine", "every": 1, "measure": ()}
    with Watch(model, None, **words) as watch:
        watch.step()
        state = watch.state_dict()
        assert read(url, "mine/metrics.jsonl").count(b"\n") == 2  # before a checkpoint of theirs
    assert Run(f"{url}/mine").status == "ended"

    on_node("second")
    with Watch(
        model, None, (x, y), None, f"{url}/mine", every=1, measure=(), resume=state
    ) as watch:
        watch.step()
    assert [row["step"] for row in Run(f"{url}/mine").rows] == [0, 1, 2]


def test_a_storage_that_fails_ends_the_run_with_a_sentence(url, monkeypatch):
    def put(folder, name):
        with folder.storage_errors("written"):
            raise ConnectionError("no route to host")

    monkeypatch.setattr(StoredFolder, "put", put)
    with pytest.raises(RunError, match=r"cannot be written \(ConnectionError: no route to host\)"):
        train(CONFIG, url, CPU)


def test_urls_and_their_places(monkeypatch, tmp_path):
    monkeypatch.setenv("TOOSURE_CACHE", str(tmp_path))
    assert as_url(Path("gs://a/b") / "c") == "gs://a/b/c"
    assert as_url("C:/runs") is None and as_url("/runs") is None
    assert local_folder("gs://a/b") == tmp_path / "storage" / "gs" / "a" / "b"
    assert local_folder("runs") == Path("runs")
    monkeypatch.delenv("TOOSURE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert local_folder("gs://a/b").is_relative_to(tmp_path / "toosure")
    for wrong in ("gs://", "gs://a/../b"):
        with pytest.raises(StorageError, match="must name a folder of the storage"):
            local_folder(wrong)
    check_local("runs", "toosure tune")


def test_what_is_missing_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("TOOSURE_CACHE", str(tmp_path))
    with pytest.raises(ValueError, match="Protocol not known: nowhere"):
        find_runs("nowhere://a/b")

    def without(name):
        raise ImportError(name)

    monkeypatch.setattr(storage_module.importlib, "import_module", without)
    with pytest.raises(ValueError, match=r"pip install 'toosure\[storage\]'"):
        find_runs("s3://a/b")
