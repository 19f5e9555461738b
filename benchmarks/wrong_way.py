"""Where a larger radius makes a network surer: what radius control does there, with its guard.

    PYTHONPATH=src python3 benchmarks/wrong_way.py [--seeds 3]
    PYTHONPATH=src python3 benchmarks/wrong_way.py --memorising [--seeds 20]

A small MLP learns digits by SAM or ASAM (1,500 steps of batch 64, rate 0.1, momentum 0.9, cosine).
Per row, of each seed: the radius at the end, whether the controller gave up, T fitted on the
validation images, and their accuracy and NLL. About ten seconds per run on one core.

`--memorising` asks how often the guard speaks where the radius works: a network with BatchNorm on
digits with 30 % wrong labels, which it learns by heart; two seconds per run.
"""

import argparse
import math
import statistics
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

from toosure.config import RunConfig
from toosure.control import Radius, RadiusControl, log_temperature
from toosure.data import digits
from toosure.data.dataset import flip_labels
from toosure.optim import SAM
from toosure.train import train

RADII = {"sam": (0.05, 0.2, 0.8), "asam": (0.5, 2.0, 8.0)}
CONTROLS = ("radius", "radius:guard=inf")


def run_of(optimizer: str, rho: float, control: str | None, seed: int) -> RunConfig:
    """Return one training."""
    return RunConfig(
        data="digits",
        model="mlp",
        optimizer=f"{optimizer}:rho={rho},lr=0.1,momentum=0.9",
        control=control,
        steps=1500,
        batch=64,
        schedule="cosine",
        every=1500,
        measure=(),
        seed=seed,
    )


def cells(config: RunConfig, rho: float, folder: Path) -> str:
    """Train a run that starts at a radius, and print its line of the table."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the controller says is in the row
        run = train(config, folder)
    row = run.last
    gave_up = "gave up" if row.get("control/gave_up") else ""
    temperature = run.scaling["temperature"]
    numbers = f"{temperature:.2f} | {100 * row['val/accuracy']:.1f} | {row['val/nll']:.3f}"
    return f"{config.seed} | {row.get('control/rho', rho):.3g} | {gave_up} | {numbers} |"


# -- a radius that works, and labels learned by heart ---------------------------------------------


def memorising_rows(seeds: int) -> Iterator[str]:
    """Train with constant radii, and steered with and without the guard; yield table rows."""
    arms: list[tuple[str, float, Radius | None]] = [
        (f"`sam:rho={rho}`", rho, None) for rho in (0.05, 0.2, 1.0)
    ]
    arms += [
        ("`sam:rho=0.05`, `radius`", 0.05, Radius(every=10)),
        ("`sam:rho=0.05`, `radius:guard=inf`", 0.05, Radius(every=10, guard=math.inf)),
    ]
    for cosine in (True, False):
        for name, rho, settings in arms:
            runs = [memorise(seed, rho, settings, cosine) for seed in range(seeds)]
            nlls = [nll for nll, _, _ in runs]
            gave_up = "" if settings is None else str(sum(gave_up for _, _, gave_up in runs))
            log_t = statistics.fmean(value for _, value, _ in runs)
            schedule = "cosine" if cosine else "constant"
            numbers = f"{statistics.fmean(nlls):.2f} | {max(nlls):.2f} | {log_t:.2f} | {gave_up}"
            yield f"| {name} | {schedule} | {numbers} |"


def memorise(
    seed: int, rho: float, settings: Radius | None, cosine: bool, steps: int = 1000
) -> tuple[float, float, bool]:
    """Train on noisy digits; return test NLL, log T of the test images, and if control gave up."""
    data = digits(train=997, val=300, test=500, noise=0.3, seed=seed)
    # Control and test labels are as wrong as those of training.
    control_y = flip_labels(data.val.y, 10, 0.3, seed + 1)
    test_y = flip_labels(data.test.y, 10, 0.3, seed + 2)

    torch.manual_seed(seed)
    layers = [nn.Flatten(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10)]
    model = nn.Sequential(*layers)
    optimizer = SAM(model.parameters(), rho=rho, lr=0.2, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps) if cosine else None
    control = None
    if settings is not None:
        control = RadiusControl(model, optimizer, (data.val.x, control_y), steps, settings)

    for _ in range(steps):
        rows = torch.randint(len(data.train), (64,))

        def closure(rows: torch.Tensor = rows) -> torch.Tensor:
            loss = nn.functional.cross_entropy(model(data.train.x[rows]), data.train.y[rows])
            loss.backward()
            return loss

        optimizer.step(closure)
        if schedule is not None:
            schedule.step()
        if control is not None:
            control.step()

    model.eval()
    with torch.no_grad():
        logits = model(data.test.x)
    nll = float(nn.functional.cross_entropy(logits, test_y))
    gave_up = control is not None and control.integrator.gave_up
    return nll, log_temperature(logits, test_y).value, gave_up


def main() -> None:
    """Train all runs and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--memorising", action="store_true")
    options = parser.parse_args()

    if options.memorising:
        warnings.simplefilter("ignore")
        print("| run | schedule | NLL, mean | NLL, worst | log T | gave up |")
        print("|---|---|---|---|---|---|")
        for row in memorising_rows(options.seeds):
            print(row, flush=True)
        return

    print("| run | seed | rho at the end | | T | accuracy % | NLL |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for optimizer, radii in RADII.items():
            arms = [(rho, None) for rho in radii] + [(radii[0], word) for word in CONTROLS]
            for rho, control in arms:
                name = f"`{optimizer}:rho={rho}`" + (f", `{control}`" if control else "")
                for seed in range(options.seeds):
                    config = run_of(optimizer, rho, control, seed)
                    print(f"| {name} | {cells(config, rho, Path(folder))}", flush=True)


if __name__ == "__main__":
    main()
