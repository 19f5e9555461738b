"""The network inside what compiles it or spreads it over devices."""

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from toosure.processes.sharded import Sharded


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the network itself, without torch.compile and what spreads it over devices.

    >>> network = nn.Linear(2, 3)
    >>> unwrapped(nn.DataParallel(network)) is network
    True
    """
    if isinstance(model, DistributedDataParallel | nn.DataParallel | Sharded):
        return unwrapped(model.module)
    compiled = getattr(model, "_orig_mod", None)
    return unwrapped(compiled) if isinstance(compiled, nn.Module) else model
