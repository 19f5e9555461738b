"""All members of an ensemble in one pass, and which way of running them is the fastest."""

import time
import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from toosure.curvature.products.cuda_graphs import no_garbage_collection
from toosure.ensembles.folded import folded, is_narrow, member_logits

NARROW = (0, 16, 32)  # channels of a member up to which convolutions are dense, as timed
TIMED_ROWS = 128  # rows of the batch that each way is timed on
TIMED_PASSES = 5
WARM_UP = 3  # passes before a graph is recorded


class MembersAtOnce:
    """Compute the members of one architecture together, in one pass.

    Networks of convolutions, linear layers and BatchNorm are folded into one of M times the
    channels (`folded`, which has `narrow`); all others run under `torch.func.vmap`.

    The parameters and buffers of all members lie in common tensors, of which those of each member
    are views. An optimizer that moves a member moves the common tensor; running statistics that
    move there are the member's; and a hook hands each member its part of the common gradient. So
    everything else (norms, checkpoints, prediction) sees single networks.
    """

    def __init__(self, members: Sequence[nn.Module], example: Tensor, narrow: int = 0) -> None:
        self.narrow = narrow
        self.network = folded(members, example, narrow)
        self.skeletons: dict[bool, nn.Module] = {}
        self.parameters: dict[str, Tensor]
        self.buffers: dict[str, Tensor]
        if self.network is not None:
            self.parameters = dict(self.network.named_parameters())
            self.buffers = dict(self.network.named_buffers())
        else:
            self.parameters, self.buffers = stack_module_state(list(members))
            self.skeletons = {mode: skeleton(members[0], mode) for mode in (True, False)}

        for name, common in self.parameters.items():
            own = [member.get_parameter(name) for member in members]
            shape = (len(members), *own[0].shape)
            for parameter, part in zip(own, common.detach().view(shape), strict=True):
                parameter.data = part
            if common.requires_grad:
                common.register_post_accumulate_grad_hook(partial(hand_out, own, shape))

        for name, common in self.buffers.items():
            shape = (len(members), *members[0].get_buffer(name).shape)
            for member, part in zip(members, common.view(shape), strict=True):
                set_buffer(member, name, part)

    def __call__(self, inputs: Tensor, training: bool = True) -> Tensor:
        """Return the logits of the members, (M, N, C), on inputs (M, N, ...)."""
        if self.network is None:
            return self.under_vmap(inputs, training)
        if self.network.training != training:
            self.network.train(training)
        return member_logits(self.network, inputs)

    def under_vmap(self, inputs: Tensor, training: bool) -> Tensor:
        """Return the logits of members that cannot be folded."""
        network = self.skeletons[training]

        def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor) -> Tensor:
            logits: Tensor = functional_call(network, (parameters, buffers), (x,))
            return logits

        together = vmap(one, randomness="different")
        logits: Tensor = together(self.parameters, self.buffers, inputs)
        return logits


def hand_out(own: Sequence[nn.Parameter], shape: tuple[int, ...], common: Tensor) -> None:
    """Give each member its part of the common gradient, added to what it has."""
    assert common.grad is not None
    for parameter, part in zip(own, common.grad.view(shape).unbind(), strict=True):
        parameter.grad = part if parameter.grad is None else parameter.grad + part
    common.grad = None


def skeleton(member: nn.Module, training: bool) -> nn.Module:
    """Return the architecture without weights; it is called with the weights of the stack."""
    return deepcopy(member).to("meta").train(training)


def set_buffer(member: nn.Module, name: str, value: Tensor) -> None:
    path, _, last = name.rpartition(".")
    member.get_submodule(path)._buffers[last] = value


# -- which is fastest -----------------------------------------------------------------------------


def fastest_way(
    members: Sequence[nn.Module], example: Tensor, at_once: bool | None, replayed: bool = False
) -> int | None:
    """Return how members run fastest, forth and back: None one after another, else `narrow`.

    `at_once` asks for one of both, None for what is faster. On a CPU one after another is as fast
    or faster (240 against 245 ms a step of 4 ResNet-20). On a GPU small networks wait for
    launches, of which one pass needs fewer, and large ones fill the device alone; so copies are
    timed each way, once, before training: `replayed` as CUDA graphs, where launches cost little.
    """
    if at_once is False:
        return None
    if example.device.type != "cuda":
        return 0 if at_once else None

    with torch.random.fork_rng([example.device]):  # dropout would draw
        times = timed_ways(members, example, at_once, replayed)
    return min(times, key=lambda way: times[way])


def timed_ways(
    members: Sequence[nn.Module], example: Tensor, at_once: bool | None, replayed: bool
) -> dict[int | None, float]:
    """Return the seconds of each way: None one after another, else `narrow` of all at once."""
    times: dict[int | None, float] = {}
    if at_once is None:
        times[None] = seconds_of(one_after_another(members, example), replayed)
    for narrow in NARROW:
        passes = together(members, example, narrow)
        if passes is not None:
            times[narrow] = seconds_of(passes, replayed)
    return times


def one_after_another(members: Sequence[nn.Module], example: Tensor) -> Callable[[], None]:
    """Return a pass forth and back of copies of the members."""
    copies = deepcopy(list(members))
    rows = example.expand(TIMED_ROWS, *example.shape[1:])
    return partial(descend, copies, lambda: [copy(rows) for copy in copies])


def together(
    members: Sequence[nn.Module], example: Tensor, narrow: int
) -> Callable[[], None] | None:
    """Return a pass of copies at once; None if `narrow` changes nothing."""
    if narrow and not any(is_narrow(each, narrow) for each in convolutions(members[0])):
        return None
    copies = deepcopy(list(members))
    stacked = MembersAtOnce(copies, example, narrow)
    if narrow and stacked.network is None:
        return None
    inputs = example.expand(len(copies), TIMED_ROWS, *example.shape[1:])
    return partial(descend, copies, lambda: list(stacked(inputs)))


def convolutions(network: nn.Module) -> list[nn.Conv2d]:
    return [layer for layer in network.modules() if isinstance(layer, nn.Conv2d)]


def descend(members: Sequence[nn.Module], passes: Callable[[], list[Tensor]]) -> None:
    """Run the members forth and back."""
    for member in members:
        member.zero_grad(set_to_none=True)
    torch.stack([logits.float().square().mean() for logits in passes()]).sum().backward()


def recorded_passes(passes: Callable[[], None]) -> Callable[[], None]:
    """Return passes that are replayed as a CUDA graph, after a few to warm up."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The AccumulateGrad node's stream")
        for _ in range(WARM_UP):
            passes()
    torch.cuda.current_stream().wait_stream(side)

    graph = torch.cuda.CUDAGraph()
    with no_garbage_collection(), torch.cuda.graph(graph):
        passes()
    return graph.replay


def seconds_of(passes: Callable[[], None], replayed: bool) -> float:
    """Return the least time of a few passes, after one that warms up."""
    run = recorded_passes(passes) if replayed else passes  # a graph reads what the passes hold
    times = []
    for _ in range(TIMED_PASSES + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times[1:])
