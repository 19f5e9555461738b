"""The runs of the ensembles recipe: one protocol, the settings of each method's authors."""

from dataclasses import replace

from toosure.config import RunConfig
from toosure.recipes.benchmark import methods, protocol
from toosure.recipes.recipe import Setting

AVERAGE = "ema:decay=0.999+swag:rank=20,samples=30"
MEMBERS = 5  # of a deep ensemble, which is made of single runs

# Methods that train several members at once, with the weight decay of the protocol.
METHODS = {
    "MC-Dropout (5)": "mc_dropout:samples=5,rate=0.1",
    "BatchEnsemble (4)": "batch_ensemble:members=4",
    "MIMO (3)": "mimo:members=3",
    "Rank-1 (4)": "rank1:members=4",
    "VI (5)": "vi:samples=5",
}


def config(setting: Setting, seed: int, method: str, average: str | None = None) -> RunConfig:
    """Return a run by the common protocol, which the benchmark would train too."""
    run = protocol.config(setting, method, setting.data, seed)
    return replace(run, average=average)


def seeds(setting: Setting) -> tuple[int, ...]:
    """Return the seeds of methods that train their members at once."""
    return setting.seeds_or(0) if setting.quick else setting.seeds_or(0, 1)


def single_seeds(setting: Setting) -> tuple[int, ...]:
    """Return the seeds of single runs: enough for one deep ensemble per seed."""
    return tuple(range(ensemble_size(setting) * len(seeds(setting))))


def ensemble_size(setting: Setting) -> int:
    """Return the number of single runs in a deep ensemble."""
    return 2 if setting.quick else MEMBERS


def plain(setting: Setting) -> list[RunConfig]:
    """Return the single runs of SGD; the first ones, one per seed, also average their weights.

    An average does not change the training, so all runs are equal members. Runs without an average
    are runs of the benchmark.
    """
    average = "ema:decay=0.9+swag:rank=2,samples=2,start=0.2" if setting.quick else AVERAGE
    averaged = len(seeds(setting))
    return [
        config(setting, seed, "sgd", average if place < averaged else None)
        for place, seed in enumerate(single_seeds(setting))
    ]


def sam(setting: Setting) -> list[RunConfig]:
    """Return the single runs of SAM; the first ones also keep an EMA of their weights.

    The radius is the one of least validation NLL in the benchmark, on this data set.
    """
    word = "sam:rho=0.05" if setting.quick else methods.sharpness_aware(setting.data)["SAM"]
    averaged = len(seeds(setting))
    return [
        config(setting, seed, word, "ema:decay=0.999" if place < averaged else None)
        for place, seed in enumerate(single_seeds(setting))
    ]


def method(setting: Setting, name: str) -> list[RunConfig]:
    """Return the runs of a method that trains its members at once."""
    return [config(setting, seed, METHODS[name]) for seed in seeds(setting)]


def all_configs(setting: Setting) -> list[RunConfig]:
    """Return every run of the recipe."""
    at_once = [each for name in METHODS for each in method(setting, name)]
    return [*plain(setting), *sam(setting), *at_once]
