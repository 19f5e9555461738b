"""The parts of a run, each made from its word and what the run knows."""

from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.optim import Optimizer

from toosure.config import RunConfig
from toosure.curvature import CurvatureTracker
from toosure.curvature.products.functional_model import Mode
from toosure.data import Dataset
from toosure.objectives import as_objective
from toosure.objectives.contract import criterion_of
from toosure.optim.muon import hidden_and_rest
from toosure.processes import Processes, Sharded
from toosure.train.means import Means
from toosure.words import Word


def model_of(config: RunConfig, data: Dataset, device: torch.device) -> nn.Module:
    """Build the network by the run's seed, on the CPU so that every device starts alike."""
    torch.manual_seed(config.seed)
    model = config.word("model").build(inputs=data.inputs, classes=data.classes)
    model = (model.double() if config.precision == "float64" else model).to(device).train()
    if device.type == "cuda":
        lay_channels_last(model)
    return model


def lay_channels_last(model: nn.Module) -> None:
    """Lay the weights of 2-d convolutions out as a GPU reads them fastest; no number changes."""
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            layer.weight.data = layer.weight.data.contiguous(memory_format=torch.channels_last)


def network_of(model: nn.Module, means: Means, processes: Processes) -> nn.Module:
    """Return the model, spread over the processes where there are several."""
    if processes.count == 1:
        return model
    for name in ("compile", "graph"):
        if getattr(means, name):
            raise ValueError(f"{name} works in one process: leave it out with torchrun")
    return Sharded(model, processes)


def objective_of(config: RunConfig, criterion: nn.Module, device: torch.device) -> Any:
    """Build the objective around the criterion; alone, the criterion is one."""
    made = criterion_of(criterion)
    if config.objective:
        word, reduction = config.word("objective"), getattr(criterion, "reduction", "mean")
        check_loss(word, config.word("loss"))
        made = word.build(
            loss=criterion, reduction=reduction, seed=config.seed, training_steps=config.steps
        )
    objective = as_objective(made)
    if hasattr(objective, "to"):
        objective.to(device)
    return objective


def check_loss(objective: Word, loss: Word) -> None:
    """Raise where a loss was named and the objective has one of its own, but for the reduction."""
    asked = objective.method.parameters
    passed_on = {"reduction"} & set(asked)
    if "loss" not in asked and (loss.name != "ce" or set(loss.settings) - passed_on):
        also = ", or write ce:reduction=sum" if passed_on else ""
        raise ValueError(
            f"{objective.name} trains with a loss of its own, so {loss} would do nothing: leave "
            f"the loss out{also}"
        )


def in_memory(config: RunConfig, data: Dataset) -> Dataset:
    """Return the data; raise where an objective wants to see all of them, and they are streamed."""
    if data.stream is not None and not getattr(
        config.word("objective").method.target, "streams", 0
    ):
        raise ValueError(
            f"{config.objective} needs the training set in memory, not streamed: stream=false"
        )
    return data


def optimizer_of(
    config: RunConfig,
    model: nn.Module,
    objective: Any,
    criterion: nn.Module,
    data: Dataset,
    processes: Processes,
) -> Optimizer:
    """Build the optimizer with what its signature asks of a run."""
    word, given = config.word("optimizer"), {"model": model, "seed": config.seed}
    own = own_parameters(objective)
    if own and "tracker" in word.method.parameters:
        raise ValueError(
            f"{word.name} steps along the network's curvature and cannot move the parameters that "
            f"{config.objective} adds: choose another optimizer or objective"
        )
    if "tracker" in word.method.parameters:
        given["tracker"] = tracker_of(model, criterion, data, processes)
    parameters: list[Any] = [*model.named_parameters(), *own]  # ASAM goes by the names
    if getattr(word.settings.get("base"), "name", word.name) == "muon":
        parameters = hidden_and_rest(model, own)  # the head is the network's last matrix
    optimizer = word.build(parameters, clip_norm=config.clip, data_size=data.examples, **given)
    if hasattr(optimizer, "criterion"):  # CSAM's, which knows at which point it is called
        objective.loss = optimizer.criterion(objective.loss)
    return optimizer


def own_parameters(objective: Any) -> list[tuple[str, Any]]:
    """Name the parameters that an objective adds to the network's, as it does or by number."""
    own = list(getattr(objective, "parameters", list)())
    known = dict(getattr(objective, "named_parameters", list)())
    names = {id(p): name for name, p in known.items()}
    return [(f"objective.{names.get(id(p), i)}", p) for i, p in enumerate(own)]


def tracker_of(
    model: nn.Module, criterion: nn.Module, data: Dataset, processes: Processes
) -> CurvatureTracker:
    """Follow the Hessian of what is descended: with BatchNorm, that of train mode.

    Its statistics are then those of all the examples, so every process looks at all of them.
    Dropout alone stays in eval mode: the Hessian of one fixed mask is that of no step.
    """
    mode: Mode = "train" if any(isinstance(m, _NormBase) for m in model.modules()) else "eval"
    mine = processes.rows(len(data.train)) if mode == "eval" else slice(None)
    examples = data.train.x[mine], data.train.y[mine]
    group = processes.group if mode == "eval" else None
    return CurvatureTracker(model, examples, criterion, quantities=(), mode=mode, group=group)
