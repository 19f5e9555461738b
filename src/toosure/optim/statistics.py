"""Running statistics move once a step: find the layers that keep them, and hold them still."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from toosure.optim.passes import copies


class RunningStatistics:
    """Know which BatchNorm (or tracking InstanceNorm) layers a closure runs, and what they held.

    With `model` they are its layers. Without, a forward hook notes every module that a first pass
    calls; a compiled function hides its modules from hooks, which `keep` reports.
    """

    def __init__(self, model: nn.Module | None = None) -> None:
        self.model = model
        self.seen: WeakSet[nn.Module] = WeakSet()  # in any step: a superset does no harm
        self.traced = self.several = False
        self.start: dict[Tensor, Tensor] = {}  # what statistics were before this step
        self.kept: dict[Tensor, Tensor] = {}  # what they are to be after it

    def __reduce__(self) -> Any:
        return RunningStatistics, (self.model,)  # a pickle carries no modules but the model

    def __call__(self, module: nn.Module, inputs: Any) -> None:
        """Note a module that is about to run, and all inside it."""
        if torch.compiler.is_compiling():
            self.traced = True  # all that a traced hook may safely do
        elif module not in self.seen:
            new = [m for m in module.modules() if m not in self.seen]
            self.seen.update(new)
            if self.several:
                self.start |= _copied(_layers(new))

    @contextmanager
    def moving_once(self, several: bool) -> Iterator[None]:
        """Around a step: after it, or whatever happens, statistics are as `keep` left them.

        `several` first passes may run different layers: then each keeps the first move it makes.
        """
        self.several, self.kept = several, {}
        self.start = _copied(_layers(self._modules())) if several else {}
        try:
            yield
        finally:
            self._put_back()
            self.several, self.start, self.kept = False, {}, {}

    @contextmanager
    def noticing(self) -> Iterator[None]:
        """Around a first pass: watch which modules run."""
        self._put_back()  # a second pass moved them
        self.traced = False
        hook = register_module_forward_pre_hook(self) if self.model is None else None
        try:
            yield
        finally:
            if hook is not None:
                hook.remove()

    def keep(self, trained: Callable[[], list[Tensor]], loss: Any) -> None:
        """After a first pass: keep the statistics of layers that had not moved before it.

        `trained` are the parameters that `loss` has just trained: so a hidden module shows.
        """
        modules = self._modules()
        if self.model is None and (self.traced or _something_is_compiled()):
            _check_all_seen(modules, trained(), loss, self.traced)
        layers = _layers(modules)
        now = _copied(layers)
        for layer in layers if self.kept else ():
            known = [t for t in layer if t in self.kept]
            if known:  # compared on the device: the host need not wait
                moved = torch.stack([(self.kept[t] != self.start[t]).any() for t in known]).any()
                now |= {t: torch.where(moved, self.kept[t], now[t]) for t in known}
        self.kept = now

    def _modules(self) -> set[nn.Module]:
        return set(self.seen if self.model is None else _inside(self.model))

    def _put_back(self) -> None:
        for tensors in _alike(self.kept):
            torch._foreach_copy_(tensors, [self.kept[t] for t in tensors])


def _inside(model: nn.Module) -> Iterator[nn.Module]:
    """Do as model.modules(), many times as fast: it builds no names."""
    stack: list[nn.Module | None] = [model]
    while stack:
        module = stack.pop()
        if module is not None:
            yield module
            stack += module._modules.values()


def _layers(modules: Iterable[nn.Module]) -> list[list[Tensor]]:
    """The running mean and variance, and the counter of batches, of each layer that has them."""
    found = (_buffers(module) for module in modules)
    names = ("running_mean", "running_var", "num_batches_tracked")
    layers = [[b[name] for name in names if b.get(name) is not None] for b in found]
    return [layer for layer in layers if layer]


def _buffers(module: nn.Module) -> dict[str, Any]:
    """Its own buffers; a scripted module is of no class to be told by."""
    if isinstance(module, torch.jit.ScriptModule):
        return dict(module.named_buffers(recurse=False))
    return module._buffers


def _alike(tensors: Iterable[Tensor]) -> list[list[Tensor]]:
    """Tensors of one device and type, which one call can serve."""
    found: dict[Any, list[Tensor]] = {}
    for t in tensors:
        found.setdefault((t.device, t.dtype), []).append(t)
    return list(found.values())


def _copied(layers: list[list[Tensor]]) -> dict[Tensor, Tensor]:
    every = _alike(t for layer in layers for t in layer)
    return {t: new for some in every for t, new in zip(some, copies(some), strict=True)}


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
