"""Losses of (logits, labels): `nn.Module`s with a `reduction` that can be added and scaled."""

from torch import nn

from toosure.losses.batchwise import DCALoss, MDCALoss
from toosure.losses.brier import BrierLoss
from toosure.losses.cross_entropy import CrossEntropyLoss
from toosure.losses.csam import CSAMLoss, csam_weight
from toosure.losses.focal import DualFocalLoss, FLSD53Loss, FocalLoss, InverseFocalLoss
from toosure.losses.kernel import MMCELoss, SKCELoss
from toosure.losses.loss import Loss, Penalty
from toosure.losses.mse import MSELoss
from toosure.losses.pairwise import CPCLoss
from toosure.losses.smoothing import ACLSLoss, EntropyLoss, LabelSmoothingLoss, MbLSLoss
from toosure.losses.soft import DECELoss, SECELoss, SoftBinnedECELoss

# To add a loss: write its file, import it above, and list it here by its name on the command line.
LOSSES: dict[str, type[nn.Module]] = {
    "ce": nn.CrossEntropyLoss,
    "mse": MSELoss,
    "brier": BrierLoss,
    "focal": FocalLoss,
    "flsd53": FLSD53Loss,
    "dual_focal": DualFocalLoss,
    "inverse_focal": InverseFocalLoss,
    "label_smoothing": LabelSmoothingLoss,
    "entropy": EntropyLoss,
    "mbls": MbLSLoss,
    "acls": ACLSLoss,
    "mdca": MDCALoss,
    "dca": DCALoss,
    "cpc": CPCLoss,
    "mmce": MMCELoss,
    "skce": SKCELoss,
    "dece": DECELoss,
    "sece": SECELoss,
    "soft_binned_ece": SoftBinnedECELoss,
}

__all__ = [
    "LOSSES",
    "ACLSLoss",
    "BrierLoss",
    "CPCLoss",
    "CSAMLoss",
    "CrossEntropyLoss",
    "DCALoss",
    "DECELoss",
    "DualFocalLoss",
    "EntropyLoss",
    "FLSD53Loss",
    "FocalLoss",
    "InverseFocalLoss",
    "LabelSmoothingLoss",
    "Loss",
    "MDCALoss",
    "MMCELoss",
    "MSELoss",
    "MbLSLoss",
    "Penalty",
    "SECELoss",
    "SKCELoss",
    "SoftBinnedECELoss",
    "csam_weight",
]
