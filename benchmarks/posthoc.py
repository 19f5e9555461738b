"""Time and memory of temperature scaling against netcal and LBFGS: `python benchmarks/posthoc.py`.

Runs in the environment of `make peers` where that exists, so that all stand side by side in one
process on one thread, taking turns. `--quick` takes 20,000 rows and writes no file.
"""

import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / ".peers" / "bin" / "python"
RESULTS = ROOT / "benchmarks" / "results" / "posthoc.md"
ROUNDS = 3


def make_rows(n: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return over-confident logits, float32, and labels drawn at a temperature of 1.8."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(n, classes, generator=generator)
    top = torch.randint(classes, (n,), generator=generator)
    logits[torch.arange(n), top] += 4 + 10 * torch.rand(n, generator=generator)
    parts = (logits / 1.8).softmax(1).split(100_000)
    drawn = [torch.multinomial(part, 1, generator=generator).squeeze(1) for part in parts]
    return logits, torch.cat(drawn)


def ours(logits: torch.Tensor, labels: torch.Tensor) -> float:
    from toosure.posthoc import Temperature

    return float(Temperature().fit(logits, labels).temperature)


def lbfgs(logits: torch.Tensor, labels: torch.Tensor, **options: object) -> float:
    """Minimise the NLL over T from 1.5, as gpleiss/temperature_scaling does."""
    t = torch.full((1,), 1.5, requires_grad=True)
    optimizer = torch.optim.LBFGS([t], **options)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(logits / t, labels)
        loss.backward()
        return loss

    optimizer.step(closure)
    return t.item()


def reference(logits: torch.Tensor, labels: torch.Tensor) -> float:
    return lbfgs(logits, labels, lr=0.01, max_iter=50)


def tuned(logits: torch.Tensor, labels: torch.Tensor) -> float:
    return lbfgs(logits, labels, lr=1, max_iter=50, line_search_fn="strong_wolfe")


def netcal(probs: np.ndarray, labels: np.ndarray) -> float:
    """Fit netcal's; its temperature is read off how far it moves the log-odds of two classes."""
    from netcal.scaling import TemperatureScaling

    fitted = TemperatureScaling().fit(probs, labels)
    row = np.array([[0.8, *([0.2 / (probs.shape[1] - 1)] * (probs.shape[1] - 1))]])
    moved = fitted.transform(row)[0]
    return float(np.log(row[0, 0] / row[0, 1]) / np.log(moved[0] / moved[1]))


def memory(field: str) -> float:
    """Return VmRSS (now) or VmHWM (highest) in MB."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if field in x)
    return int(line.split()[1]) / 1024


class Measured(NamedTuple):
    """Seconds, peak MB above what was there before, and the temperature."""

    seconds: float
    peak: float
    temperature: float


def timed(run: Callable[[], float]) -> Measured:
    """Run once."""
    Path("/proc/self/clear_refs").write_text("5")
    before, start = memory("VmRSS"), time.perf_counter()
    temperature = run()
    return Measured(time.perf_counter() - start, memory("VmHWM") - before, temperature)


def contenders(logits: torch.Tensor, labels: torch.Tensor) -> dict[str, Callable[[], float]]:
    """Return what to time, ours first."""
    contenders: dict[str, Callable[[], float]] = {
        "toosure": lambda: ours(logits, labels),
        "torch LBFGS, strong Wolfe": lambda: tuned(logits, labels),
        "torch LBFGS, lr 0.01, 50 steps (gpleiss)": lambda: reference(logits, labels),
    }
    if find_spec("netcal"):
        probs, y = logits.double().softmax(1).numpy(), labels.numpy()
        contenders["netcal, float64 probabilities"] = lambda: netcal(probs, y)
    return contenders


def measure(logits: torch.Tensor, labels: torch.Tensor) -> dict[str, list[Measured]]:
    """Let the contenders take turns; those above 20 seconds have one only."""
    for run in contenders(logits[:1000], labels[:1000]).values():
        run()  # to load what is loaded late
    runs = contenders(logits, labels)
    measured: dict[str, list[Measured]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            if not measured[name] or measured[name][0].seconds < 20:
                measured[name].append(timed(run))
                print(name, measured[name][-1], flush=True)
    return measured


def report(measured: dict[str, list[Measured]], n: int, classes: int) -> str:
    """Return the results as Markdown."""
    medians = {name: statistics.median(m.seconds for m in each) for name, each in measured.items()}
    size, version = n * classes * 4 / 2**20, torch.__version__.split("+")[0]

    lines = [
        "# Temperature scaling against other code",
        "",
        f"2-core CPU, no GPU; one thread; torch {version}; {n:,} x {classes} float32 logits, ",
        f"{size:.0f} MB. One run of `python benchmarks/posthoc.py`, in turns: median seconds,",
        "ratio to toosure, highest MB above the inputs. Other work ran on the machine, so read the",
        "ratios. netcal was given its float64 probabilities for free.",
        "",
        "| | seconds | rounds | ratio | peak MB | copies of the logits | temperature |",
        "|---|---|---|---|---|---|---|",
    ]

    for name, each in measured.items():
        peak, ratio = max(m.peak for m in each), medians[name] / medians["toosure"]
        lines.append(
            f"| {name} | {medians[name]:.2f} | {len(each)} | {ratio:.1f} | {peak:.0f} "
            f"| {peak / size:.2f} | {each[0].temperature:.6f} |"
        )

    rest = min(seconds for name, seconds in medians.items() if name != "toosure")
    lines += ["", f"The fastest other takes {rest / medians['toosure']:.1f} times as long.", ""]
    return "\n".join(lines)


def main() -> None:
    """Measure and write the results file."""
    if PEERS.exists() and Path(sys.executable).parent != PEERS.parent:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
        command = [str(PEERS), "-W", "ignore", *sys.argv]
        raise SystemExit(subprocess.run(command, env=environment, check=False).returncode)

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    n, classes = (20_000, 100) if "--quick" in sys.argv else (1_000_000, 100)
    text = report(measure(*make_rows(n, classes)), n, classes)
    print(text)

    if "--quick" not in sys.argv:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
