"""One run on several processes: their group, its collectives, and a network spread over them.

By torch's DistributedDataParallel each process has a share of a batch (`shares`); by the exact
scheme, `Sharded` and `share_gradients`, each has the whole batch and runs its rows.
"""

from toosure.processes.collectives import share_gradients
from toosure.processes.group import ALONE, Processes, join
from toosure.processes.sharded import Sharded
from toosure.processes.shares import rows_of_all

__all__ = ["ALONE", "Processes", "Sharded", "join", "rows_of_all", "share_gradients"]
