"""Run folders that no run would write: each is said to be unreadable, the others are shown."""

import io
import json
import os
import struct
import zipfile

import numpy as np
import pytest
from typer.testing import CliRunner

from toosure.cli import app
from toosure.runs import Run, RunFolder, RunWriter, find_runs
from toosure.runs.array_file import read_arrays
from toosure.runs.json_text import parse_json
from toosure.runs.row_reader import MAX_KEYS, MAX_LINE

ROW = {"step": 0, "val/ece": 0.1}


def make(path, row=ROW, status="complete"):
    with RunWriter(path, {"optimizer": "sgd:lr=0.1"}) as writer:
        writer.append(row)
        writer.set_status(status, 0)
    return path


def replaced(path, how):
    """Put something else where a file was."""
    path.unlink(missing_ok=True)
    if how == "pipe":
        os.mkfifo(path)
    elif how == "folder":
        path.mkdir()
    elif how == "gigabytes":
        with path.open("wb") as file:
            file.truncate(2 << 30)
    else:
        path.symlink_to(how)


ODD_TEXTS = {
    "deep": b'{"step": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "deeper than ours": b'{"step": 1, "a": ' + b"[" * 40 + b"]" * 40 + b"}",
    "digits": b'{"step": 1, "a": ' + b"9" * 400 + b"}",
    "overflow": b'{"step": 1, "a": 1e400}',
    "surrogate": b'{"step": 1, "a": "\\ud800"}',
    "not UTF-8": b'{"step": 1, "a": "\xff"}',
}


@pytest.mark.parametrize("text", ODD_TEXTS.values(), ids=ODD_TEXTS)
@pytest.mark.parametrize("file", ["config", "environment", "status"])
def test_odd_json_is_said_to_be_unreadable(tmp_path, file, text):
    (make(tmp_path / "r") / f"{file}.json").write_bytes(text)
    run = Run(tmp_path / "r")
    assert run.status == "unreadable" and f"{file}.json cannot be read" in run.ending
    assert run.count == 1  # the rest is read


@pytest.mark.parametrize("text", ODD_TEXTS.values(), ids=ODD_TEXTS)
def test_odd_rows_are_left_out_and_counted(tmp_path, text):
    file = make(tmp_path / "r") / "metrics.jsonl"
    file.write_bytes(text + b"\n" + file.read_bytes())
    run = Run(tmp_path / "r")
    assert run.status == "unreadable" and "1 of 2 lines are no rows (line 1: " in run.ending
    assert [row["step"] for row in run.rows] == run.columns["step"].tolist() == [0]


@pytest.mark.parametrize("step", [None, "1", [1], True, 10**17])
def test_a_step_is_a_number(tmp_path, step):
    with (make(tmp_path / "r") / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": step}) + "\n")
    assert "step must be a number" in Run(tmp_path / "r").ending


@pytest.mark.parametrize("status", [None, 1, ["complete"], "unheard of"])
def test_a_status_is_one_that_a_run_can_have(tmp_path, status):
    (make(tmp_path / "r") / "status.json").write_text(json.dumps({"status": status}))
    run = Run(tmp_path / "r")
    assert run.status == "unreadable" and "must hold a status such as complete" in run.ending


@pytest.mark.parametrize("how", ["pipe", "folder", "gigabytes", "/dev/zero", "/nowhere", "self"])
@pytest.mark.parametrize("file", ["config.json", "status.json", "metrics.jsonl"])
def test_what_is_no_file_is_not_read(tmp_path, file, how):
    replaced(make(tmp_path / "r") / file, file if how == "self" else how)
    make(tmp_path / "sound")
    runs = find_runs(tmp_path)
    assert [run.status for run in runs] == ["unreadable", "complete"]
    assert f"{file} cannot be read" in runs[0].ending


def test_a_lock_that_is_a_pipe_is_not_waited_for(tmp_path):
    replaced(make(tmp_path / "r", status="running") / "lock", "pipe")
    assert Run(tmp_path / "r").status == "interrupted"


def test_a_folder_that_is_shown_to_others_follows_no_links(tmp_path):
    outside = make(tmp_path / "outside")
    inside = make(tmp_path / "runs" / "r")
    replaced(inside / "metrics.jsonl", outside / "metrics.jsonl")
    (inside / "snapshots").symlink_to(outside)
    run = RunFolder(tmp_path / "runs").refresh()[0]
    assert run.status == "unreadable" and "it is a link, not a file" in run.ending
    assert run.count == 0 and run.snapshots == []
    assert find_runs(tmp_path / "runs")[0].count == 1  # one's own report reads them


def test_a_folder_of_runs_may_come_later(tmp_path):
    folder = RunFolder(tmp_path / "runs")
    assert folder.refresh() == []
    make(tmp_path / "runs" / "r")
    assert [run.name for run in folder.refresh()] == ["r"]


def test_lines_and_keys_are_limited(tmp_path):
    file = make(tmp_path / "long") / "metrics.jsonl"
    with file.open("ab") as opened:
        opened.write(b" " * (MAX_LINE + 1) + b"\n")
    run = Run(tmp_path / "long")
    assert run.count == 1 and "line 2 is longer than 1.0 MB" in run.ending

    with (make(tmp_path / "wide") / "metrics.jsonl").open("a") as opened:
        opened.write(json.dumps({"step": 1} | {f"k{n}": n for n in range(MAX_KEYS)}) + "\n")
        opened.write(json.dumps(ROW | {"step": 2}) + "\n")
    run = Run(tmp_path / "wide")
    assert run.columns["step"].tolist() == [0, 2] and "different keys" in run.ending


def test_a_thousand_folders_in_each_other(tmp_path):
    make(tmp_path / "a")
    here = os.getcwd()
    os.chdir(tmp_path)
    try:
        for _ in range(1_100):
            os.mkdir("d")
            os.chdir("d")
        assert [run.name for run in find_runs(tmp_path)] == ["a"]
        for _ in range(1_100):
            os.chdir("..")
            os.rmdir("d")
    finally:
        os.chdir(here)


@pytest.mark.parametrize("name", [b"\xff\xfe", b"[bold]", b"a\nb", b"\x1b[2J"])
def test_names_of_any_bytes_are_listed(tmp_path, name):
    make(tmp_path / "sound")
    odd = tmp_path / os.fsdecode(name)
    make(odd)
    (odd / "config.json").write_text("{")
    shown = CliRunner().invoke(app, ["runs", "--out", str(tmp_path)])
    assert shown.exit_code == 0, shown.output
    assert all(run.name in shown.output for run in find_runs(tmp_path))
    assert "sound" in shown.output and "unreadable" in shown.output and "\x1b" not in shown.output
    assert all(run.name.isprintable() and run.id.isprintable() for run in find_runs(tmp_path))


# ---- arrays -------------------------------------------------------------------------------------


def packed(header, body=b"", length=None, name="val_counts.npy"):
    """An .npz of one .npy with a header of one's own."""
    length = len(header) if length is None else length
    content = b"\x93NUMPY\x02\x00" + struct.pack("<I", length) + header + body
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(name, content)
    return made.getvalue()


def header(descr="<f8", shape="(2,)"):
    return f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}".encode()


ODD_ARRAYS = {
    "huge shape": packed(header(shape="(10000000000000,)")),
    "negative shape": packed(header(shape="(-1,)")),
    "objects": packed(header("|O", "(1,)"), b"12345678"),
    "endless header": packed(header(), length=2**32 - 1),
    "nested header": packed(b"(" * 3000),
    "bomb": packed(header(), b"\x00" * (70 << 20)),
    "no array": packed(b""),
}


@pytest.mark.parametrize("content", ODD_ARRAYS.values(), ids=ODD_ARRAYS)
def test_odd_arrays_are_a_warning(tmp_path, content):
    file = make(tmp_path / "r") / "snapshots" / "0.npz"
    file.parent.mkdir()
    file.write_bytes(content)
    run = Run(tmp_path / "r")
    assert run.snapshots == [0] and run.snapshot_if_whole(0) == {}
    assert any("snapshots/0.npz cannot be read" in warning for warning in run.warnings)


@pytest.mark.parametrize("how", ["pipe", "folder", "gigabytes", "/dev/zero"])
def test_a_snapshot_that_is_no_file_is_a_warning(tmp_path, how):
    file = make(tmp_path / "r") / "snapshots" / "0.npz"
    file.parent.mkdir()
    replaced(file, how)
    run = Run(tmp_path / "r")
    assert run.snapshot_if_whole(0) == {} and "snapshots/0.npz" in run.unreadable_files


def test_names_of_snapshots_are_steps(tmp_path):
    folder = make(tmp_path / "r") / "snapshots"
    folder.mkdir()
    for name in ("²", "007", "1" * 200, "-1", "x", "5"):
        (folder / f"{name}.npz").touch()
    assert Run(tmp_path / "r").snapshots == [5]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "uint8", "bool", "U3"])
def test_arrays_are_read_as_numpy_reads_them(tmp_path, dtype, order):
    array = np.asfortranarray(np.arange(6).reshape(2, 3).astype(dtype))
    np.savez_compressed(tmp_path / "a.npz", a=np.array(array, order=order), b=np.zeros(()))
    found = read_arrays(tmp_path / "a.npz")
    assert found["a"].dtype == array.dtype and (found["a"] == array).all()
    assert found["b"].shape == ()


def test_json_is_read_as_python_reads_it():
    text = '{"a": [1, -2.5, "\\u00e9", true, null], "b": {"c": 12345678901234567890}}'
    assert parse_json(text) == json.loads(text)
