"""Where a larger radius makes a network surer: what radius control does there, with its guard.

    PYTHONPATH=src python3 benchmarks/wrong_way.py [--seeds 3]

A small MLP learns digits by SAM or ASAM (1,500 steps of batch 64, rate 0.1, momentum 0.9, cosine).
Per row, of each seed: the radius at the end, whether the controller gave up, T fitted on the
validation images, and their accuracy and NLL. About ten seconds per run on one core.
"""

import argparse
import tempfile
import warnings
from pathlib import Path

from toosure.config import RunConfig
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


def main() -> None:
    """Train all runs and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()

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
