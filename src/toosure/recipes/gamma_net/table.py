"""gamma-net with SECE against CE, focal and FLSD-53: calibration, time, parameters, gain."""

from types import SimpleNamespace

import numpy as np
import torch

from toosure.config import RunConfig
from toosure.recipes.gamma_net import sweeps
from toosure.recipes.kept import Scores, scores, seconds_of_training
from toosure.recipes.recipe import Claim, Findings, Setting, Shelf, Table, judged, lacking, unrun
from toosure.recipes.series import spread_text
from toosure.runs import Run

FILE = "predictions.npz"  # at the end of training, as the field reports
ERRORS = {
    "ECE": "ece",
    "MCE": "mce",
    "AdaECE": "adaptive_ece",
    "classwise ECE": "classwise_ece",
}
NOTE = (
    "Test split at the end of training, 15 bins, errors in points, mean ± standard deviation over "
    "seeds. ResNet-20, CIFAR-10 with crops and flips, SGD 0.1 with momentum .9 and weight decay "
    "5e-4, batch 128, 10,000 steps, the rate cut by 10 at half and three quarters. gamma-net cuts "
    "its meta split, a tenth, from its own training images."
)


def findings(setting: Setting, shelf: Shelf) -> Findings:
    """Return the main table and whether gamma-net is better calibrated than each baseline."""
    runs = {name: shelf.runs(sweeps.cell(setting, name)) for name in sweeps.METHODS}
    found = {name: tested(of) for name, of in runs.items()}
    rows = tuple(row(name, setting, runs, found) for name in found if found[name])
    header = (
        "method", "seeds", "accuracy %", *ERRORS, "seconds", "parameters", "points of ECE a second",
    )  # fmt: skip
    note = NOTE + (
        " Seconds are of training alone; runs side by side slow each other. The last column is ECE "
        "gained over CE for each second more than CE takes."
    )
    table = Table("gamma-net", header, rows, note)
    values = {name: [each._asdict() for each in of] for name, of in found.items()}
    return Findings(claims(setting, found), [table], values)


def tested(runs: list[Run]) -> list[Scores]:
    return [found for run in runs if (found := scores(run, FILE)) is not None]


def mean(found: list[Scores], field: str) -> float:
    return float(np.mean([getattr(each, field) for each in found]))


def figures(found: list[Scores]) -> tuple[str, ...]:
    """Print accuracy and the four calibration errors."""
    shares = (("accuracy", ".1f"), *((field, ".2f") for field in ERRORS.values()))
    return tuple(spread_text([100 * getattr(s, field) for s in found], f) for field, f in shares)


def row(
    name: str, setting: Setting, runs: dict[str, list[Run]], found: dict[str, list[Scores]]
) -> tuple[str, ...]:
    seconds = {n: float(np.mean([*map(seconds_of_training, of)])) for n, of in runs.items() if of}
    size = parameters(sweeps.cell(setting, name)[0], setting)
    gain = "–"
    if found.get("CE") and name != "CE":
        extra = seconds[name] - seconds["CE"]
        points = 100 * (mean(found["CE"], "ece") - mean(found[name], "ece"))
        gain = (
            f"{points / extra:.3f}" if extra > 0.02 * seconds["CE"] else f"{points:+.2f}, no time"
        )
    return (
        name, str(len(found[name])), *figures(found[name]), f"{seconds[name]:,.0f}", f"{size:,}",
        gain,
    )  # fmt: skip


def parameters(config: RunConfig, setting: Setting) -> int:
    """Return how many numbers are learned: the network's, and gamma-net's beside them."""
    inputs = (1, 8, 8) if setting.quick else (3, 32, 32)
    model = config.word("model").build(inputs=inputs, classes=10)
    learned = list(model.parameters())
    if config.objective:
        objective = config.word("objective").build(seed=0)
        example = SimpleNamespace(train=SimpleNamespace(x=torch.zeros(2, *inputs)))
        learned += list(objective.make_hyper(model, example).parameters())
    return sum(p.numel() for p in learned)


def claims(setting: Setting, found: dict[str, list[Scores]]) -> list[Claim]:
    """Judge: each calibration error below each baseline's, accuracy within a point."""
    says = {name: f"gamma-net + SECE is better calibrated than {name}" for name in sweeps.BASELINES}
    ours, elsewhere = found[sweeps.OURS], "judged on CIFAR-10 only" if setting.quick else ""
    made: list[Claim] = []
    for other, saying in says.items():
        theirs = found[other]
        if not ours or not theirs:
            made += unrun(saying)
            continue
        pairs = {n: (mean(ours, f), mean(theirs, f)) for n, f in ERRORS.items()}
        text = ", ".join(f"{n} {100 * a:.2f} : {100 * b:.2f}" for n, (a, b) in pairs.items())
        made.append(
            judged(saying, f"{text} (n = {len(ours)} : {len(theirs)})", "all lower",
                   all(a < b for a, b in pairs.values()), "", elsewhere,
                   lack(setting, found, sweeps.OURS, other))
        )  # fmt: skip
    known = [name for name in sweeps.BASELINES if found[name]]
    if not ours or not known:
        return [*made, *unrun("... at competitive accuracy")]
    best, own = max(mean(found[name], "accuracy") for name in known), mean(ours, "accuracy")
    text = f"{100 * own:.1f} %, best baseline {100 * best:.1f} %"
    missing = lack(setting, found, sweeps.OURS, *sweeps.BASELINES)
    return [*made, judged("... at competitive accuracy", text, "competitive", own > best - 0.01,
                          "ours: within a point", elsewhere, missing)]  # fmt: skip


def lack(setting: Setting, found: dict[str, list[Scores]], *names: str) -> str:
    """Say how many of these methods' runs are missing."""
    wanted = len(sweeps.seeds(setting)) * len(names)
    return lacking(sum(len(found[name]) for name in names), wanted)
