"""Running statistics move once a step: find the layers that keep them, and hold them still."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.module import register_module_forward_pre_hook

from toosure.optim.passes import copies


class RunningStatistics:
    """Know which BatchNorm (or tracking InstanceNorm) layers a closure runs.

    With `model` they are its layers. Without, a forward hook notes every module that a first pass
    calls; a compiled function hides its modules from hooks, which `held` reports.
    """

    def __init__(self, model: nn.Module | None = None) -> None:
        self.model = model
        self.seen: WeakSet[nn.Module] = WeakSet()  # in any step: a superset does no harm
        self.traced = False

    def __reduce__(self) -> Any:
        return RunningStatistics, (self.model,)  # a pickle carries no modules but the model

    def __call__(self, module: nn.Module, inputs: Any) -> None:
        """Note a module that is about to run, and all inside it."""
        if torch.compiler.is_compiling():
            self.traced = True  # all that a traced hook may safely do
        elif module not in self.seen:
            self.seen.update(module.modules())

    @contextmanager
    def noticing(self) -> Iterator[None]:
        """Watch which modules run inside."""
        self.traced = False
        hook = register_module_forward_pre_hook(self) if self.model is None else None
        try:
            yield
        finally:
            if hook is not None:
                hook.remove()

    @contextmanager
    def held(self, trained: Callable[[], list[Tensor]], loss: Any) -> Iterator[None]:
        """Put the statistics back as they are now, whatever happens inside.

        `trained` are the parameters that `loss` has just trained: so a hidden module shows.
        """
        modules = set(self.seen if self.model is None else _inside(self.model))
        if self.model is None and (self.traced or _something_is_compiled()):
            _check_all_seen(modules, trained(), loss, self.traced)
        moving, counters = _statistics(m for m in modules if isinstance(m, _NormBase))
        saved = copies(moving), copies(counters)
        try:
            yield
        finally:
            if moving:
                torch._foreach_copy_(moving, saved[0])
            if counters:
                torch._foreach_copy_(counters, saved[1])


def _inside(model: nn.Module) -> Iterator[nn.Module]:
    """Do as model.modules(), many times as fast: it builds no names."""
    stack: list[nn.Module | None] = [model]
    while stack:
        module = stack.pop()
        if module is not None:
            yield module
            stack += module._modules.values()


def _statistics(layers: Iterable[_NormBase]) -> tuple[list[Tensor], list[Tensor]]:
    """The means and variances, and the counters of batches, of the layers that track them."""
    moving: list[Tensor] = []
    counters: list[Tensor] = []
    for layer in layers:
        moving += [t for t in (layer.running_mean, layer.running_var) if t is not None]
        counters += [t for t in (layer.num_batches_tracked,) if t is not None]
    return moving, counters


def _something_is_compiled() -> bool:
    """Whether torch.compile has been at work in this process."""
    utils = sys.modules.get("torch._dynamo.utils")
    return utils is not None and bool(utils.counters["frames"]["total"])


def _check_all_seen(
    modules: set[nn.Module], parameters: list[Tensor], loss: Any, traced: bool
) -> None:
    """Raise if something compiled used parameters out of sight: its BatchNorm would move twice."""
    owned = {p for module in modules for p in module.parameters(recurse=False)}
    if any(p not in owned for p in parameters) and (traced or _may_be_compiled(loss)):
        raise ValueError(
            "the closure trains parameters of no module that was seen to run, and torch.compile is "
            "in use: a compiled function hides its BatchNorm layers, whose statistics would move "
            "twice a step. Give the optimizer model=your_model (torch.nn.Module() if it has none)"
        )


def _may_be_compiled(loss: Any) -> bool:
    """Whether a compiled function made the loss; a loss without its graph may hide one."""
    if not isinstance(loss, Tensor) or loss.grad_fn is None:
        return True
    stack, visited = [loss.grad_fn], set()
    while stack:
        node = stack.pop()
        if "CompiledFunction" in type(node).__name__:
            return True
        if node not in visited:
            visited.add(node)
            stack += [parent for parent, _ in node.next_functions if parent is not None]
    return False
