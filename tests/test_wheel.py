"""The wheel: builds, installs without the source tree, imports, and carries its page's files."""

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
COMMAND = """
import sys; sys.path.append({packages!r})
import toosure
assert {fresh!r} in toosure.__file__, toosure.__file__
sys.argv = ["toosure", *{words!r}]
from toosure.cli import main
main()
"""
COMMANDS = [
    "train --data digits:train=60,val=40 --model mlp:width=8 --steps 3 --every 1 --out runs",
    "report runs -o report.html",
    "evaluate first.npz --html evaluation.html",
    "compare first.npz second.npz",
    "calibrate first.npz -o calibrator.pt",
    "apply calibrator.pt second.npz -o calibrated.npz",
    "demo --help",
]


@pytest.mark.slow
def test_wheel_installs_and_imports_elsewhere(tmp_path):
    source = tmp_path / "source"  # a copy, so that no build folder is left in the checkout
    skip = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", source / "src", ignore=skip)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path]
    subprocess.run([*build, source], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "fresh", with_pip=True)
    python = tmp_path / "fresh" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet", wheel]
    subprocess.run(install, check=True)
    subprocess.run([python, "-c", "import toosure"], cwd=tmp_path, check=True)

    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 90)
    for name in ("first", "second"):
        np.savez(tmp_path / name, logits=random.normal(size=(90, 3)), labels=labels)

    # torch and plotly are borrowed from here: what is under test is our own wheel
    for words in COMMANDS:
        code = COMMAND.format(
            packages=sysconfig.get_paths()["purelib"],
            fresh=str(tmp_path / "fresh"),
            words=words.split(),
        )
        done = subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, f"{words}: {done.stderr}"
    for page in ("report.html", "evaluation.html"):
        assert "toosure.drawAll" in (tmp_path / page).read_text()
