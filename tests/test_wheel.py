"""The wheel: builds, installs without the source tree, imports, and carries its page's files."""

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CHECK = """
import toosure, toosure.page.html
assert "site-packages" in toosure.__file__, toosure.__file__
print(len(toosure.page.html.page("t", "<p>hello</p>")))
"""


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
    # torch and plotly are borrowed from here: what is under test is our own wheel
    code = f"import sys; sys.path.append({sysconfig.get_paths()['purelib']!r}){CHECK}"
    out = subprocess.run([python, "-c", code], cwd=tmp_path, check=True, capture_output=True)
    assert int(out.stdout) > 1_000_000
