"""Build the parts of a run from the words of its config."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.optim import Optimizer

from toosure.config import RunConfig
from toosure.curvature import CurvatureTracker
from toosure.curvature.products.functional_model import Mode
from toosure.data import Dataset
from toosure.losses.loss import per_example_part
from toosure.objectives import Objective, as_objective
from toosure.objectives.contract import ParameterGroup, criterion_of
from toosure.optim import ASAM, BSAM, SAM
from toosure.optim.muon import hidden_and_rest
from toosure.processes import Processes
from toosure.train.loading import check_tokens
from toosure.train.loss_function import LossFunction, takes_logits
from toosure.watch.sam_numbers import RHO, SamRadius
from toosure.words import Word

NamedParameter = tuple[str, Tensor]


def build_model(config: RunConfig, data: Dataset, device: torch.device) -> nn.Module:
    """Build the network by the run's seed, on the CPU, so that it is the same on every device.

    On a GPU its convolutions get the memory layout that is fastest there.
    """
    torch.manual_seed(config.seed)
    word = config.word("model")
    model = word.build(inputs=data.inputs, classes=data.classes)
    if not isinstance(model, nn.Module):
        raise ValueError(
            f"model {word} makes a {type(model).__name__}, not a network: name a class or "
            "function that makes a torch.nn.Module"
        )

    if config.precision == "float64":
        model = model.double()
    model = model.to(device)
    if device.type == "cuda":
        lay_channels_last(model)
    check_tokens(model, data, word.name)
    return model


def network_maker(
    config: RunConfig, data: Dataset, device: torch.device
) -> Callable[[int], nn.Module]:
    """Return a function from a seed to the network that a run of that seed starts from."""

    def make(seed: int) -> nn.Module:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            return build_model(replace(config, seed=seed), data, device)

    return make


def lay_channels_last(model: nn.Module) -> None:
    """Store the weights of 2-d convolutions channels last, which a GPU reads fastest."""
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            layer.weight.data = layer.weight.data.contiguous(memory_format=torch.channels_last)


def build_criterion(config: RunConfig, device: torch.device) -> nn.Module:
    """Build the loss; a word may also name a plain function of (logits, labels)."""
    word = config.word("loss")
    settings = dict(word.settings)
    if takes_logits(word.method.target, settings):
        return LossFunction(partial(word.method.target, **settings))

    criterion = word.build()
    if not callable(criterion):
        raise ValueError(
            f"loss {word} makes a {type(criterion).__name__}, which cannot be called with (logits, "
            "labels): name a function of these two, or a class or function that makes one"
        )
    module = criterion if isinstance(criterion, nn.Module) else LossFunction(criterion)
    return module.to(device)


def curvature_settings(config: RunConfig, device: torch.device) -> dict[str, Any]:
    """Return whose curvature the watch measures: on how many examples, and of which loss."""
    settings: dict[str, Any] = {"curvature_examples": config.curvature_examples}
    if config.curvature_loss is not None:
        other = replace(config, loss=config.curvature_loss)
        settings["curvature_loss"] = build_criterion(other, device)
    return settings


def build_objective(
    config: RunConfig, criterion: nn.Module, device: torch.device
) -> Objective[Any]:
    """Build the objective around the criterion; without one, the criterion is the objective."""
    method: object = criterion_of(criterion)
    if config.objective:
        word = config.word("objective")
        check_loss(word, config.word("loss"))
        method = word.build(
            loss=criterion,
            reduction=getattr(criterion, "reduction", "mean"),
            seed=config.seed,
            training_steps=config.steps,
        )

    objective: Objective[Any] = as_objective(method)
    if hasattr(objective, "to"):
        objective.to(device)
    return objective


def check_loss(objective: Word, loss: Word) -> None:
    """Raise if a loss was named, but the objective has its own; a reduction may be named."""
    parameters = objective.method.parameters
    passed_on = {"reduction"} & set(parameters)
    if "loss" not in parameters and (loss.name != "ce" or set(loss.settings) - passed_on):
        also = ", or write ce:reduction=sum" if passed_on else ""
        raise ValueError(
            f"{objective.name} trains with a loss of its own, so {loss} would do nothing: leave "
            f"the loss out{also}"
        )


def set_up_objective(
    objective: Objective[Any], config: RunConfig, model: nn.Module, data: Dataset
) -> Dataset:
    """Call the objective's `setup` with model and data; return the data to train on.

    An objective may cut a split of its own off the data.
    """
    if hasattr(objective, "setup"):
        check_in_memory(config, data)
        # Members of an ensemble start from the weights of single runs.
        if hasattr(objective, "make_network"):
            objective.make_network = network_maker(config, data, next(model.parameters()).device)
        data = objective.setup(model, data) or data
    if config.precision == "float64" and hasattr(objective, "double"):
        objective.double()
    return data


def check_in_memory(config: RunConfig, data: Dataset) -> None:
    """Raise if the objective reads all training examples, but they are streamed."""
    reads_none = getattr(config.word("objective").method.target, "streams", False)
    if data.stream is not None and not reads_none:
        raise ValueError(
            f"{config.objective} needs the training set in memory, not streamed: stream=false"
        )


def load_weights(model: nn.Module, objective: Objective[Any], state: dict[str, Any]) -> None:
    """Load the network and the objective's state from a checkpoint."""
    model.load_state_dict(state["model"])
    if state["objective"]:
        assert hasattr(objective, "load_state_dict")  # it has a state_dict
        objective.load_state_dict(state["objective"])


def build_optimizer(
    config: RunConfig,
    model: nn.Module,
    objective: Objective[Any],
    criterion: nn.Module,
    data: Dataset,
    processes: Processes,
) -> Optimizer:
    """Build the optimizer with the arguments that its class asks for (`toosure.optim.Traits`)."""
    word = config.word("optimizer")
    entries = list(getattr(objective, "parameters", list)())
    has_groups = any(isinstance(entry, dict) for entry in entries)
    own = [] if has_groups else objective_parameters(objective)
    arguments: dict[str, Any] = {
        "model": model,
        "seed": config.seed,
        "clip_norm": config.clip,
        "data_size": data.examples,
    }

    # The signature tells what a user's class needs that declares nothing.
    signature = word.method.parameters
    if getattr(word.method.target, "needs_tracker", "tracker" in signature):
        if own or getattr(objective, "mixture", False):
            raise ValueError(
                f"{word.name} steps along the network's curvature and cannot move the parameters "
                f"that {config.objective} adds: choose another optimizer or objective"
            )
        arguments["tracker"] = build_tracker(model, criterion, data, processes)

    parameters: list[Any] = [*model.named_parameters(), *own]  # ASAM goes by the names
    if has_groups:
        parameters = parameter_groups(model, entries, splits_matrices(word))
    elif splits_matrices(word):
        parameters = hidden_and_rest(model, own)  # the head is the network's last matrix

    optimizer: Optimizer = word.build(parameters, **arguments)
    for group in optimizer.param_groups:
        if "lr_factor" in group:
            group["lr"] *= group["lr_factor"]
    check_members(optimizer, config)
    wraps_criterion = getattr(optimizer, "wraps_criterion", True)
    if wraps_criterion and hasattr(optimizer, "criterion"):
        # CSAM's criterion differs between the original and the perturbed point.
        objective.loss = optimizer.criterion(objective.loss)
    return optimizer


def splits_matrices(optimizer: Word) -> bool:
    """Whether an optimizer, or the base that it wraps, needs matrices in groups of their own."""
    base = optimizer.settings.get("base")
    method = base.method if isinstance(base, Word) else optimizer.method
    return bool(getattr(method.target, "splits_matrices", False))


def objective_parameters(objective: object) -> list[NamedParameter]:
    """Return the parameters that an objective adds, with their own names or numbers."""
    parameters = list(getattr(objective, "parameters", list)())
    named = dict(getattr(objective, "named_parameters", list)())
    names = {id(p): name for name, p in named.items()}
    return [(f"objective.{names.get(id(p), i)}", p) for i, p in enumerate(parameters)]


def parameter_groups(
    model: nn.Module, groups: Sequence[ParameterGroup], matrices_apart: bool
) -> list[dict[str, Any]]:
    """Return a group of the network's other parameters, then the objective's own groups.

    With `matrices_apart`, hidden matrices of the network and of each member of an ensemble get
    their own groups; other groups hold vectors.
    """
    names = {p: name for name, p in model.named_parameters()}
    grouped = {p for group in groups for p in group["params"]}
    rest: dict[str, Any] = {"params": [p for p in names if p not in grouped]}
    given: list[dict[str, Any]] = [{**group} for group in groups]

    named_groups: list[dict[str, Any]] = []
    for group in [rest, *given] if rest["params"] else given:
        named = [(names.get(p, f"objective.{i}"), p) for i, p in enumerate(group["params"])]
        if not matrices_apart:
            named_groups.append({**group, "params": named})
        elif group is rest or "member" in group:
            named_groups += [{**group, **part} for part in hidden_and_rest(named)]
        else:
            named_groups.append({**group, "params": named, "muon": False})
    return named_groups


def check_members(optimizer: Optimizer, config: RunConfig) -> None:
    """Raise if an optimizer that splits batches would train several networks at once."""
    several = any("member" in group for group in optimizer.param_groups)
    if several and isinstance(optimizer, BSAM):
        raise ValueError(
            f"bsam cuts batches into parts, and {config.objective} gives each member its own: "
            "train the members as single runs and join them with toosure ensemble"
        )


def sam_radius(optimizer: Optimizer) -> SamRadius:
    """Return the radius of an optimizer that climbs along the gradient, as it is at each call.

    For all other optimizers it is SAM's usual radius; also for ASAM, whose rho is relative to the
    weights, and BSAM.
    """
    if not isinstance(optimizer, SAM) or isinstance(optimizer, ASAM | BSAM):
        return RHO
    return lambda: optimizer.param_groups[0]["rho"]


def build_tracker(
    model: nn.Module, criterion: nn.Module, data: Dataset, processes: Processes
) -> CurvatureTracker:
    """Track the Hessian of the training loss; with BatchNorm, of the network in train mode.

    Statistics of a batch have no part in it, as in what a watch measures.

    In train mode the statistics are of all examples, so every process needs all of them. A network
    with dropout but no BatchNorm stays in eval mode, because every step has another mask.
    """
    mode: Mode = "eval"
    rows = processes.rows(len(data.train))
    group = processes.group
    if any(isinstance(module, _NormBase) for module in model.modules()):
        mode = "train"
        rows = slice(None)
        group = None

    examples = data.train.x[rows], data.train.y[rows]
    loss = per_example_part(criterion)
    return CurvatureTracker(model, examples, loss, quantities=(), mode=mode, group=group)
