"""A plain copy of a network that FSDP2 shards, with whole weights gathered in every process."""

import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from copy import copy

import torch
from torch import nn

from toosure.processes.dtensor import is_sharded, reshard

Hooks = Mapping[int, Callable[..., object]]
FSDP_MARKS = ("__composable_api_state", "_is_fsdp", "_fsdp")  # beginnings of its attributes
FORWARD_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
STATE_HOOKS = ("_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")


class GatheredModel:
    """Keep a plain copy of a sharded network; `refresh` gathers the weights of now into it.

    The copy is made of the same classes without FSDP2's hooks, so that it can be differentiated
    twice, called with other weights and called in one process alone. Buffers and tensors that are
    not sharded are those of the network itself. All processes must call `refresh` together.
    """

    def __init__(self, model: nn.Module) -> None:
        self.sharded = model
        reshard(model)  # so that its parameters are shards
        self.copies: dict[int, nn.Module] = {}  # by the identity of the module
        self.weights: dict[int, nn.Parameter] = {}  # by the identity of the sharded parameter
        self.model = self.plain_copy(model)
        self.refresh()

    def plain_copy(self, module: nn.Module) -> nn.Module:
        """Copy a module and those inside it; what is there twice stays one."""
        if id(module) in self.copies:
            return self.copies[id(module)]

        kind = plain_class(type(module))
        plain = kind.__new__(kind)
        for name, value in vars(module).items():
            if not name.startswith(FSDP_MARKS):
                vars(plain)[name] = copied(value)
        for name in FORWARD_HOOKS:
            vars(plain)[name] = without_fsdp(vars(module)[name])
        for name in STATE_HOOKS:  # FSDP2's hooks refer to the shards, and the copy is never saved
            vars(plain)[name] = OrderedDict()

        self.copies[id(module)] = plain
        for name, inner in module._modules.items():
            plain._modules[name] = None if inner is None else self.plain_copy(inner)
        for name, parameter in module._parameters.items():
            plain._parameters[name] = None if parameter is None else self.whole(parameter)
        return plain

    def whole(self, parameter: nn.Parameter) -> nn.Parameter:
        """Return room for a whole parameter; one that is not sharded is returned itself."""
        if not is_sharded(parameter):
            return parameter
        if id(parameter) not in self.weights:
            room = torch.empty(parameter.shape, dtype=parameter.dtype, device=parameter.device)
            self.weights[id(parameter)] = nn.Parameter(room, parameter.requires_grad)
        return self.weights[id(parameter)]

    @torch.no_grad()
    def refresh(self) -> None:
        """Gather the weights of now, one parameter at a time."""
        reshard(self.sharded)
        plain = dict(self.model.named_parameters())
        for name, parameter in self.sharded.named_parameters():
            if is_sharded(parameter):
                plain[name].copy_(parameter.full_tensor())


def plain_class(kind: type[nn.Module]) -> type[nn.Module]:
    """Return the class that a module had before FSDP2 put its own in front."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is None or not issubclass(kind, fsdp.FSDPModule):
        return kind
    return next(k for k in kind.__mro__ if not issubclass(k, fsdp.FSDPModule))


def copied(value: object) -> object:
    """Copy a module's own dictionaries, lists and sets, not what is in them."""
    return copy(value) if isinstance(value, dict | list | set) else value


def without_fsdp(hooks: Hooks) -> Hooks:
    """Leave out the hooks that gather and free weights."""
    return OrderedDict(
        (number, hook)
        for number, hook in hooks.items()
        if not getattr(hook, "__module__", "").startswith("torch.distributed")
    )
