"""Replay a whole step, both passes of SAM included, as one CUDA graph."""

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils._pytree import tree_flatten, tree_map_only

from toosure.config import RunConfig
from toosure.curvature.products.cuda_graphs import no_garbage_collection
from toosure.models.norm_relu import fused_norms
from toosure.objectives import Batch, Plain, recording
from toosure.optim import BSAM, why_not_recorded
from toosure.train.engine import parameters_of
from toosure.train.steps import Step
from toosure.words import Word

WARM_UP = 3  # eager steps before the capture: kernels are chosen and states made


class GraphStep:
    """Take the steps of `Step` by replaying a CUDA graph, after a few eager ones.

    Shapes must not change, and whatever differs between steps must be in tensors: the prepared
    batch, which is copied into the graph's inputs, and the learning rate, if it `varies`. `fixed`
    says that every step gets the same tensors, as in full-batch descent.
    """

    def __init__(self, step: Step, varies: bool, fixed: bool) -> None:
        reason = why_not_recorded(
            step.optimizer,
            step.objective,
            lr_varies=varies,
            loss_scaling=step.scaler is not None,
        )
        if reason is not None:
            raise ValueError(reason)

        self.step = step
        step.cache = False
        self.varies = varies
        self.fixed = fixed and isinstance(step.objective, Plain)
        step.halves = recording(step.objective)  # `prepare`, or its second half, is recorded
        if step.halves is None and hasattr(step.objective, "one_pass"):
            step.objective.one_pass = False  # the graph cannot use a pass from outside of it
        if hasattr(step.objective, "recorded"):  # another way may be fastest in a graph
            with step.autocast(step.dtype is not None), fused_norms():
                step.objective.recorded()

        self.parameters = parameters_of(step.optimizer)
        self.taken = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.leaves: list[Any] = []  # of the prepared batch, where the graph reads it
        self.draws = False  # whether the graph has noise that is seeded before each replay
        self.loss = torch.empty(0)

    def __call__(self, batch: Batch, lr: float) -> Tensor:
        if self.taken == 0:
            make_capturable(self.step.optimizer, self.varies)
        self.taken += 1
        if self.taken <= max(WARM_UP, self.step.engine.warm_up):
            return self.eagerly(batch, lr)

        prepared = self.step.prepared(batch, lr)
        if self.graph is None:
            self.capture(prepared)
        elif not self.fixed:
            self.copy(prepared)

        assert self.graph is not None
        if self.draws:
            assert isinstance(self.step.optimizer, BSAM)
            self.step.optimizer.seed_noise(len(prepared))
        self.graph.replay()
        # A replay does not increase the versions of the parameters, as an eager step does.
        torch.autograd.graph.increment_version(self.parameters)
        return self.loss

    def eagerly(self, batch: Batch, lr: float) -> Tensor:
        """Step on a side stream: a capture requires this of the steps before it."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), fused_norms(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The AccumulateGrad node's stream")
            loss = self.step(batch, lr)
        torch.cuda.current_stream().wait_stream(side)
        return loss

    def capture(self, prepared: list[Any]) -> None:
        """Record a step on copies of the prepared batch; nothing is computed yet."""
        if not self.fixed:
            prepared = tree_map_only(Tensor, lambda t: t.detach().clone(), prepared)
        self.leaves = tree_flatten(prepared)[0]

        self.step.optimizer.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        if isinstance(self.step.optimizer, BSAM):
            self.draws = True
            for generator in self.step.optimizer.generators:  # made by the steps before
                self.graph.register_generator_state(generator)

        with no_garbage_collection(), fused_norms(), torch.cuda.graph(self.graph):
            self.loss = self.step.descend(prepared)

    def copy(self, prepared: list[Any]) -> None:
        """Copy a new batch into the graph's inputs."""
        for old, new in zip(self.leaves, tree_flatten(prepared)[0], strict=True):
            if isinstance(old, Tensor):
                old.copy_(new)
            elif old is not new and old != new:
                raise ValueError(
                    f"the objective returned {new!r}, before {old!r}: a CUDA graph replays "
                    "tensors only; leave graph out"
                )

    def state_dict(self) -> dict[str, Any]:
        return self.step.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step.load_state_dict(state)


def make_capturable(optimizer: Optimizer, varies: bool) -> None:
    """Keep an optimizer's counters, and a learning rate that varies, on the device."""
    for group in optimizer.param_groups:
        if "capturable" in group:
            group["capturable"] = True
        if varies:
            device = group["params"][0].device
            group["lr"] = torch.tensor(float(group["lr"]), device=device)
        if varies and "fused" in group:
            group["fused"] = True
            group["foreach"] = False

    for parameter, state in optimizer.state.items():
        if "step" in state:
            count = torch.as_tensor(state["step"], dtype=torch.float32)
            state["step"] = count.to(parameter.device)


def can_record(config: RunConfig) -> bool:
    """Whether the classes of a run's methods declare that its step can be recorded."""
    words = [config.word("optimizer"), config.word("loss")]
    if config.objective:
        words.append(config.word("objective"))
    # A base optimizer, or the loss of an objective, is a word among the settings.
    settings = [value for word in words for value in word.settings.values()]
    words += [value for value in settings if isinstance(value, Word)]

    reason = why_not_recorded(
        *(word.method.target for word in words),
        lr_varies=config.schedule != "constant",
        loss_scaling=config.precision == "fp16",
    )
    return reason is None
