"""Several processes as one: who they are, what they tell each other, a network spread over them."""

from toosure.processes.exchange import share_gradients
from toosure.processes.group import ALONE, Processes, join
from toosure.processes.sharded import Sharded

__all__ = ["ALONE", "Processes", "Sharded", "join", "share_gradients"]
