"""The paper's runs as configs: optimizers, learning rates, lengths and measurements."""

from dataclasses import dataclass

from toosure.config import RunConfig
from toosure.recipes.recipe import Setting


@dataclass(frozen=True)
class OptimizerSweep:
    """One column of Table 1: an optimizer at several learning rates; `{}` is the rate."""

    word: str
    rates: tuple[str, ...]
    steps: int
    batch: int | None = None


DESCENT = ("2/30", "2/50", "2/70", "2/90")
# The paper names the optimizers, with four learning rates each. It does not give the rates of AdamW
# and Muon, batches and lengths: these are ours.
CANDIDATES = {
    "AdamW": {
        "full batch, low rates": OptimizerSweep(
            "adamw:lr={}", ("1e-4", "3e-4", "1e-3", "3e-3"), 8000
        ),
        "full batch, high rates": OptimizerSweep(
            "adamw:lr={}", ("1e-3", "1e-2", "3e-2", "1e-1"), 8000
        ),
        "batch 128": OptimizerSweep(
            "adamw:lr={}", ("1e-4", "3e-4", "1e-3", "3e-3"), 8000, batch=128
        ),
    },
    "Muon": {
        "full batch": OptimizerSweep("muon:lr={}", ("1e-3", "3e-3", "1e-2", "2e-2"), 2000),
        "full batch, input layer under AdamW": OptimizerSweep(
            "muon:lr={},input_layer=false", ("1e-3", "3e-3", "1e-2", "2e-2"), 2000
        ),
        "batch 128": OptimizerSweep(
            "muon:lr={}", ("1e-3", "3e-3", "1e-2", "2e-2"), 2000, batch=128
        ),
        "batch 128, input layer under AdamW": OptimizerSweep(
            "muon:lr={},input_layer=false", ("1e-3", "3e-3", "1e-2", "2e-2"), 2000, batch=128
        ),
    },
}
# Which candidate Table 1 uses. The part `settings` says which fits the paper best, by its rule.
CHOSEN = {"AdamW": "full batch, high rates", "Muon": "full batch"}
TABLE_1 = {
    "GD": OptimizerSweep("gd:lr={}", DESCENT, 8000),
    "SGD": OptimizerSweep("sgd:lr={}", DESCENT, 8000, batch=128),
    "AdamW": CANDIDATES["AdamW"][CHOSEN["AdamW"]],
    "Muon": CANDIDATES["Muon"][CHOSEN["Muon"]],
    "SAM": OptimizerSweep("sam:base=gd,lr={},rho=0.05", DESCENT, 4000),
}
QUICK_CANDIDATES = {
    "AdamW": {
        "full batch": OptimizerSweep("adamw:lr={}", ("3e-3", "1e-2"), 120),
        "batch 32": OptimizerSweep("adamw:lr={}", ("3e-3", "1e-2"), 120, batch=32),
    },
    "Muon": {
        "full batch": OptimizerSweep("muon:lr={}", ("1e-2", "2e-2"), 120),
        "full batch, input layer under AdamW": OptimizerSweep(
            "muon:lr={},input_layer=false", ("1e-2", "2e-2"), 120
        ),
    },
}
# Small, and still with the effect of the paper: more weights than the few examples need, and four
# in ten labels are wrong, so that the network must bend to learn them.
QUICK = {
    "GD": OptimizerSweep("gd:lr={}", ("0.7", "0.5"), 240),
    "SGD": OptimizerSweep("sgd:lr={}", ("0.7", "0.5"), 240, batch=32),
    "AdamW": OptimizerSweep("adamw:lr={}", ("3e-3", "1e-2"), 120),
    "Muon": OptimizerSweep("muon:lr={}", ("1e-2", "2e-2"), 120),
    "SAM": OptimizerSweep("sam:base=gd,lr={},rho=0.05", ("0.7", "0.5"), 240),
}
BULK_STEPS = 15_000  # of BulkSGD with directions renewed at every step; the paper has 100,000

BulkRuns = dict[tuple[str, int], RunConfig]  # by learning rate and number of eigenvectors


def images(setting: Setting) -> str:
    """Return the data of the trajectories: 5,000 / 5,000 images, one global deviation."""
    if setting.quick:
        return "digits:train=100,val=200,test=100,noise=0.4"
    return f"{setting.data}:train=5000,val=5000,test=0,standardise=global"


def image_source(setting: Setting) -> str:
    """Return where the images of the trajectories come from."""
    if setting.quick:
        return "scikit-learn's digits"
    return "both splits drawn by seed from the official training images"


def network(setting: Setting) -> str:
    return "mlp:width=64" if setting.quick else "mlp"


def trajectory(
    setting: Setting, optimizer: str, seed: int | None = None, /, **options: object
) -> RunConfig:
    """Return a run of the paper's network on its images, with sharpness on both splits."""
    settings: dict[str, object] = {
        "data": images(setting),
        "model": network(setting),
        "batch": None,
        "every": 12 if setting.quick else 20,
        "optimizer": optimizer,
        "seed": setting.first_seed if seed is None else seed,
    }
    return RunConfig.of(settings | options)


# -- Table 1 --------------------------------------------------------------------------------


def optimizers(setting: Setting) -> dict[str, OptimizerSweep]:
    """Return the columns of Table 1 by the name of their optimizer."""
    return QUICK if setting.quick else TABLE_1


def rate_configs(setting: Setting, name: str, seed: int) -> list[RunConfig]:
    """Return the runs of one column of Table 1, one per learning rate."""
    return column_configs(setting, optimizers(setting)[name], seed)


def candidates(setting: Setting) -> dict[str, dict[str, OptimizerSweep]]:
    """Return the settings that were tried, by optimizer and name; the paper gives none."""
    return QUICK_CANDIDATES if setting.quick else CANDIDATES


def column_configs(setting: Setting, column: OptimizerSweep, seed: int) -> list[RunConfig]:
    """Return an optimizer at each of its learning rates."""
    return [
        trajectory(setting, column.word.format(rate), seed, steps=column.steps, batch=column.batch)
        for rate in column.rates
    ]


def table_1(setting: Setting) -> list[RunConfig]:
    """Return every run of Table 1, for every seed."""
    return [
        config
        for seed in setting.seeds_or(0)
        for name in optimizers(setting)
        for config in rate_configs(setting, name, seed)
    ]


# -- BulkSGD --------------------------------------------------------------------------------


def bulk_sgd(setting: Setting) -> BulkRuns:
    """Return BulkSGD with 1, 3 or 5 eigenvectors of the Hessian removed (Figure 2)."""
    if setting.quick:
        rates: tuple[str, ...] = ("0.5",)
        removed: tuple[int, ...] = (1, 3)
        size = {"steps": 60, "batch": 32}
    else:
        rates = ("2/70", "2/30")
        removed = (1, 3, 5)
        size = {"steps": 3000, "batch": 128}

    return {
        (rate, k): trajectory(setting, f"bulksgd:lr={rate},k={k}", **size)
        for rate in rates
        for k in removed
    }


def by_directions(bulk: BulkRuns) -> dict[int, list[RunConfig]]:
    """Return BulkSGD runs by number of removed directions."""
    groups: dict[int, list[RunConfig]] = {}
    for (_, k), config in bulk.items():
        groups.setdefault(k, []).append(config)
    return groups


def long_bulk_sgd(setting: Setting) -> BulkRuns:
    """Return longer BulkSGD runs, which renew the eigenvectors every ten steps."""
    if setting.quick:
        rate = "0.5"
        removed: tuple[int, ...] = (1,)
        size = {"steps": 96, "batch": 32}
    else:
        rate = "2/30"
        removed = (1, 3, 5)
        size = {"steps": 20_000, "batch": 128, "every": 100}

    return {
        (rate, k): trajectory(setting, f"bulksgd:lr={rate},k={k},refresh=10", **size)
        for k in removed
    }


def bulk_every_step(setting: Setting) -> BulkRuns:
    """Return BulkSGD as in the paper: directions renewed at every step, for many steps.

    `--steps` sets the length. Two block iterations per step follow the directions (`rounds`).
    """
    if setting.quick:
        rates: tuple[str, ...] = ("0.5",)
        removed: tuple[int, ...] = (1,)
        size = {"steps": setting.steps or 96, "batch": 32}
    else:
        rates = ("2/70", "2/30")
        removed = (1, 3, 5)
        steps = setting.steps or BULK_STEPS
        size = {"steps": steps, "batch": 128, "every": max(20, steps // 200)}

    return {
        (rate, k): trajectory(setting, f"bulksgd:lr={rate},k={k},rounds=2", **size)
        for rate in rates
        for k in removed
    }


# -- squared error, theorems, batch sharpness -----------------------------------------------


def squared_error(setting: Setting) -> dict[str, list[RunConfig]]:
    """Return GD and SGD under squared error, by optimizer (Figures A16, A17)."""
    options: dict[str, object] = {"loss": "mse", "steps": 20_000, "every": 50}
    if setting.quick:  # right labels: the limit is reached when every example is learned
        clean = "digits:train=200,val=200,test=100"
        options |= {"steps": 300, "every": 20, "data": clean, "model": "mlp:width=16"}

    configs = {}
    for name in ("GD", "SGD"):
        column = optimizers(setting)[name]
        configs[name] = [
            trajectory(setting, column.word.format(rate), batch=column.batch, **options)
            for rate in squared_error_rates(setting)
        ]
    return configs


def squared_error_rates(setting: Setting) -> tuple[str, ...]:
    return ("1", "0.5") if setting.quick else DESCENT


def certified_run(setting: Setting) -> RunConfig:
    """Return one GD run that checks every theorem at every measurement."""
    column = optimizers(setting)["GD"]
    return trajectory(
        setting,
        column.word.format(column.rates[0]),
        steps=column.steps,
        every=12 if setting.quick else 200,
        measure=("gn_sharpness", "certificate"),
        eps=0.002,
    )


def batch_sharpness(setting: Setting) -> list[RunConfig]:
    """Return the SGD runs that sample batch sharpness in every row."""
    column = optimizers(setting)["SGD"]
    options: dict[str, object] = {
        "measure": ("gn_sharpness", "batch_sharpness"),
        "steps": column.steps,
        "batch": column.batch,
    }
    rates = column.rates

    if setting.quick:  # one run on the full batch: nothing to sample
        options |= {"data": "digits:train=120,val=100,test=100", "batch": 120}
        rates = rates[:1]

    return [trajectory(setting, column.word.format(rate), **options) for rate in rates]
