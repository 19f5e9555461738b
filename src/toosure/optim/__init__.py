"""Optimizers: SAM and its variants, BulkSGD and Muon; SGD and AdamW are torch's."""

from torch.optim import SGD, AdamW, Optimizer

from toosure.optim.asam import ASAM
from toosure.optim.bsam import BSAM
from toosure.optim.bulk import BulkSGD
from toosure.optim.csam import CSAM
from toosure.optim.muon import Muon
from toosure.optim.sam import SAM
from toosure.optim.traits import Traits, why_not_recorded
from toosure.optim.vasso import VASSO

# To add an optimizer: write its file, import it above, and list it here by its name on the command
# line. "gd" is SGD on the full batch.
OPTIMIZERS: dict[str, type[Optimizer]] = {
    "sgd": SGD,
    "gd": SGD,
    "adamw": AdamW,
    "muon": Muon,
    "sam": SAM,
    "csam": CSAM,
    "asam": ASAM,
    "vasso": VASSO,
    "bsam": BSAM,
    "bulksgd": BulkSGD,
}

__all__ = [
    "ASAM",
    "BSAM",
    "CSAM",
    "OPTIMIZERS",
    "SAM",
    "VASSO",
    "BulkSGD",
    "Muon",
    "Traits",
    "why_not_recorded",
]
