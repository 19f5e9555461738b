"""Start groups of processes, as torchrun would, and wait for their runs."""

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np

from toosure.runs import Run
from toosure.train import ProgressListener
from waiting import LIMIT, free_port, wait_until

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ENDED = ("complete", "diverged")


class Cut(Exception):
    """Stands for the power cut."""


class CutAt(ProgressListener):
    def __init__(self, step):
        self.at = step

    def row(self, row):
        if row["step"] >= self.at:
            raise Cut


def environment(**more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TORCHELASTIC")}
    path = os.pathsep.join([str(HERE), str(HERE.parent), str(ROOT / "src")])
    return kept | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": path, **more}


def start(count, *words):
    """Start Python with these arguments in several processes of one group."""
    meeting = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1"}
    meeting["MASTER_PORT"] = str(free_port())
    return [
        subprocess.Popen(
            [sys.executable, *words],
            env=environment(RANK=str(rank), LOCAL_RANK=str(rank), **meeting),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(count)
    ]


class Group:
    """Processes at work on a file of cases, and the folder of their runs."""

    def __init__(self, count, file, out, *words):
        self.out, self.codes = out, None
        out.mkdir(exist_ok=True)
        self.processes = start(count, str(HERE / file), str(out), *words)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdout.close()

    def done(self):
        if self.codes is None:
            said = [process.communicate(timeout=LIMIT)[0] for process in self.processes]
            self.codes, self.said = [process.returncode for process in self.processes], said
        return self

    def run(self, config):
        """The run as soon as it has ended."""
        folder = self.out / config.name

        def ended():
            return (folder / "status.json").is_file() and Run(folder).status in ENDED

        wait_until(lambda: ended() or self.processes[0].poll() is not None)
        assert folder.is_dir(), self.done().said
        return Run(folder)


def draw_images(folder):
    from PIL import Image

    random = np.random.default_rng(0)
    for part, count in (("train", 14), ("test", 3)):
        for name in ("cat", "dog"):
            (folder / part / name).mkdir(parents=True)
            for i in range(count):
                pixels = random.integers(0, 256, (9, 8, 3), np.uint8)
                Image.fromarray(pixels).save(folder / part / name / f"{i}.png")


def pack_shards(images, shards):
    """Pack the images of a folder into tar shards of five, with the class beside each."""
    for part in ("train", "test"):
        (shards / part).mkdir(parents=True)
        files = sorted((images / part).glob("*/*"))
        for start in range(0, len(files), 5):
            with tarfile.open(shards / part / f"{start:03}.tar", "w") as tar:
                for file in files[start : start + 5]:
                    sample = f"{file.parent.name}-{file.stem}"
                    tar.add(file, f"{sample}.png")
                    label = tarfile.TarInfo(f"{sample}.cls")
                    label.size = len(file.parent.name)
                    tar.addfile(label, io.BytesIO(file.parent.name.encode()))
