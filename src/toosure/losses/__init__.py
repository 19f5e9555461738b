"""What training minimises: losses of (logits, labels)."""

from toosure.losses.csam import CSAMLoss, csam_weight
from toosure.losses.mse import MSELoss

__all__ = ["CSAMLoss", "MSELoss", "csam_weight"]
