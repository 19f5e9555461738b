"""Time and memory of the metrics against other libraries: `python benchmarks/metrics.py [--quick]`.

Runs in the environment of `make peers` where that exists, so that all stand side by side in one
process on one thread. Contenders take turns, 5 to 25 rounds (fewer for those above a second); the
table gives medians and the ratio to ours. Libraries that want probabilities get them for free.
"""

import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / ".peers" / "bin" / "python"
SHAPES = [(10_000, 10), (1_000_000, 10), (50_000, 1000), (1_000_000, 100)]
RESULTS = ROOT / "benchmarks" / "results" / "metrics.md"
Contenders = dict[str, Callable[[], object]]


def make_rows(n: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return over-confident logits, float32, as a trained network has them, and labels."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(n, classes, generator=generator)
    labels = torch.randint(classes, (n,), generator=generator)
    wrong = torch.rand(n, generator=generator) < 0.15
    seen = torch.where(wrong, torch.randint(classes, (n,), generator=generator), labels)
    logits[torch.arange(n), seen] += 3 + 6 * torch.rand(n, generator=generator)
    return logits, labels


def peer(module: str, name: str) -> Callable[..., object] | None:
    """Return a peer's function, or None where it is not installed."""
    try:
        return getattr(__import__(module, fromlist=[name]), name)
    except ImportError:
        return None


def bare_pass(logits: torch.Tensor) -> torch.Tensor:
    """Read the logits once for the maximum and once for logsumexp: what ECE cannot do without."""
    return (logits.max(1).values - logits.logsumexp(1)).exp()


def classwise_loop(probs: np.ndarray, labels: np.ndarray, bins: int = 15) -> float:
    """Compute the classwise error per class and per bin, as it is usually written."""
    error, edges = 0.0, np.arange(bins + 1) / bins
    for k in range(probs.shape[1]):
        p, y = probs[:, k], labels == k
        for low, high in pairwise(edges):
            inside = (p > low) & (p <= high)
            if inside.any():
                error += abs(y[inside].mean() - p[inside].mean()) * inside.mean()
    return error / probs.shape[1]


def contests(n: int, classes: int) -> dict[str, Contenders]:
    """Return what to time on one shape: ours first, then the others."""
    from toosure import metrics

    logits, labels = make_rows(n, classes)
    probs = logits.softmax(1)
    p, y, pair = probs.numpy(), labels.numpy(), metrics.top_label(logits, labels)
    top, hit = p.max(1), (p.argmax(1) == y).astype(int)
    contenders: dict[str, Contenders] = {
        "ece": {
            "toosure": lambda: metrics.ece(logits, labels),
            "bare max + logsumexp": lambda: bare_pass(logits),
        },
        "classwise_ece": {"toosure": lambda: metrics.classwise_ece(logits, labels)},
        "smece": {
            "toosure": lambda: metrics.smece(logits, labels),
            "toosure, from confidences": lambda: metrics.smece_from_confidence(*pair),
        },
        "mmce": {
            "toosure": lambda: metrics.mmce(logits, labels),
            "toosure's ece": lambda: metrics.ece(logits, labels),
        },
    }
    torchmetrics_ece = peer(
        "torchmetrics.functional.classification", "multiclass_calibration_error"
    )
    if torchmetrics_ece:
        contenders["ece"]["torchmetrics"] = lambda: torchmetrics_ece(
            probs, labels, classes, n_bins=15
        )
    netcal_ece = peer("netcal.metrics", "ECE")
    if netcal_ece:
        contenders["ece"]["netcal"] = lambda: netcal_ece(15).measure(p, y)
    mapie_ece = peer("mapie.metrics.calibration", "expected_calibration_error")
    if mapie_ece:
        contenders["classwise_ece"]["MAPIE"] = partial(
            mapie_ece, hit, p, 16, "uniform", classwise=True, class_labels=y
        )
    if n * classes <= 50_000_000 and (not mapie_ece or n * classes <= 10_000_000):
        contenders["classwise_ece"]["loop over classes and bins"] = lambda: classwise_loop(p, y)
    relplot_smece = peer("relplot", "smECE")
    if relplot_smece:
        contenders["smece"]["relplot"] = lambda: relplot_smece(top, hit.astype(float))
    netcal_mmce = peer("netcal.metrics", "MMCE")
    if netcal_mmce and n <= 10_000:  # O(n^2) memory
        contenders["mmce"]["netcal"] = lambda: netcal_mmce().measure(p, y)
    return contenders


def reset_peak() -> None:
    """Tell Linux to forget the process's highest memory so far."""
    Path("/proc/self/clear_refs").write_text("5")


def memory(field: str) -> float:
    """Return VmRSS (now) or VmHWM (highest) in MB."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if field in x)
    return int(line.split()[1]) / 1024


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Return seconds and peak MB above what was there before."""
    reset_peak()
    before, start = memory("VmRSS"), time.perf_counter()
    run()
    return time.perf_counter() - start, memory("VmHWM") - before


def measure(contenders: Contenders) -> dict[str, tuple[float, float, int]]:
    """Let the contenders take turns; return median seconds, highest MB and rounds of each."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    peaks = dict.fromkeys(contenders, 0.0)

    for turn in range(26):  # the first is to warm up
        names = list(contenders)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:  # nobody always first
            spent = sum(seconds[name])
            if (turn > 1 and spent > 10) or (turn > 5 and spent > 0.5):
                continue
            spent, peak = timed(contenders[name])
            seconds[name].append(spent)
            peaks[name] = max(peaks[name], peak)

    rest = {name: taken[1:] for name, taken in seconds.items()}
    return {
        name: (statistics.median(taken), peaks[name], len(taken)) for name, taken in rest.items()
    }


def table(name: str, shapes: list[tuple[int, int]], measured: list[dict]) -> list[str]:
    """Return the Markdown lines of one metric: seconds (ratio to ours), MB."""
    heads = [f"{n:,} x {classes:,}" for n, classes in shapes]
    lines = [f"## {name}", "", f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]

    contenders = dict.fromkeys(c for each in measured for c in each)
    for contender in contenders:
        cells = []
        for each in measured:
            if contender not in each:
                cells.append("not run")
                continue
            seconds, peak, rounds = each[contender]
            ratio = seconds / each["toosure"][0]
            cells.append(f"{seconds:.4g} s ({ratio:.2f}x), {peak:.0f} MB, {rounds} rounds")
        lines.append(f"| {contender} | {' | '.join(cells)} |")
    return [*lines, ""]


def state_lines() -> list[str]:
    """Return what the streaming twins keep after 100,000 rows, against torchmetrics' own."""
    try:
        from torchmetrics.classification import MulticlassCalibrationError

        from toosure.metrics.streaming import ECE, ClasswiseECE
    except ImportError:
        return []
    logits, labels = make_rows(100_000, 10)
    theirs, ours = MulticlassCalibrationError(10, n_bins=15), ECE()
    for metric in (theirs, ours):
        for part in torch.arange(100_000).split(1000):
            metric.update(logits[part], labels[part])
    stored = sum(t.nbytes for t in [*theirs.confidences, *theirs.accuracies])
    own = sum(getattr(ours, name).nbytes for name in ours._defaults)
    wide = ClasswiseECE(1000)
    classes = sum(getattr(wide, name).nbytes for name in wide._defaults)
    return [
        "## State of the streaming metrics",
        "",
        f"ECE after 100,000 rows: toosure {own} bytes, torchmetrics {stored:,} bytes.",
        f"Classwise ECE of 1,000 classes, any number of rows: {classes / 1024:.0f} KiB.",
        "",
    ]


def main() -> None:
    """Measure every contest on every shape and write the results file."""
    if PEERS.exists() and Path(sys.executable).parent != PEERS.parent:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
        command = [str(PEERS), "-W", "ignore", *sys.argv]
        raise SystemExit(subprocess.run(command, env=environment, check=False).returncode)

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    shapes = SHAPES[:1] if "--quick" in sys.argv else SHAPES

    gathered: dict[str, list[dict]] = {}
    for shape in shapes:
        for name, contenders in contests(*shape).items():
            gathered.setdefault(name, []).append(measure(contenders))
            print(shape, name, gathered[name][-1], flush=True)

    lines = ["# Metrics against other libraries", ""]
    lines += [
        f"2-core CPU, no GPU; one thread; torch {torch.__version__.split('+')[0]}, float32 logits.",
        "Median seconds (ratio to toosure), peak MB above the inputs, rounds. One run of",
        "`python benchmarks/metrics.py`; other work ran on the machine, so read the ratios.",
        "torchmetrics, netcal, MAPIE and the loop were given probabilities and relplot confidences",
        "and hits; ours reads logits where not said otherwise.",
        "MAPIE makes one bin too few, so it was asked for 16 to get 15.",
        "",
    ]

    for name, measured in gathered.items():
        lines += table(name, shapes, measured)
    lines += state_lines()

    if "--quick" in sys.argv:
        print("\n".join(lines))
    else:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text("\n".join(lines))
        print(f"wrote {RESULTS}")


if __name__ == "__main__":
    main()
