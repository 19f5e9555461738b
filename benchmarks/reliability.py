"""Damage runs on purpose, and count what was lost or accepted wrong.

    python benchmarks/reliability.py kills --count 1000 --workers 12
    python benchmarks/reliability.py flips --count 1000
    python benchmarks/reliability.py rows --count 100
    python benchmarks/reliability.py writers --count 1000

Each prints one line of counts and ends with code 1 where anything was lost or accepted wrong.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

import torch

from toosure.config import RunConfig
from toosure.runs import Run, RunError
from toosure.runs.files import write_json
from toosure.train import ProgressListener, Runtime, train
from toosure.train.checkpoint import checkpoints, load_checkpoint, read_checkpoint

KILL_OFTEN = Path(__file__).parents[1] / "tests" / "train" / "kill_often.py"
SMALL = {"data": "digits:train=100,val=60,noise=0.1", "model": "mlp:width=16", "batch": 32}
CPU = Runtime("cpu")
METHODS = [
    {"optimizer": "sgd:lr=0.1,momentum=0.9"},
    {"optimizer": "adamw:lr=0.01"},
    {"optimizer": "muon:lr=0.02"},
    {"optimizer": "sam:lr=0.1,momentum=0.9"},
    {"optimizer": "sam:base=adamw,rho=0.1,lr=0.01"},
    {"optimizer": "csam:lr=0.1,rho=0.1"},
    {"optimizer": "asam:lr=0.1"},
    {"optimizer": "vasso:lr=0.1"},
    {"optimizer": "bsam:lr=0.2"},
    {"optimizer": "bulksgd:lr=0.1,k=2"},
    {"optimizer": "gd:lr=0.5"},
    {"loss": "focal"},
    {"loss": "mse"},
    {"objective": "mixup"},
    {"objective": "adafocal"},
    {"schedule": "cosine:warmup=3"},
]


# -- kills ------------------------------------------------------------------------------------


def kills(count: int, seed: int, workers: int) -> tuple[str, int]:
    """Kill runs of every method with SIGKILL, and compare them with undisturbed ones."""
    each = max(1, -(-count // len(METHODS)))
    wrong = 0

    # Workers start clean: kill_often.py forks, and a fork of a busy process may hang.
    with ProcessPoolExecutor(workers, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        futures = {
            pool.submit(kill_method, method, each, seed + number): method
            for number, method in enumerate(METHODS)
        }
        for done, future in enumerate(as_completed(futures), 1):
            same = future.result()
            wrong += not same
            print(
                f"{done}/{len(METHODS)} {futures[future]}: {each} kills, "
                f"{'the same' if same else 'DIFFERENT'}",
                flush=True,
            )

    return f"{each * len(METHODS)} kills over {len(METHODS)} methods: {wrong} differences", wrong


def kill_method(method: dict[str, str], count: int, seed: int) -> bool:
    """Kill one method's run so often, in a folder of its own."""
    config = RunConfig(**{**SMALL, **method, "steps": 40 * max(3, count), "every": 20})
    with tempfile.TemporaryDirectory() as folder:
        return killed_run_is_the_same(config, Path(folder), count, seed)


def killed_run_is_the_same(config: RunConfig, folder: Path, count: int, seed: int) -> bool:
    """Whether what was seen at every kill, the rows and the weights are those of a whole run."""
    words = [sys.executable, KILL_OFTEN, config.to_json(), folder / "cut", str(count), str(seed)]
    seen = subprocess.run(words, capture_output=True, text=True)
    if seen.returncode != 0:
        print(seen.stderr, file=sys.stderr, flush=True)
        return False

    whole = train(config, folder / "whole", CPU)
    rows = timeless(whole.rows)
    prefixes = [timeless(json.loads(line)) for line in seen.stdout.splitlines()]
    cut = train(config, folder / "cut", CPU)
    return (
        all(prefix == rows[: len(prefix)] for prefix in prefixes)
        and timeless(cut.rows) == rows
        and same_values(weights(cut), weights(whole))
        and not list(cut.path.rglob("*.part"))
    )


# -- bit flips ---------------------------------------------------------------------------------


def flips(count: int, seed: int) -> tuple[str, int]:
    """Flip single bits of a checkpoint: none may be read as other values."""
    moments = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        file = checkpoints(cut_run(Path(folder)))[-1]
        whole = file.read_bytes()
        expected = read_checkpoint(file)
        stepped_over = 0
        unchanged = 0
        for _ in range(count):
            damaged = bytearray(whole)
            bit = moments.randrange(8 * len(whole))
            damaged[bit // 8] ^= 1 << bit % 8
            file.write_bytes(damaged)
            found = read_checkpoint(file)
            stepped_over += found is None
            unchanged += found is not None and same_values(found, expected)

    wrong = count - stepped_over - unchanged
    return (
        f"{count} bit flips: {stepped_over} stepped over, {unchanged} in no value, "
        f"{wrong} accepted with other values"
    ), wrong


# -- rows --------------------------------------------------------------------------------------


def rows(count: int, seed: int) -> tuple[str, int]:
    """Tear, drop or change rows below a checkpoint: the run steps back, or says that it cannot."""
    moments = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = cut_run(Path(folder))
        file = path / "metrics.jsonl"
        whole = file.read_bytes()
        needed = {f: read_checkpoint(f)["watch"]["rows"]["bytes"] for f in checkpoints(path)}
        stepped_back = 0
        refused = 0
        wrong = 0
        for number in range(count):
            damaged, first = damage(whole[: max(needed.values())], number, moments)
            file.write_bytes(damaged)
            sound = [f for f, size in needed.items() if size <= first]
            try:
                state, note = load_checkpoint(path, with_rows=True)
                right = bool(note and sound) and state["step"] == int(sound[-1].stem)
                stepped_back += right
            except RunError:
                right = not sound
                refused += right
            wrong += not right
    return (
        f"{count} damaged files of rows: {stepped_back} stepped back, {refused} refused with "
        f"nothing changed, {wrong} accepted wrong"
    ), wrong


def damage(data: bytes, number: int, moments: random.Random) -> tuple[bytes, int]:
    """Return the rows torn, with a row missing, or with a byte changed; and where that begins.

    Every second damage is in the last row, so that the checkpoint before may be sound.
    """
    last_row = data[:-1].rfind(b"\n") + 1
    place = moments.randrange(last_row if number % 2 else 0, len(data))
    kind = number % 3
    if kind == 0:
        return data[:place], place
    if kind == 1:
        begin = data.rfind(b"\n", 0, place) + 1
        end = data.find(b"\n", place) + 1
        return data[:begin] + data[end:], begin
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :], place


# -- two writers -------------------------------------------------------------------------------


def writers(count: int, seed: int) -> tuple[str, int]:
    """Let two processes write the same file at once while this one reads it."""
    torn = 0
    reads = 0
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "status.json"
        writing = [fork_writer(file, count // 2, who) for who in range(2)]
        failed = 0
        while writing:
            for child in list(writing):
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    failed += status != 0
                    writing.remove(child)
            if file.exists():
                reads += 1
                torn += not is_whole(file)
        left = [name for name in os.listdir(folder) if name != "status.json"]

    wrong = torn + failed + len(left)
    return (
        f"{count} writes by two writers, {reads} reads: {torn} torn, {failed} writers failed, "
        f"{len(left)} files left over"
    ), wrong


def fork_writer(file: Path, count: int, who: int) -> int:
    """Write the file so many times in a child, and return its process id."""
    child = os.fork()
    if child:
        return child
    try:
        for number in range(count):
            write_json(file, {"who": who, "number": number, "x": [number] * 5000})
        os._exit(0)
    finally:
        os._exit(1)


def is_whole(file: Path) -> bool:
    try:
        found = json.loads(file.read_text())
    except ValueError:
        return False
    return found["x"] == [found["number"]] * 5000


# -- what they share ---------------------------------------------------------------------------


def cut_run(out: Path) -> Path:
    """Return the folder of a run that was cut in the middle, with two checkpoints."""

    class Cut(Exception):
        pass

    class CutAt(ProgressListener):
        def row(self, row: dict[str, object]) -> None:
            if row["step"] == 9:
                raise Cut

    config = RunConfig(**SMALL, steps=12, every=1)
    with suppress(Cut):
        train(config, out, Runtime("cpu", checkpoint=0.0), CutAt())
    return out / config.name


def timeless(found: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{k: v for k, v in row.items() if "seconds" not in k} for row in found]


def weights(run: Run) -> object:
    state, _ = load_checkpoint(run.path)
    return state["model"], state["optimizer"]["state"]


def same_values(one: object, two: object) -> bool:
    """Compare nested states bit for bit."""
    if isinstance(one, torch.Tensor):
        return one.dtype == two.dtype and torch.equal(one, two)
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same_values(one[k], two[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(same_values, one, two))
    return one == two


def main() -> None:
    damages = {
        "kills": kills,
        "flips": flips,
        "rows": rows,
        "writers": writers,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=list(damages), help="without it, all of them")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1, help="methods killed at once (kills)")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    total = 0
    for name in [arguments.what] if arguments.what else damages:
        more = (arguments.workers,) if name == "kills" else ()
        line, wrong = damages[name](arguments.count, arguments.seed, *more)
        print(line, flush=True)
        total += wrong
    sys.exit(1 if total else 0)


if __name__ == "__main__":
    main()
