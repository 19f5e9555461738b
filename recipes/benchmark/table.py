"""Print the benchmark's tables from `scores.jsonl`, and paired differences from `examples_*.npz`.

    python recipes/benchmark/table.py

`scores.jsonl` has one line per run: its config, the scores of its 10,000 test images before and
after a temperature fitted on the 5,000 validation images, and of the validation images.
`examples_*.npz` hold, per run and test image, the confidence, whether it is right, and the log
probability of the label. `collect.py` makes both from run folders.
"""

import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
METRICS = {
    "accuracy": ("accuracy %", 100, ".2f"),
    "nll": ("NLL", 1, ".4f"),
    "ece": ("ECE", 100, ".2f"),
    "debiased_ece": ("debiased ECE", 100, ".2f"),
    "smece": ("smECE", 100, ".2f"),
    "adaptive_ece": ("AdaECE", 100, ".2f"),
    "classwise_ece": ("classwise ECE", 100, ".3f"),
    "aurc": ("AURC", 1, ".4f"),
}
BASE = "lr=0.1,momentum=0.9,weight_decay=0.0005"
RESAMPLES = 2000


def method_of(run: dict) -> str:
    """Name a run's optimizer without the settings that all share."""
    word = run["config"]["optimizer"].replace(BASE, "").replace(":,", ":").rstrip(",:")
    if word == "sam":
        return "sam:rho=0.05"  # the default is not written out
    return f"{word},gamma=1" if word.startswith("csam") and "gamma" not in word else word


def data_of(run: dict) -> str:
    return run["config"]["data"].split(":")[0]


def grouped(runs: list[dict]) -> dict[tuple[str, str], list[dict]]:
    groups: dict[tuple[str, str], list[dict]] = {}
    for run in sorted(runs, key=lambda run: (data_of(run), method_of(run), run["config"]["seed"])):
        groups.setdefault((data_of(run), method_of(run)), []).append(run)
    return groups


def spread(values: list[float], scale: float, form: str) -> str:
    mean = format(scale * float(np.mean(values)), form)
    deviation = f" ± {format(scale * float(np.std(values, ddof=1)), form)}" if values[1:] else ""
    return mean + deviation


def table(groups: dict[tuple[str, str], list[dict]], data: str) -> str:
    """Return one row per method: mean and standard deviation over seeds."""
    names = [name for name, _, _ in METRICS.values()]
    header = ["method", "seeds", *names, "ECE after T", "NLL after T", "T", "validation NLL"]
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for (name, method), runs in groups.items():
        if name != data:
            continue
        cells = [f"`{method}`", str(len(runs))]
        for key, (_, scale, form) in METRICS.items():
            cells.append(spread([run["test"][key] for run in runs], scale, form))
        after = [run["test_after_temperature"] for run in runs]
        cells.append(spread([scores["ece"] for scores in after], 100, ".2f"))
        cells.append(spread([scores["nll"] for scores in after], 1, ".4f"))
        cells.append(spread([run["temperature"] for run in runs], 1, ".3f"))
        cells.append(spread([run["val"]["nll"] for run in runs], 1, ".4f"))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def ece(confidence: np.ndarray, correct: np.ndarray, bins: int = 15) -> float:
    index = np.searchsorted(np.arange(1, bins) / bins, confidence)
    gaps = np.bincount(index, confidence - correct, minlength=bins)
    return float(np.abs(gaps).sum() / len(correct))


def paired(first: list[dict], second: list[dict], examples: dict[str, np.ndarray]) -> str:
    """Return differences second - first with 95 % intervals: the same images, the same seeds."""
    generator = np.random.default_rng(0)
    pairs = list(zip(first, second, strict=True))

    def numbers(run: dict, rows: np.ndarray) -> np.ndarray:
        part = {k: examples[f"{run['name']}/{k}"][rows] for k in ("confidence", "correct")}
        log_p = examples[f"{run['name']}/log_probability"][rows]
        error = ece(part["confidence"].astype(float), part["correct"])
        return np.array([100 * part["correct"].mean(), -log_p.mean(), 100 * error])

    def difference(rows: np.ndarray) -> np.ndarray:
        return np.mean([numbers(b, rows) - numbers(a, rows) for a, b in pairs], axis=0)

    n = len(next(iter(examples.values())))
    value = difference(np.arange(n))
    drawn = np.array([difference(generator.integers(0, n, n)) for _ in range(RESAMPLES)])
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    forms = ("+.2f", "+.4f", "+.2f")
    cells = [
        f"{format(v, f)} ({format(a, f)} to {format(b, f)})"
        for v, a, b, f in zip(value, low, high, forms, strict=True)
    ]
    return " | ".join(cells)


def main() -> None:
    runs = [json.loads(line) for line in (HERE / "scores.jsonl").read_text().splitlines()]
    groups = grouped(runs)
    for data in dict.fromkeys(data for data, _ in groups):
        print(f"\n## {data}\n\n{table(groups, data)}\n")
        with np.load(HERE / f"examples_{data}.npz") as arrays:
            examples = {name: arrays[name] for name in arrays.files}
        full = {m: rs for (d, m), rs in groups.items() if d == data and len(rs) > 2}
        print("| second - first | accuracy, points | NLL | ECE, points |\n|---|---|---|---|")
        names = list(full)
        for i, one in enumerate(names):
            for other in names[i + 1 :]:
                print(f"| `{other}` - `{one}` | {paired(full[one], full[other], examples)} |")


if __name__ == "__main__":
    main()
