"""The main job: five optimizers on a few noisy digits, side by side, and the report on them."""

import sys
from pathlib import Path

from toosure.cli import app
from toosure.config import RunConfig

# Two hundred digits, a fifth of them mislabelled: soon learnt by heart, and then too sure.
DATA = "digits:train=200,noise=0.2"
OPTIMIZERS = [
    "sgd:lr=0.1,momentum=0.9",
    "adamw:lr=0.001",
    "muon:lr=0.02",
    "sam:lr=0.1,momentum=0.9,rho=0.2",
    "csam:lr=0.1,momentum=0.9,rho=0.2,gamma=1",
]


def toosure(*words: str) -> None:
    """Run a command as anyone would type it."""
    print(f"\n$ toosure {' '.join(words)}\n", flush=True)
    app(list(words), prog_name="toosure", standalone_mode=False)


def main(folder: str = ".", steps: str = "500") -> None:
    """Train the five, evaluate the test predictions of the first, and report on all."""
    runs, page = Path(folder, "runs", "demo"), Path(folder, "demo_report.html")
    what = ["--data", DATA, "--optimizer", *OPTIMIZERS, "--steps", steps, "--every", "25"]
    what += ["--threads", "1"]  # few numbers: more threads would wait for each other
    toosure("train", *what, "--out", str(runs))
    first = RunConfig(data=DATA, optimizer=OPTIMIZERS[0], steps=int(steps), every=25)
    predictions = runs / first.name / "predictions.npz"
    toosure("evaluate", str(predictions), "--split", "test")
    toosure("report", str(runs), "-o", str(page))
    print(f"\nRuns: {runs}   Report: {page}")


if __name__ == "__main__":
    main(*sys.argv[1:])
