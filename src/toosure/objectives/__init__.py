"""Objectives: training losses that need more than logits and labels."""

from torch import nn

from toosure.objectives.adafocal import AdaFocal
from toosure.objectives.ar_adals import ARAdaLS
from toosure.objectives.balcal import BalCAL
from toosure.objectives.calmo import CalMO
from toosure.objectives.ccat import CCAT
from toosure.objectives.contract import Batch, Objective, Plain, as_objective, preparing, recording
from toosure.objectives.crl import CRL
from toosure.objectives.gamma_net import GammaNet
from toosure.objectives.margin_tail import MarginTail
from toosure.objectives.meta_smoothing import MetaSmoothing
from toosure.objectives.mixup import MIT, Mixup

# To add an objective: write its file, import it above, and list it here by its name on the command
# line. `contract.py` says what it must have.
OBJECTIVES: dict[str, type[nn.Module]] = {
    "calmo": CalMO,
    "margin_tail": MarginTail,
    "adafocal": AdaFocal,
    "crl": CRL,
    "mixup": Mixup,
    "mit": MIT,
    "ar_adals": ARAdaLS,
    "ccat": CCAT,
    "balcal": BalCAL,
    "meta_smoothing": MetaSmoothing,
    "gamma_net": GammaNet,
}

__all__ = [
    "CCAT",
    "CRL",
    "MIT",
    "OBJECTIVES",
    "ARAdaLS",
    "AdaFocal",
    "BalCAL",
    "Batch",
    "CalMO",
    "GammaNet",
    "MarginTail",
    "MetaSmoothing",
    "Mixup",
    "Objective",
    "Plain",
    "as_objective",
    "preparing",
    "recording",
]
