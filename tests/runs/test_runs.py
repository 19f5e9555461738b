"""Run folders: read without torch while they grow, one writer, nothing destroyed by a bad disk."""

import errno
import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from toosure.page import run_verdict
from toosure.runs import Run, RunError, RunWriter
from toosure.runs.files import is_locked


def make(path, rows=(), status="complete", config=None):
    with RunWriter(path, config or {"seed": 0, "optimizer": "sgd:lr=0.1"}) as writer:
        for row in rows:
            writer.append(row)
        writer.set_status(status, rows[-1]["step"] if rows else 0)
    return Run(path)


def test_written_and_read(tmp_path):
    rows = [{"step": 0, "val/ece": 0.5, "seconds": 1.0}, {"step": 20, "val/ece": float("nan")}]
    run = make(tmp_path / "a", rows)
    assert run.config == {"seed": 0, "optimizer": "sgd:lr=0.1"}
    assert run.rows == [rows[0], {"step": 20, "val/ece": None}]  # JSON knows no NaN
    assert run.columns["step"].tolist() == [0, 20]
    assert run.columns["val/ece"][0] == 0.5 and np.isnan(run.columns["val/ece"][1])
    assert np.isnan(run.columns["seconds"][1])
    assert (run.status, run.name, run.last["step"]) == ("complete", "a", 20)


@pytest.mark.parametrize("torn", [b'{"step": 40, "val', b'{"step": 40}', b"\x00\xff"])
def test_a_torn_last_line_is_skipped(tmp_path, torn):
    run = make(tmp_path, [{"step": 0}, {"step": 20}])
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(torn)
    assert [row["step"] for row in Run(run.path).rows] == [0, 20]


def test_cut_back_keeps_the_bytes_before(tmp_path):
    make(tmp_path, [{"step": step, "x": step / 3} for step in range(5)])
    lines = (tmp_path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    with RunWriter(tmp_path) as writer:
        for step in (1, 4):
            writer.write_snapshot(step, {"a": np.arange(step)})
        writer.cut_back(2)
        assert (tmp_path / "metrics.jsonl").read_bytes() == b"".join(lines[:3])
        assert Run(tmp_path).snapshots == [1]
        assert Run(tmp_path).snapshot(1)["a"].tolist() == [0]
        writer.append({"step": 3})
        writer.cut_back(-1)
    assert Run(tmp_path).rows == []


def test_reading_needs_no_torch(tmp_path):
    make(tmp_path / "a", [{"step": 0, "val/ece": 0.5}])
    code = f"""
import sys
from toosure.runs import find_runs, export, select, summary
runs = select(find_runs({str(tmp_path)!r}), ["val/ece<0.6"])
assert runs[0].columns["val/ece"][0] == 0.5 and runs[0].config and runs[0].status == "complete"
export(runs, {str(tmp_path / "a.parquet")!r})
assert not {{"torch", "plotly", "typer", "sklearn"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_second_writer_is_told_who_is_first(tmp_path):
    with RunWriter(tmp_path) as first:
        with pytest.raises(RunError, match=r"earlier Watch or RunWriter .* call its close\(\)"):
            RunWriter(tmp_path)
        code = f"from toosure.runs import RunWriter; RunWriter({str(tmp_path)!r})"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert f"being written by process {os.getpid()}" in other.stderr
        first.append({"step": 0})
    with pytest.raises(RunError, match="was closed"):
        first.append({"step": 1})
    RunWriter(tmp_path).close()  # free again
    assert Run(tmp_path).rows == [{"step": 0}]


def test_a_dead_writer_leaves_an_interrupted_run(tmp_path):
    code = f"""
import os
from toosure.runs import RunWriter
writer = RunWriter({str(tmp_path)!r})
writer.set_status("running", 0)
writer.append({{"step": 20}})
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", code])
    assert Run(tmp_path).status == "interrupted"
    assert Run(tmp_path).ending == "interrupted at step 20"
    (tmp_path / "checkpoints").mkdir(exist_ok=True)
    (tmp_path / "checkpoints" / "25.pt").touch()
    assert Run(tmp_path).warnings == ["interrupted at step 25"]
    assert run_verdict.ending(Run(tmp_path)) == "Interrupted at step 25"
    with RunWriter(tmp_path):
        assert Run(tmp_path).status == "running"


def test_readers_do_not_keep_a_writer_out(tmp_path):
    make(tmp_path)
    asking = threading.Event()

    def ask():
        while not asking.is_set():
            _ = is_locked(tmp_path)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        for _ in range(50):
            RunWriter(tmp_path).close()
    finally:
        asking.set()
        thread.join()


def test_another_config_is_refused(tmp_path):
    make(tmp_path, config={"seed": 0})
    with pytest.raises(RunError, match="holds another run: it differs in seed"):
        RunWriter(tmp_path, {"seed": 1})
    assert json.loads((tmp_path / "config.json").read_text()) == {"seed": 0}
    RunWriter(tmp_path, {"seed": 0}).close()  # and the lock was let go


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_full_disk_is_one_sentence(tmp_path):
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with (
        RunWriter(tmp_path) as writer,
        pytest.raises(RunError, match=r"cannot be written \(No space left.*repeat the command"),
    ):
        writer.append({"step": 0})


def test_a_failed_write_leaves_the_old_file(tmp_path):
    def fails(file):
        file.write(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with RunWriter(tmp_path) as writer:
        writer.write_file("checkpoints/3.pt", lambda file: file.write(b"whole"))
        with pytest.raises(RunError, match="No space left"):
            writer.write_file("checkpoints/3.pt", fails)
    assert (tmp_path / "checkpoints" / "3.pt").read_bytes() == b"whole"
    assert os.listdir(tmp_path / "checkpoints") == ["3.pt"]


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be made"):
        RunWriter(tmp_path / "file" / "run")


@pytest.fixture
def nobody():
    """Root may write anywhere: be somebody else for a while."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    yield
    if root:
        os.seteuid(0)


def test_read_only_folder(tmp_path, nobody):
    if os.geteuid() != 65534:
        tmp_path.chmod(0o500)
    with pytest.raises(RunError, match=r"cannot be made \(Permission denied\): .*name another"):
        RunWriter(tmp_path / "run")


def test_warnings_say_what_did_not_converge(tmp_path):
    rows = [{"step": 0, "val/gn_sharpness_unconverged": True}, {"step": 1}]
    run = make(tmp_path, rows, status="diverged")
    assert run.warnings == [
        "diverged at step 1",
        "val/gn_sharpness did not converge in 1 of 2 rows",
    ]
