"""Curvature of a network that FSDP2 shards: on gathered weights, or without them."""

import warnings
from collections.abc import Sequence

import torch.distributed as dist
from torch import nn

from toosure.processes.dtensor import any_sharded
from toosure.processes.gathered import GatheredModel
from toosure.quantities import in_row

MAX_GATHERED = 50_000_000  # parameters: some 6 GB in each process where two splits are followed
COSTS = ("curvature", "certificate", "sam_step")  # of quantities that need whole weights
FALLBACK = "critical_sharpness"  # the curvature that shards allow


class GatheredWeights:
    """Decide how the measures that need whole weights are taken.

    `gathered` is a plain copy of the network where there are any, its weights are sharded and no
    more than `limit`. Beyond, `measure` has critical sharpness in their place, and a warning says
    so. `marks` join every row: `gathered` is True or False for these two.
    """

    def __init__(self, model: nn.Module, measure: Sequence[str], limit: int) -> None:
        self.gathered: GatheredModel | None = None
        self.measure = tuple(measure)
        self.marks: dict[str, bool] = {}

        needing = {q.measure for q in in_row("train") if q.cost in COSTS}
        wanted = [name for name in measure if name in needing]
        if not wanted or not any_sharded(model.parameters()):
            return

        count = sum(parameter.numel() for parameter in model.parameters())
        self.marks = {"gathered": count <= limit}
        if count <= limit:
            self.gathered = GatheredModel(model)
            return

        others = [name for name in measure if name not in needing]
        self.measure = tuple(dict.fromkeys([*others, FALLBACK]))
        if dist.get_rank() == 0:
            warnings.warn(
                f"{', '.join(wanted)} needs whole weights, and the {count:,} parameters of this "
                f"model, sharded over processes (FSDP2), are more than {limit:,}: {FALLBACK} is "
                "measured instead. Where they fit into each process, give gather=N of Watch",
                stacklevel=4,
            )
