"""What training minimises: losses of (logits, labels)."""

from toosure.losses.csam import CSAMLoss, csam_weight

__all__ = ["CSAMLoss", "csam_weight"]
