"""The training loop: one config in, one run folder out."""

from toosure.train.loop import train
from toosure.train.means import Means

__all__ = ["Means", "train"]
