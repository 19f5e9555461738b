"""The runs of the ensembles recipe: one protocol, each method with its authors' settings."""

from typing import Any

from toosure.config import RunConfig
from toosure.recipes.recipe import Setting

SGD = "sgd:lr=0.1,momentum=0.9,weight_decay=0.0005"
SAM = "sam:lr=0.1,momentum=0.9,rho=0.1,weight_decay=0.0005"
AVERAGE = "ema:decay=0.999+swag:rank=20,samples=30"
MEMBERS = 5  # of a deep ensemble, which is made of single runs

# Words of the runs that train several members at once. Weight decay stays that of the protocol.
METHODS: dict[str, dict[str, str]] = {
    "MC-Dropout (5)": {"objective": "mc_dropout:samples=5,rate=0.1"},
    "BatchEnsemble (4)": {"objective": "batch_ensemble:members=4"},
    "MIMO (3)": {"objective": "mimo:members=3"},
    "Rank-1 (4)": {"objective": "rank1:members=4"},
    "VI (5)": {"objective": "vi:samples=5"},
}


def config(setting: Setting, seed: int, **words: str) -> RunConfig:
    """Return a run of the common protocol: ResNet-18, 30 epochs of batch 256, cosine."""
    size: dict[str, Any] = {
        "data": f"{setting.data}:augment=true,seed={seed}",
        "model": "resnet18",
        "steps": 5273,
        "batch": 256,
        "precision": "bf16",
        "schedule": "cosine:warmup=200",
        "at": (0, 5273),
    }
    if setting.quick:
        size = {
            "data": "digits:train=128,val=50,test=200",
            "model": "wrn:depth=10,width=1",
            "steps": 8,
            "batch": 32,
            "at": (0, 8),
        }
    return RunConfig.of({**size, "optimizer": SGD, "measure": (), **words, "seed": seed})


def seeds(setting: Setting) -> tuple[int, ...]:
    """Return the seeds of the methods that train their members at once."""
    return setting.seeds_or(0) if setting.quick else setting.seeds_or(0, 1)


def single_seeds(setting: Setting) -> tuple[int, ...]:
    """Return the seeds of single runs: those of as many deep ensembles as there are seeds."""
    members = 2 if setting.quick else MEMBERS
    return tuple(range(members * len(seeds(setting))))


def sam_seeds(setting: Setting) -> tuple[int, ...]:
    """Return the seeds of SAM's single runs: one deep ensemble, as SAM takes twice the time."""
    return single_seeds(setting)[: 2 if setting.quick else MEMBERS]


def plain(setting: Setting) -> list[RunConfig]:
    """Return the single runs of SGD, with the averages of their weights."""
    average = "ema:decay=0.9+swag:rank=2,samples=2,start=0.2" if setting.quick else AVERAGE
    return [config(setting, seed, average=average) for seed in single_seeds(setting)]


def sam(setting: Setting) -> list[RunConfig]:
    """Return the single runs of SAM, with the EMA of their weights."""
    return [
        config(setting, seed, optimizer=SAM, average="ema:decay=0.999")
        for seed in sam_seeds(setting)
    ]


def method(setting: Setting, name: str) -> list[RunConfig]:
    """Return the runs of a method that trains its members at once."""
    return [config(setting, seed, **METHODS[name]) for seed in seeds(setting)]


def all_configs(setting: Setting) -> list[RunConfig]:
    """Return every run of the recipe."""
    at_once = [each for name in METHODS for each in method(setting, name)]
    return [*plain(setting), *sam(setting), *at_once]
