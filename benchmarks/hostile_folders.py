"""Three hundred hostile run folders, each beside a sound run: is the sound one still shown?

    python benchmarks/hostile_folders.py [--count 300] [--seed 0]

Each folder is read by the table of `toosure runs`, the report and the live page. What counts as
survived: no exception, no wait, the sound run with its verdict, and the hostile run listed with the
reason. Pipes, devices and links are made; nothing outside of a temporary folder is written.
"""

import argparse
import io
import json
import os
import random
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "page"))
from made_runs import make_run, row, snapshot

from toosure.cli.runs import table_of
from toosure.page.live import PageAnswers
from toosure.page.report import report
from toosure.runs import find_runs

TIME_LIMIT = 60  # seconds for all three readers of one folder
MEMORY_LIMIT = 8 << 30
JSON_FILES = ("config.json", "environment.json", "status.json", "temperature.json")
FILES = (*JSON_FILES, "metrics.jsonl", "snapshots/90.npz")
Damage = Callable[[Path, random.Random], None]


def json_texts(draw: random.Random) -> bytes:
    """Return JSON that is valid, or nearly, and that no run would write."""
    deep = draw.choice([40, 900, 5_000, 200_000])
    digits = draw.choice([31, 400, 5_000])
    return draw.choice(
        [
            b'{"step": ' + b"[" * deep + b"]" * deep + b"}",
            b'{"a": ' * deep + b"1" + b"}" * deep,
            b'{"step": ' + b"9" * digits + b"}",
            b'{"step": 1, "val/ece": 1e400, "temperature": -1e999}',
            b'{"step": 1, "val/ece": "' + b"\\ud800" + b'"}',
            b'{"\\udfff": 1, "step": 1}',
            b'{"step": "one", "status": 1}',
            b'{"step": null, "status": null}',
            b'{"status": ["complete"], "step": {}}',
            b'{"status": {"a": 1}}',
            b"null",
            b"[]",
            b'"text"',
            b"\xff\xfe\x00\x00",
            b"\x00" * draw.choice([1, 4096]),
            b"{" * draw.choice([1, 100_000]),
        ]
    )


def write_json_damage(run: Path, draw: random.Random) -> None:
    text = json_texts(draw)
    is_odd_value = text.startswith((b'{"step": "', b'{"step": n', b'{"status"'))
    name = "status.json" if is_odd_value else draw.choice(JSON_FILES)  # a config may say anything
    (run / name).write_bytes(text)


def write_row_damage(run: Path, draw: random.Random) -> None:
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    lines.insert(draw.randrange(len(lines) + 1), json_texts(draw) + b"\n")
    (run / "metrics.jsonl").write_bytes(b"".join(lines))


def write_strange_rows(run: Path, draw: random.Random) -> None:
    """Rows that are rows, with values that nothing measures."""
    values = [1e308, -1e308, 5e-324, True, None, "<script>", "[/bold]", [1, [2]], {"a": 1}, 10**29]
    with (run / "metrics.jsonl").open("a") as file:
        for step in range(100, 110):
            made = {key: draw.choice(values) for key in row(0) if key != "step"}
            made |= {"train/certificate_failed": draw.choice(values), "[/red]": draw.choice(values)}
            made |= {"train/slack x": draw.choice(values), "x_unconverged": draw.choice(values)}
            file.write(json.dumps(made | {"step": step * 10 ** draw.randrange(13)}) + "\n")
        file.write("{}\n")


def write_many_keys(run: Path, draw: random.Random) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        for step in range(draw.choice([1, 40])):
            keys = {f"own {step} {n}": n for n in range(draw.choice([2_500, 20_000]))}
            file.write(json.dumps(keys | {"step": 1000 + step}) + "\n")


def write_long_line(run: Path, draw: random.Random) -> None:
    with (run / "metrics.jsonl").open("ab") as file:
        file.truncate(draw.choice([3 << 20, 2 << 30]))


def replace_by_pipe(run: Path, draw: random.Random) -> None:
    file = emptied(run, draw.choice([*FILES, "lock"]))
    os.mkfifo(file)
    if file.name == "lock":
        (run / "status.json").write_text('{"status": "running", "step": 1}')


def replace_by_socket(run: Path, draw: random.Random) -> None:
    file = emptied(run, draw.choice(FILES))
    here = os.getcwd()
    os.chdir(file.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(file.name)
    finally:
        os.chdir(here)


def replace_by_link(run: Path, draw: random.Random) -> None:
    file = emptied(run, draw.choice(FILES))
    targets = ["/dev/zero", "/dev/stdin", "/dev/tty", "/nowhere", file.name, "..", "/proc/self/mem"]
    file.symlink_to(draw.choice(targets))


def replace_by_folder(run: Path, draw: random.Random) -> None:
    emptied(run, draw.choice(FILES)).mkdir()


def replace_by_gigabytes(run: Path, draw: random.Random) -> None:
    file = emptied(run, draw.choice(FILES))
    with file.open("wb") as opened:
        opened.write(draw.choice([b"", b"PK\x03\x04", b"{"]))
        opened.truncate(2 << 30)


def cut_or_flip(run: Path, draw: random.Random) -> None:
    file = run / "snapshots" / "90.npz"
    content = bytearray(file.read_bytes())
    if draw.random() < 0.5:
        content = content[: draw.randrange(len(content) // 2)]
    else:
        content[:4] = b"\x00" * 4
        content[-22:] = bytes(draw.randrange(256) for _ in range(22))
    file.write_bytes(content)


def replace_arrays(run: Path, draw: random.Random) -> None:
    """Arrays of a snapshot that are none of its arrays."""
    arrays = snapshot()
    name = draw.choice(sorted(set(arrays) - {"train_margin_edges", "val_margin_edges"}))
    arrays[name] = draw.choice(
        [
            np.array(["a", "b"]),
            np.full(arrays[name].shape, "1"),
            np.full(arrays[name].shape, np.nan),
            np.full(arrays[name].shape, -3),
            np.full(arrays[name].shape, 1e300),
            np.full(arrays[name].shape, 1j),
            np.zeros((3, 3, 3)),
            np.array(7),
            np.zeros(0),
        ]
    )
    np.savez(run / "snapshots" / "90.npz", **arrays)


def claim_a_shape(run: Path, draw: random.Random) -> None:
    """An .npy whose header claims more than there is, or is endless itself."""
    shape = draw.choice(
        ["(10000000000000,)", "(-1,)", "(" * 900, "(1e9,)", "(99999, 99999, 99999)"]
    )
    kind = draw.choice(["<f8", "|O", "<V8", "<f99999999", "x" * 500])
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    length = draw.choice([len(header), 2**32 - 1, 0])
    content = b"\x93NUMPY\x02\x00" + struct.pack("<I", length) + header
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("val_counts.npy", content)
        if draw.random() < 0.3:
            packed.writestr("bomb.npy", b"\x00" * (100 << 20))
    (run / "snapshots" / "90.npz").write_bytes(made.getvalue())


def rename(run: Path, draw: random.Random) -> None:
    """A name that is not UTF-8, looks like markup, or moves the cursor of a terminal."""
    names = [b"\xff\xfe", b"a\nb", b"[bold]", b"\x1b[2J", b"<img src=x>", b"%{x}"]
    name = draw.choice(names) + b"-hostile"
    os.rename(os.fsencode(run), os.path.join(os.fsencode(run.parent), name))
    renamed = Path(os.fsdecode(os.path.join(os.fsencode(run.parent), name)))
    (renamed / draw.choice(JSON_FILES[:3])).write_bytes(b"{")


def nest(run: Path, draw: random.Random) -> None:
    """A thousand folders in each other, and a run that is broken beside them."""
    here = os.getcwd()
    os.chdir(run.parent)
    try:
        for _ in range(1_100):
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.chdir(here)
    write_json_damage(run, draw)


DAMAGES: tuple[Damage, ...] = (
    *(write_json_damage, write_row_damage, write_strange_rows, write_many_keys, write_long_line),
    *(replace_by_pipe, replace_by_socket, replace_by_link, replace_by_folder),
    *(replace_by_gigabytes, cut_or_flip, replace_arrays, claim_a_shape, rename, nest),
)


def emptied(run: Path, name: str) -> Path:
    file = run / name
    file.unlink(missing_ok=True)
    return file


def examine(folder: Path) -> str:
    """Read a folder in three ways; return what is wrong with what was shown, or nothing."""
    runs = find_runs(folder)
    table_of(runs)
    texts = {
        "runs": "\n".join(f"{run.name} {run.status} {run.warnings}" for run in runs),
        "report": report(folder),
        "live": live_page(folder),
    }
    for reader, text in texts.items():
        text.encode()
        if "sgd:lr=0.7" not in text.replace("<wbr>", "") and reader != "runs":
            return f"{reader}: the sound run is missing"
        if reader == "runs" and "snapshots/" in texts["report"]:
            continue  # the table shows nothing of snapshots, and reads none
        if not any(word in text for word in ("cannot be read", "must hold", "nterrupted at step")):
            return f"{reader}: nothing is said of the hostile run"
    if len(runs) != 2:
        return f"{len(runs)} runs are listed, not 2"
    return ""


def live_page(folder: Path) -> str:
    """Return what the live page answers, all of it."""
    answers = PageAnswers(folder)
    parts = [answers.page(), answers.body(), answers.sections(), answers.report()]
    return b"\n".join([*parts, answers.rows({})]).decode()


def interrupt(*_: object) -> None:
    raise TimeoutError(f"not answered within {TIME_LIMIT} s")


def main() -> None:
    """Make the folders, read each, and print the counts."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--count", type=int, default=300)
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    warnings.simplefilter("error")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    signal.signal(signal.SIGALRM, interrupt)

    made: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    longest = 0.0
    with tempfile.TemporaryDirectory() as place:
        sound = make_run(Path(place) / "sound", {"optimizer": "sgd:lr=0.7"})
        for number in range(options.count):
            damage = DAMAGES[number % len(DAMAGES)]
            draw = random.Random(f"{options.seed} {number}")
            folder = Path(place) / f"folder{number}"
            shutil.copytree(sound, folder / "sound")
            hostile = make_run(folder / "hostile", {"optimizer": "adamw"})
            (hostile / "temperature.json").write_text("{}")
            damage(hostile, draw)

            began = time.monotonic()
            signal.alarm(TIME_LIMIT)
            try:
                problem = examine(folder)
            except Exception:
                problem = traceback.format_exc()
            finally:
                signal.alarm(0)
            longest = max(longest, time.monotonic() - began)
            made[damage.__name__] += 1
            if problem:
                failed[damage.__name__] += 1
                print(f"{number} {damage.__name__}: {problem}", file=sys.stderr)
            subprocess.run(["rm", "-rf", str(folder)], check=True)  # however deep

    print("| damage | folders | not survived |\n|---|---|---|")
    for name, count in made.items():
        print(f"| {name.replace('_', ' ')} | {count} | {failed[name]} |")
    print(f"| all | {made.total()} | {failed.total()} |")
    print(f"\nThe longest took {longest:.1f} s, for all three readers.")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
