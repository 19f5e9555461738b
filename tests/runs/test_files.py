"""Files written beside and renamed: by two writers at once, beside links, after a kill."""

import json
import os
import subprocess
import sys

import pytest

from toosure.runs import RunWriter
from toosure.runs.files import is_locked, take_lock, write_atomically, write_json
from waiting import wait_until

WRITER = """
import sys
from pathlib import Path
from toosure.runs.files import write_json
for number in range(150):
    write_json(Path(sys.argv[1]), {"who": sys.argv[2], "number": number, "x": [number] * 5000})
"""


def test_two_writers_do_not_tear_each_others_file(tmp_path):
    path = tmp_path / "status.json"
    words = [sys.executable, "-c", WRITER, str(path)]
    writers = [
        subprocess.Popen([*words, who], stderr=subprocess.PIPE, text=True) for who in ("a", "b")
    ]
    while any(writer.poll() is None for writer in writers):
        if path.exists():
            found = json.loads(path.read_text())
            assert found["x"] == [found["number"]] * 5000
    assert [writer.communicate()[1] for writer in writers] == ["", ""]
    assert os.listdir(tmp_path) == ["status.json"]


def test_a_file_keeps_the_mode_that_open_gives(tmp_path):
    (tmp_path / "plain").write_text("")
    write_json(tmp_path / "ours", {})
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_link_is_not_followed(tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.write_text("mine")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".status.json.part").symlink_to(other)
    (folder / "status.json").symlink_to(other)
    write_json(folder / "status.json", {"status": "running"})
    assert other.read_text() == "mine" and not (folder / "status.json").is_symlink()

    # Even where the name of the temporary file is known in advance.
    tokens = iter(["known", "free"])
    monkeypatch.setattr("toosure.runs.files.secrets.token_hex", lambda length: next(tokens))
    (folder / f".a.{os.getpid()}-known.part").symlink_to(other)
    write_json(folder / "a", {"a": 1})
    assert other.read_text() == "mine" and json.loads((folder / "a").read_text()) == {"a": 1}


def test_a_lock_that_is_a_link_or_a_pipe_is_named(tmp_path):
    other = tmp_path / "other"
    other.write_text("mine")
    (tmp_path / "lock").symlink_to(other)
    with pytest.raises(ValueError, match=r"lock is a link .*delete it, then repeat"):
        RunWriter(tmp_path)
    assert other.read_text() == "mine"
    (tmp_path / "lock").unlink()
    os.mkfifo(tmp_path / "lock")
    assert not is_locked(tmp_path)  # and does not wait for a writer of the pipe
    with pytest.raises(ValueError, match="lock is a link or not a regular file"):
        RunWriter(tmp_path)
    (tmp_path / "lock").unlink()
    RunWriter(tmp_path).close()


def test_what_a_killed_writer_left_is_deleted_and_what_a_living_one_writes_is_not(tmp_path):
    code = f"""
import os, sys
from pathlib import Path
from toosure.runs.files import write_atomically
def die(file):
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), 9)
write_atomically(Path({str(tmp_path)!r}) / "checkpoints" / "3.pt", die)
"""
    subprocess.run([sys.executable, "-c", code])
    (tmp_path / ".status.json.part").write_text("of earlier versions")
    assert len(os.listdir(tmp_path / "checkpoints")) == 1

    def open_the_folder_meanwhile(file):
        RunWriter(tmp_path).close()
        file.write(b"whole")

    write_atomically(tmp_path / "checkpoints" / "4.pt", open_the_folder_meanwhile)
    assert os.listdir(tmp_path / "checkpoints") == ["4.pt"]
    assert sorted(os.listdir(tmp_path)) == ["checkpoints", "lock"]


def test_a_file_deleted_before_it_was_locked_is_made_again(tmp_path, monkeypatch):
    from toosure.runs import files

    lock, names = files.fcntl.flock, []

    def slow_lock(file, kind):
        found = list(tmp_path.glob(".*.part"))
        if not names:
            names.extend(found)
            found[0].unlink()  # as another process that cleans up
        lock(file, kind)

    monkeypatch.setattr(files.fcntl, "flock", slow_lock)
    write_atomically(tmp_path / "a", lambda file: file.write(b"whole"))
    assert (tmp_path / "a").read_bytes() == b"whole" and len(names) == 1


def test_the_lock_of_a_living_process_is_seen(tmp_path):
    lock = take_lock(tmp_path)
    code = f"from toosure.runs.files import *; assert is_locked(Path({str(tmp_path)!r}))"
    asking = subprocess.Popen([sys.executable, "-c", code])
    wait_until(lambda: asking.poll() is not None)
    assert asking.returncode == 0
    lock.close()
    assert not is_locked(tmp_path)
