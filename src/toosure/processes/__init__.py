"""One run on several processes: their group, its collectives, and a network spread over them."""

from toosure.processes.collectives import share_gradients
from toosure.processes.group import ALONE, Processes, join
from toosure.processes.sharded import Sharded

__all__ = ["ALONE", "Processes", "Sharded", "join", "share_gradients"]
