"""Where a run happens: versions, device, commit and command, without the machine's name."""

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("toosure", "torch", "numpy", "scipy", "torchmetrics")


def environment(device: str, **more: Any) -> dict[str, Any]:
    """Describe this process and the named device; `more` is added unchanged.

    >>> found = environment("cpu", threads=2)
    >>> found["device"], found["threads"], "torch" in found["versions"]
    ('cpu', 2, True)
    """
    return {
        "versions": {"python": platform.python_version(), **versions()},
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "device": device,
        "commit": commit(Path(__file__).parents[1]),
        "command": shlex.join([program(sys.argv[0]), *sys.argv[1:]]),
        **more,
    }


def torch_version(kept: Mapping[str, Any]) -> str | None:
    """Return the version of torch in a run's environment; None if unknown.

    >>> torch_version({"versions": {"torch": "2.13.0"}}), torch_version({"versions": "damaged"})
    ('2.13.0', None)
    """
    kept_versions = kept.get("versions")
    return kept_versions.get("torch") if isinstance(kept_versions, dict) else None


def versions() -> dict[str, str]:
    """Return the versions of the packages that matter, as far as they are installed."""
    installed = {}
    for name in PACKAGES:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed


@cache
def commit(folder: Path) -> str | None:
    """Return the git commit of a folder, with "+" if files differ; None outside git."""
    try:
        head = git(folder, "rev-parse", "HEAD")
        return head + ("+" if git(folder, "status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def git(folder: Path, *words: str) -> str:
    # Without a lock: a run that is killed meanwhile would leave it, and commits would be refused.
    command = ["git", "--no-optional-locks", "-C", str(folder), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()


def program(path: str) -> str:
    """Return the name of a command; a package run by -m is named by its folder.

    >>> program("/bin/toosure"), program("/lib/toosure/__main__.py")
    ('toosure', 'toosure')
    """
    file = Path(path)
    return file.parent.name if file.name == "__main__.py" else file.name
