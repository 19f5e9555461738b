"""Decide how curvature is measured under FSDP2: on gathered weights, or by forward passes alone."""

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
    """Gather the weights of a sharded network if a measure needs all of them and they fit.

    Up to `limit` parameters, `gathered` is a plain copy of the network. Beyond, `measure` holds
    critical sharpness in place of the measures that need whole weights, and a warning is given.
    `marks` join every row: {"gathered": True} or {"gathered": False}, nothing if no weights are
    sharded or needed.
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
                f"{', '.join(wanted)} needs all weights in each process, and this model, sharded "
                f"by FSDP2, has {count:,} parameters, more than {limit:,}: {FALLBACK} is measured "
                "instead. If they fit into each process, give Watch gather=N",
                stacklevel=4,
            )
