"""The runs that the processes of a group train, to be compared with one process alone.

Every word in the tables of optimizers, losses and objectives is a case of the exact scheme: a new
method is tested once it is listed. `FEW` of them are tested every day.
"""

from functools import cache
from pathlib import Path

from torch import nn

from toosure import objectives
from toosure.config import RunConfig
from toosure.train import train
from toosure.words import parse
from toosure.words.tables import TABLES

SMALL = {"data": "digits:train=51,val=23,noise=0.1", "batch": 17, "steps": 4, "every": 4}
SMALL |= {"model": "own_model:noisy", "precision": "float64", "measure": ()}
OPTIMIZERS = {
    "gd": "gd:lr=0.5",
    "muon": "muon:fp32=true",  # in bfloat16 a last bit decides how a number is rounded
    "bulksgd": "bulksgd:lr=0.1,k=2",
    "sgd": "sgd:lr=0.1,momentum=0.9",
    "vasso": "vasso:lr=0.1",
    "asam": "asam:lr=0.1",
    "sam": "sam:lr=0.1,base=adamw",
    "csam": "csam:lr=0.1",
    "bsam": "bsam:lr=0.2,sub_batches=3",
}
OBJECTIVES = {"ccat": "ccat:attack_steps=3", "gamma_net": "gamma_net:width=8,meta_batch=9"}
OBJECTIVES |= {"meta_smoothing": "meta_smoothing:meta_batch=9", "ar_adals": "ar_adals:rate=0.5"}
MEASURES = ("gn_sharpness", "hessian_sharpness", "kappa_min", "batch_sharpness", "gni")
MEASURES += ("jacobian_norm", "trace", "temperature", "certificate")
SOME = ("gn_sharpness", "batch_sharpness", "trace", "temperature")
FURTHER = {
    "every measure": {"model": "mlp:width=8", "measure": MEASURES, "steps": 2, "every": 2},
    "some measures": {"model": "mlp:width=8", "measure": SOME, "steps": 2, "every": 2},
    "best": {"measure": ("best",)},
    "mlp": {"model": "mlp:width=8", "measure": ("gn_sharpness",), "steps": 8, "every": 1},
    "resnet20": {"model": "resnet20", "batch": 9, "steps": 2, "every": 1},
    "calmo, resnet20": {"model": "resnet20", "objective": "calmo", "batch": 5, "steps": 2},
    "one row per part": {"model": "mlp:width=8", "optimizer": "bsam:lr=0.2", "batch": 5},
    "clip, schedule": {"optimizer": "sam:lr=1", "clip": 0.1, "schedule": "cosine:warmup=2"},
    "gamma-net, full": {"objective": "gamma_net:scope=full,width=8,meta_batch=9,every=2"},
    "gamma-net, noise": {"objective": "gamma_net:feed=noise,width=8,meta_batch=12,fresh=5"},
    "smoothing, full": {"objective": "meta_smoothing:scope=full,per_class=true,meta_batch=9"},
    "tail, pgd": {"objective": "margin_tail:surrogate=pgd"},
    "calmo, smooth net": {"objective": "calmo", "model": "mlp:width=8"},
    "tail, sam": {"objective": "margin_tail", "optimizer": "sam:lr=0.1"},
    "crl, sam": {"objective": "crl", "optimizer": "sam:lr=0.1", "loss": "mmce"},
    "balcal, csam": {"objective": "balcal", "optimizer": "csam:lr=0.1"},
    "mixup, mdca": {"objective": "mixup", "loss": "mdca", "optimizer": "vasso:lr=0.1"},
}


FEW = ("optimizer sgd", "optimizer csam", "optimizer bulksgd", "loss mmce", "objective balcal")
FEW += ("objective gamma_net", "objective ccat", "some measures", "best", "resnet20", "crl, sam")


def few_cases():
    """Return those cases that are tested every day, by their names."""
    return {name: config for name, config in cases().items() if name in FEW}


def cases():
    """Return the settings of every case by its name."""
    settings_of = {}
    for name in TABLES["optimizer"]:
        model = {"model": "mlp:width=8"} if name == "bulksgd" else {}
        settings_of[f"optimizer {name}"] = {"optimizer": OPTIMIZERS.get(name, name), **model}
    settings_of |= {f"loss {name}": {"loss": name} for name in TABLES["loss"]}
    for name in objectives.OBJECTIVES:  # ensembles train in one process
        settings_of[f"objective {name}"] = {"objective": OBJECTIVES.get(name, name)}
    settings_of |= FURTHER
    return {name: RunConfig(**{**SMALL, **settings}) for name, settings in settings_of.items()}


@cache
def loaded(word: str):
    return parse("data", word).build(workers=0)  # decode here


def data_of(config: RunConfig):
    """Load the data of a run, once for all runs with the same data."""
    return loaded(config.data)


DIVERGES = RunConfig(**{**SMALL, "loss": "mse", "optimizer": "sgd:lr=1e30", "steps": 90})
BUDGET = RunConfig(**{**SMALL, "every": 20, "budget": 0.5, "steps": 20})
LONG = {**SMALL, "steps": 20, "every": 2}
HALF = RunConfig(**{**LONG, "optimizer": "sam:lr=0.1,momentum=0.9"})
LOST = {**LONG, "model": "mlp:width=8", "batch": 16, "optimizer": "csam:lr=0.1,momentum=0.9"}
LOST = RunConfig(**LOST)  # by DDP, which averages over equal shares
STOPPED = RunConfig(**{**LONG, "optimizer": "vasso:lr=0.1"})
WRONG = RunConfig(**{**SMALL, "data": "digits:train=51,val=0", "objective": "adafocal"})
BETWEEN = [RunConfig(**{**SMALL, "model": "mlp:width=8", "seed": seed}) for seed in (7, 8)]
BF16 = RunConfig(**{**SMALL, "precision": "bf16"})


def images(folder: Path) -> RunConfig:
    """Return the run on images of a folder, which are streamed from disk."""
    data = f"imagefolder:path={folder},size=8,val=6,watched=20,stream=true"
    return RunConfig(**{**SMALL, "data": data, "batch": 7, "model": "mlp:width=8"})


def in_shards(folder: Path) -> RunConfig:
    """Return the run on images of tar shards, which are read in shares by DDP."""
    data = f"shards:path={folder},size=8,val=6,watched=20,stream=true"
    return RunConfig(**{**SMALL, "data": data, "batch": 8, "model": "mlp:width=8"})


def call_after(losses, action):
    """Call `action` when cross-entropy has been computed so many times more."""
    plain, left = Plain.forward, [losses]

    def forward(self, logits, labels):
        left[0] -= 1
        if left[0] == 0:
            action()
        return plain(self, logits, labels)

    nn.CrossEntropyLoss.forward = forward


class Plain:
    """Cross-entropy as torch has it."""

    forward = nn.CrossEntropyLoss.forward


def refused(config, out, runtime):
    try:
        train(config, out, runtime)
    except ValueError as error:
        return str(error)
    return ""
