"""The training loop: one config in, one run folder out."""

from toosure.train.listener import ProgressListener
from toosure.train.loop import train
from toosure.train.runtime import Runtime

__all__ = ["ProgressListener", "Runtime", "train"]
