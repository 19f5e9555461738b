"""How the processes of a run share a step: DistributedDataParallel, or the exact scheme."""

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from toosure.losses.csam import CSAMLoss
from toosure.losses.loss import Loss
from toosure.objectives import Objective
from toosure.optim.csam import CSAMCriterion
from toosure.processes import ALONE, Processes, Sharded, rows_of_all, share_gradients
from toosure.processes.shares import LossOfShare, sharing_batches, sharing_processes
from toosure.processes.sync_batch_norm import norm_statistics, sync_batch_norm
from toosure.train.runtime import Runtime

TORCH_PER_EXAMPLE = (nn.CrossEntropyLoss, nn.BCEWithLogitsLoss, nn.NLLLoss, nn.MSELoss)
WRAPPERS = (CSAMLoss, CSAMCriterion, nn.ModuleList)  # if what they wrap is per example


class Engine:
    """Take the steps of a run in one process; the other engines override parts of this."""

    name = "one process"
    warm_up = 0  # the least number of eager steps before a CUDA graph is recorded

    def __init__(self, model: nn.Module, processes: Processes = ALONE) -> None:
        self.model = model
        self.processes = processes
        self.sharing = ALONE  # the processes that each draw a share of the batch
        self.network = model  # what an objective calls in a step
        self.evaluated = model  # what predicts whole splits, all processes together

    def bind(self, objective: Objective[Any], optimizer: Optimizer) -> None:
        """Store objective and optimizer, once they are built."""
        self.objective = objective
        self.optimizer = optimizer

    def compile(self) -> None:
        """Run the network through torch.compile."""
        self.network = cast(nn.Module, torch.compile(self.model))

    def loss(self, prepared: object) -> Tensor:
        """Return the loss of a prepared batch, or of this process's share of it."""
        loss: Tensor = self.objective(self.network, prepared)
        return loss

    def share_gradients(self) -> None:
        """Give every process the gradient of the whole batch, if it lacks it."""

    def share_statistics(self) -> None:
        """Give every process the running statistics that the first one will save."""

    def losses_of_all(self, losses: Tensor) -> Tensor:
        """Return the losses of steps; one is finite only if it is finite in all processes."""
        return self.sharing.total(losses) if self.sharing.count > 1 else losses

    def notes(self) -> dict[str, Any]:
        """Return what environment.json notes about the processes, if there are several."""
        several = self.processes.count > 1
        return {"processes": self.processes.count, "engine": self.name} if several else {}


class ExactEngine(Engine):
    """Draw the whole batch in every process, and run a share of its rows.

    The losses see the outputs of all rows, so the numbers equal those of one process, and every
    method works. Gradients are added up after the backward pass, not during it.
    """

    name = "exact"

    def __init__(self, model: nn.Module, processes: Processes) -> None:
        super().__init__(model, processes)
        self.network = self.evaluated = Sharded(model, processes)

    def compile(self) -> None:
        raise ValueError("compile works with DDP or in one process: leave out compile or exact")

    def share_gradients(self) -> None:
        """Add up the network's gradients; an objective's own parameters saw the whole batch."""
        network = {id(p) for p in self.model.parameters()}
        parameters = parameters_of(self.optimizer)
        sharded = [p for p in parameters if id(p) in network]
        whole = [p for p in parameters if id(p) not in network]
        share_gradients(sharded, whole, self.processes)


class DDPEngine(Engine):
    """Draw a share of the batch in every process; DistributedDataParallel averages gradients.

    Gradients are exchanged during the backward pass. BatchNorm sees the share of its process, as in
    any DDP training, or the whole batch with `sync_batchnorm`.
    """

    name = "ddp"
    warm_up = 11  # torch requires this many before DDP is recorded

    def __init__(self, model: nn.Module, processes: Processes, sync_batchnorm: bool) -> None:
        super().__init__(model, processes)
        self.sharing = processes
        self.evaluated = Sharded(model, processes)
        self.sync_batchnorm = sync_batchnorm
        if sync_batchnorm:
            sync_batch_norm(model, processes)

    def bind(self, objective: Objective[Any], optimizer: Optimizer) -> None:
        super().bind(objective, optimizer)
        for method in (optimizer, objective):
            reason = getattr(method, "ddp", True)  # a string says why not, and what to do
            if reason is not True:
                raise ValueError(f"{type(method).__name__} {reason}")

        if not is_mean_over_examples(objective.loss):
            compute_on_whole_batch(objective.loss)
        sums = getattr(objective.loss, "reduction", "mean") == "sum"
        self.ddp = self.wrapped(factor=self.processes.count if sums else 1.0)

    def wrapped(self, factor: float) -> DistributedDataParallel:
        """Wrap the loss; since DDP averages over processes, a summed loss gets a factor."""
        network = {id(p) for p in self.model.parameters()}
        own = [p for p in parameters_of(self.optimizer) if id(p) not in network]
        module = LossOfShare(self.network, self.objective, own, factor)
        if next(self.model.parameters()).device.type != "cuda":
            return DistributedDataParallel(module, process_group=self.processes.group)

        # A CUDA graph can only record what was made on a side stream.
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            ddp = DistributedDataParallel(module, process_group=self.processes.group)
        torch.cuda.current_stream().wait_stream(side)
        return ddp

    def loss(self, prepared: object) -> Tensor:
        with sharing_batches(self.processes):
            loss: Tensor = self.ddp(prepared)
        return loss

    def notes(self) -> dict[str, Any]:
        return super().notes() | {"sync_batchnorm": self.sync_batchnorm}

    def share_statistics(self) -> None:
        statistics = list(self.model.buffers())
        if isinstance(self.objective, nn.Module):
            statistics += norm_statistics(self.objective)
        self.processes.copy_from_first(statistics)


def build_engine(model: nn.Module, runtime: Runtime, processes: Processes) -> Engine:
    """Return the engine that the runtime asks for, compiled if it says so."""
    engine = chosen_engine(model, runtime, processes)
    if runtime.compile:
        engine.compile()
    return engine


def chosen_engine(model: nn.Module, runtime: Runtime, processes: Processes) -> Engine:
    """Return the engine of the runtime; a single process takes the plain one."""
    if processes.count == 1:
        return Engine(model)
    if runtime.exact:
        for name in ("graph", "sync_batchnorm"):
            if getattr(runtime, name):
                raise ValueError(f"{name} does not work with exact=True: leave one out")
        return ExactEngine(model, processes)

    if runtime.graph and dist.get_backend(processes.group) != "nccl":
        raise ValueError(
            "a CUDA graph can only record the exchange of gradients by NCCL, which needs one GPU "
            "per process: leave graph out"
        )
    return DDPEngine(model, processes, runtime.sync_batchnorm)


def is_mean_over_examples(loss: nn.Module) -> bool:
    """Whether a loss is known to be the mean (or sum) of the losses of the shares of a batch.

    False for statistics of a batch (MMCE, SECE, ...), for class weights, by which a mean is
    divided, and for unknown losses.
    """
    for part in loss.modules():
        known = isinstance(part, (Loss, *WRAPPERS)) or type(part) in TORCH_PER_EXAMPLE
        if not known or not getattr(part, "per_example", True):
            return False
        if isinstance(getattr(part, "weight", None), Tensor):
            return False
    return True


def compute_on_whole_batch(loss: nn.Module) -> None:
    """Gather the rows of all processes for a loss in a step of DDP; elsewhere change nothing."""

    def gather(module: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(rows_of_all(argument) for argument in arguments)

    def divide(module: nn.Module, arguments: object, value: Tensor) -> Tensor:
        return value / sharing_processes()  # every process has the whole sum

    loss.register_forward_pre_hook(gather)
    if getattr(loss, "reduction", "mean") == "sum":
        loss.register_forward_hook(divide)


def parameters_of(optimizer: Optimizer) -> list[Any]:
    """Return all parameters that an optimizer moves."""
    return [p for group in optimizer.param_groups for p in group["params"]]
