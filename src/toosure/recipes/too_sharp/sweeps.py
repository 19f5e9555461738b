"""The runs of the paper in words: which optimizers, learning rates, lengths and measurements."""

from dataclasses import dataclass
from typing import Any

from toosure.config import RunConfig
from toosure.recipes.recipe import Setting


@dataclass(frozen=True)
class Series:
    """One column of Table 1: an optimizer at several learning rates."""

    word: str
    rates: tuple[str, ...]
    steps: int
    batch: int | None = None


DESCENT = ("2/30", "2/50", "2/70", "2/90")
# The paper gives the optimizers and says four learning rates each; where it is silent (rates of
# AdamW and Muon, batch, lengths) these are the settings of our first prototype.
TABLE_1 = {
    "GD": Series("gd:lr={}", DESCENT, 8000),
    "SGD": Series("sgd:lr={}", DESCENT, 8000, batch=128),
    "AdamW": Series("adamw:lr={}", ("1e-4", "3e-4", "1e-3", "3e-3"), 8000),
    "Muon": Series("muon:lr={}", ("1e-3", "3e-3", "1e-2", "2e-2"), 2000),
    "SAM": Series("sam:base=gd,lr={},rho=0.05", DESCENT, 4000),
}
QUICK = {
    "GD": Series("gd:lr={}", ("1", "0.5"), 120),
    "SGD": Series("sgd:lr={}", ("1", "0.5"), 120, batch=32),
    "AdamW": Series("adamw:lr={}", ("3e-3", "1e-2"), 60),
    "Muon": Series("muon:lr={}", ("1e-2", "2e-2"), 60),
    "SAM": Series("sam:base=gd,lr={},rho=0.05", ("1", "0.5"), 60),
}


def images(setting: Setting) -> str:
    """Return the data of the trajectories: 5,000 / 5,000 images, one global standard deviation."""
    if setting.quick:
        return "digits:train=200,val=200,test=100"
    return f"{setting.data}:train=5000,val=5000,test=0,standardise=global"


def network(setting: Setting) -> str:
    return "mlp:width=16" if setting.quick else "mlp"


def trajectory(setting: Setting, optimizer: str, seed: int | None = None, **more: Any) -> RunConfig:
    """Return a run of the paper's network on the paper's images, sharpness on both splits."""
    every = 8 if setting.quick else 20
    seed = setting.first if seed is None else seed
    given = {"data": images(setting), "model": network(setting), "batch": None, "every": every}
    return RunConfig.of({**given, "optimizer": optimizer, "seed": seed, **more})


def columns(setting: Setting) -> dict[str, Series]:
    """Return the columns of Table 1."""
    return QUICK if setting.quick else TABLE_1


def column(setting: Setting, name: str, seed: int) -> list[RunConfig]:
    """Return the runs of one column, a run a learning rate."""
    series = columns(setting)[name]
    return [
        trajectory(setting, series.word.format(rate), seed, steps=series.steps, batch=series.batch)
        for rate in series.rates
    ]


def table_1(setting: Setting) -> list[RunConfig]:
    """Return every run of Table 1, for every seed."""
    return [
        c for seed in setting.among(0) for n in columns(setting) for c in column(setting, n, seed)
    ]


def bulk(setting: Setting) -> dict[tuple[str, int], RunConfig]:
    """Return BulkSGD with 1, 3, 5 eigenvectors of the Hessian removed, by (rate, k) (Figure 2)."""
    rates, ks = (("1",), (1, 3)) if setting.quick else (("2/70", "2/30"), (1, 3, 5))
    steps, batch = (60, 32) if setting.quick else (3000, 128)
    return {
        (rate, k): trajectory(setting, f"bulksgd:lr={rate},k={k}", steps=steps, batch=batch)
        for rate in rates
        for k in ks
    }


def long_bulk(setting: Setting) -> dict[tuple[str, int], RunConfig]:
    """Return longer BulkSGD runs, which look for the directions anew only every ten steps."""
    rate, ks = ("1", (1,)) if setting.quick else ("2/30", (1, 3, 5))
    sizes = {"steps": 96, "batch": 32} if setting.quick else {"steps": 20_000, "batch": 128}
    sizes |= {} if setting.quick else {"every": 100}
    return {
        (rate, k): trajectory(setting, f"bulksgd:lr={rate},k={k},refresh=10", **sizes) for k in ks
    }


def mse(setting: Setting) -> dict[str, list[RunConfig]]:
    """Return GD and SGD under squared error (Figures A16, A17)."""
    steps, every = (300, 20) if setting.quick else (20_000, 50)
    return {
        name: [
            trajectory(
                setting, series.word.format(rate), steps=steps, batch=series.batch, every=every,
                loss="mse",
            )
            for rate in series.rates
        ]
        for name, series in columns(setting).items()
        if name in ("GD", "SGD")
    }  # fmt: skip


def certified(setting: Setting) -> RunConfig:
    """Return one GD run with every theorem checked at every measurement."""
    series = columns(setting)["GD"]
    return trajectory(
        setting, series.word.format(series.rates[0]), steps=series.steps,
        every=12 if setting.quick else 200, measure=("gn_sharpness", "certificate"), eps=0.002,
    )  # fmt: skip


def batches(setting: Setting) -> list[RunConfig]:
    """Return the SGD runs with batch sharpness, at a few steps: it is sampled, and dear."""
    series = columns(setting)["SGD"]
    at = (
        (0, 60, 120) if setting.quick else (0, 50, 100, 200, 400, 800, 1600, 3200, 4800, 6400, 8000)
    )
    more: dict[str, Any] = {"measure": ("gn_sharpness", "batch_sharpness"), "at": at}
    more["every"] = RunConfig.every  # `at` says when
    more |= {"steps": series.steps, "batch": series.batch}
    if setting.quick:  # a batch of all images: nothing to sample
        more |= {"data": "digits:train=120,val=100,test=100", "batch": 120}
    found = [trajectory(setting, series.word.format(rate), **more) for rate in series.rates]
    return found[:1] if setting.quick else found
