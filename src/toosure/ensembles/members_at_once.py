"""All members of an ensemble in one pass, and when that is faster than one after another."""

import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from toosure.ensembles.folded import folded, member_logits

TIMED_ROWS = 128  # rows of the batch that both ways are timed on
TIMED_PASSES = 5


class MembersAtOnce:
    """Compute the members of one architecture together, in one pass.

    Networks of convolutions, linear layers and BatchNorm are folded into one of M times the
    channels (`folded`); all others run under `torch.func.vmap`.

    The parameters and buffers of all members lie in stacked tensors, (M, ...), of which those of
    each member are views. An optimizer that moves a member moves the stack; running statistics
    that move in the stack are the member's; and a hook hands each member its part of the stack's
    gradient. So everything else (norms, checkpoints, prediction) sees single networks.
    """

    def __init__(self, members: Sequence[nn.Module], example: Tensor) -> None:
        parameters, buffers = stack_module_state(list(members))
        self.parameters: dict[str, Tensor] = dict(parameters)
        self.buffers: dict[str, Tensor] = dict(buffers)
        self.skeletons = {mode: skeleton(members[0], mode) for mode in (True, False)}

        named = [dict(member.named_parameters()) for member in members]
        for name, stack in self.parameters.items():
            own = [parameters[name] for parameters in named]
            for parameter, part in zip(own, stack.detach(), strict=True):
                parameter.data = part
            stack.register_post_accumulate_grad_hook(partial(hand_out, own))

        for name, stack in self.buffers.items():
            for member, part in zip(members, stack, strict=True):
                set_buffer(member, name, part)

        self.network = folded(members, {**self.parameters, **self.buffers}, example)

    def __call__(self, inputs: Tensor, training: bool = True) -> Tensor:
        """Return the logits of the members, (M, N, C), on inputs (M, N, ...)."""
        if self.network is not None:
            return member_logits(self.network.train(training), inputs)

        network = self.skeletons[training]

        def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor) -> Tensor:
            logits: Tensor = functional_call(network, (parameters, buffers), (x,))
            return logits

        together = vmap(one, randomness="different")
        logits: Tensor = together(self.parameters, self.buffers, inputs)
        return logits


def hand_out(own: Sequence[nn.Parameter], stack: Tensor) -> None:
    """Give each member its part of the stack's gradient, added to what it has."""
    assert stack.grad is not None
    for parameter, part in zip(own, stack.grad, strict=True):
        parameter.grad = part if parameter.grad is None else parameter.grad + part
    stack.grad = None


def skeleton(member: nn.Module, training: bool) -> nn.Module:
    """Return the architecture without weights; it is called with those of the stack."""
    return deepcopy(member).to("meta").train(training)


def set_buffer(member: nn.Module, name: str, value: Tensor) -> None:
    path, _, last = name.rpartition(".")
    member.get_submodule(path)._buffers[last] = value


# -- which is faster ------------------------------------------------------------------------------


def at_once_is_faster(members: Sequence[nn.Module], example: Tensor) -> bool:
    """Whether members run faster together, forth and back, on the device they are on.

    On a CPU one after another won where we measured (255 against 303 ms a step of 4 ResNet-20).
    On a GPU small networks wait for launches, of which a stack needs fewer, and large ones fill
    the device alone; so copies are timed both ways, once, before training.
    """
    if example.device.type != "cuda":
        return False

    copies = [deepcopy(member) for member in members]
    rows = example.expand(TIMED_ROWS, *example.shape[1:])
    inputs = rows.expand(len(copies), *rows.shape)
    one_by_one = seconds_of(lambda: [m(x) for m, x in zip(copies, inputs, strict=True)])
    stacked = MembersAtOnce(copies, example)
    return seconds_of(lambda: list(stacked(inputs))) < one_by_one


def seconds_of(passes: Callable[[], list[Tensor]]) -> float:
    """Return the least time of a few passes forth and back, after one that warms up."""
    times = []
    for _ in range(TIMED_PASSES + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        torch.stack([logits.float().square().mean() for logits in passes()]).sum().backward()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times[1:])
