"""Where a run comes from: its commit is read, and the repository is left as it is."""

import os
import shutil
import subprocess

import pytest

from toosure.runs.environment import commit


def git(folder, *words):
    settings = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *settings, *words], cwd=folder, check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_index_of_a_repository_is_neither_locked_nor_written(tmp_path):
    """A run that is killed during `git status` would leave `index.lock`."""
    file = tmp_path / "train.py"
    file.write_text("pass")
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")

    os.utime(file, (1, 1))  # the same text at another time: git would write that into its index
    index = (tmp_path / ".git" / "index").read_bytes()
    found = commit(tmp_path)
    assert found is not None and not found.endswith("+")
    assert (tmp_path / ".git" / "index").read_bytes() == index
