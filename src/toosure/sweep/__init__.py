"""Many runs: one after another, side by side on this machine, or on a Ray cluster."""

from toosure.config import sweep_of
from toosure.sweep.cluster import Cluster
from toosure.sweep.jobs import Sweep
from toosure.sweep.sweep import sweep

__all__ = ["Cluster", "Sweep", "sweep", "sweep_of"]
