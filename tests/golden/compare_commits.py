"""Train the golden runs with two commits on this machine and compare them bit for bit.

    python tests/golden/compare_commits.py 927894c            # that commit against the working tree
    python tests/golden/compare_commits.py --make FOLDER       # train them once, with this code

Rows must agree in every key of the old commit (keys with `seconds` aside, new keys allowed), and
weights and the optimizer's state must have the same bits. Each commit trains in processes of its
own, with one thread.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
COMMON = ["--data", "digits:train=200,val=100,test=100,noise=0.1", "--model", "mlp:width=16"]
COMMON += ["--steps", "40", "--batch", "32", "--every", "10", "--device", "cpu", "--threads", "1"]
ALL = ("gn_sharpness", "hessian_sharpness", "kappa_min", "batch_sharpness", "gni", "trace")
ALL += ("jacobian_norm", "temperature", "best")
# The options of gamma-net that the golden run has, as far as a commit knows them.
GAMMA_NET = "gamma_net:bandwidth=0.01,form=points,leave_one_out=false,detach=false,"
GAMMA_NET += "meta_batch=128,fresh=none,virtual_lr=none"
ONE_RATE = ",lr=0.001,level_lr=none"
RUNS = {
    "sgd": ["--optimizer", "sgd:lr=0.1,momentum=0.9", "--schedule", "cosine", "--measure", *ALL],
    "sam": ["--optimizer", "sam:lr=0.1,rho=0.05"],
    "csam": ["--optimizer", "csam:lr=0.1,rho=0.1,gamma=1"],
    "gamma_net": ["--optimizer", "sgd:lr=0.1", "--objective", GAMMA_NET],
    "calmo": ["--optimizer", "adamw:lr=0.01", "--objective", "calmo"],
}


def train_golden_runs(source: Path, out: Path) -> dict[str, Path]:
    """Train every golden run with the package below `source`; return the run folders by name."""
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    code = (source / "toosure/objectives/gamma_net.py").read_text()
    word = GAMMA_NET if "fresh" in code else "gamma_net"
    word += ONE_RATE if "level_lr" in code else ""
    folders = {}
    for name, options in RUNS.items():
        options = [word if option == GAMMA_NET else option for option in options]
        command = [sys.executable, "-m", "toosure", "train", *COMMON, *options]
        subprocess.run(
            [*command, "--out", str(out / name)],
            env=environment,
            cwd=out,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (folders[name],) = (path.parent for path in (out / name).glob("*/metrics.jsonl"))
    return folders


def rows_of(folder: Path) -> list[dict[str, object]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [{key: row[key] for key in row if "seconds" not in key} for row in rows]


def state_of(folder: Path) -> dict[str, object]:
    newest = max((folder / "checkpoints").glob("*.pt"), key=lambda file: int(file.stem))
    state = torch.load(newest, weights_only=True)
    return {"model": state["model"], "optimizer": state["optimizer"]["state"]}


def differences(old: object, new: object, where: str) -> list[str]:
    """List the places at which a nested value differs; keys that only `new` has are allowed."""
    if isinstance(old, torch.Tensor):
        same = isinstance(new, torch.Tensor) and old.dtype == new.dtype and torch.equal(old, new)
        return [] if same else [where]
    if isinstance(old, dict):
        if not isinstance(new, dict) or not old.keys() <= new.keys():
            return [f"{where}: keys"]
        return [d for key in old for d in differences(old[key], new[key], f"{where}/{key}")]
    if isinstance(old, list):
        if not isinstance(new, list) or len(old) != len(new):
            return [f"{where}: length"]
        pairs = enumerate(zip(old, new, strict=True))
        return [d for i, (a, b) in pairs for d in differences(a, b, f"{where}[{i}]")]
    return [] if old == new else [f"{where}: {old!r} became {new!r}"]


def compare(commit: str) -> int:
    """Train with both commits, print what differs, and return the number of differences."""
    with tempfile.TemporaryDirectory() as scratch:
        before = Path(scratch) / "source"
        before.mkdir()
        archive = subprocess.run(
            ["git", "-C", str(ROOT), "archive", commit, "src"], check=True, capture_output=True
        )
        subprocess.run(["tar", "x", "-C", str(before)], input=archive.stdout, check=True)

        sources = {"old": before / "src", "new": ROOT / "src"}
        folders = {}
        for which, source in sources.items():
            (Path(scratch) / which).mkdir()
            folders[which] = train_golden_runs(source, Path(scratch) / which)

        total = 0
        for name in RUNS:
            old, new = folders["old"][name], folders["new"][name]
            found = differences(rows_of(old), rows_of(new), "rows")
            found += differences(state_of(old), state_of(new), "state")
            if old.name != new.name and name != "gamma_net":  # which may be spelled otherwise
                found.append(f"the run's name: {old.name} became {new.name}")
            total += len(found)
            print(f"{name}: {len(found)} differences in {len(rows_of(old))} rows and the weights")
            for line in found[:10]:
                print(f"  {line}")
    return total


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", help="the old commit")
    parser.add_argument("--make", type=Path, help="train the runs with this code into a folder")
    arguments = parser.parse_args()
    if arguments.make:
        arguments.make.mkdir(parents=True, exist_ok=True)
        train_golden_runs(ROOT / "src", arguments.make.resolve())
    else:
        sys.exit(1 if compare(arguments.commit) else 0)
