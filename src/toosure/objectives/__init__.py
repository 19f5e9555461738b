"""What training minimises when it needs more than logits: the one contract, and the plain loss."""

from toosure.objectives.contract import Batch, Objective, Plain, as_objective, preparing

__all__ = ["Batch", "Objective", "Plain", "as_objective", "preparing"]
