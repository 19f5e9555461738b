"""Let running statistics move once per step: find the layers that have them, and restore them."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from toosure.optim.passes import copies

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


class RunningStatistics:
    """Know which BatchNorm (or tracking InstanceNorm) layers a closure runs, and what they held.

    With `model` they are its layers. Without, a forward hook records every module that a first
    pass calls. A compiled function hides its modules from hooks; `keep` raises where that matters.
    """

    def __init__(self, model: nn.Module | None = None) -> None:
        self.model = model
        self.seen: WeakSet[nn.Module] = WeakSet()  # in any step: a superset does no harm
        self.traced = False  # whether torch.compile traced a module in this pass
        self.several = False  # whether the step has several first passes, one per micro-batch
        self.before: dict[Tensor, Tensor] = {}  # what statistics were before this step
        self.after: dict[Tensor, Tensor] = {}  # what they are to be after it

    def __reduce__(self) -> tuple[type["RunningStatistics"], tuple[nn.Module | None]]:
        return RunningStatistics, (self.model,)  # a pickle carries no modules but the model

    def __call__(self, module: nn.Module, inputs: object) -> None:
        """Record a module that is about to run, and all inside it: the forward hook."""
        if torch.compiler.is_compiling():
            self.traced = True  # all that a traced hook may safely do
        elif module not in self.seen:
            new = [m for m in module.modules() if m not in self.seen]
            self.seen.update(new)
            if self.several:
                self.before |= _copied(_layers(new))

    @contextmanager
    def moving_once(self, several: bool) -> Iterator[None]:
        """Around a step: afterwards, also after an error, statistics are as `keep` left them.

        `several` first passes may run different layers: then each keeps the first move it makes.
        """
        self.several = several
        self.before = _copied(_layers(self._modules())) if several else {}
        self.after = {}
        try:
            yield
        finally:
            self._restore_and_forget()

    @contextmanager
    def recording_modules(self) -> Iterator[None]:
        """Around a first pass: record which modules run."""
        self._restore()  # an earlier second pass moved them
        self.traced = False
        with self._hooked():
            yield

    @contextmanager
    def held_still(self, trained: Callable[[], list[Tensor]]) -> Iterator[None]:
        """Around a second pass without our first: restore the statistics afterwards.

        Layers that were not seen before are copied when they are about to run.
        """
        self.traced = False
        self.several = True
        self.before = _copied(_layers(self._modules()))
        try:
            with self._hooked():
                yield
                self._check_compiled(self._modules(), trained, None)
        finally:
            self.after = self.before
            self._restore_and_forget()

    def keep(self, trained: Callable[[], list[Tensor]], loss: object) -> None:
        """After a first pass: keep the statistics of layers that had not moved before it.

        `trained` returns the parameters that `loss` has just trained. They show whether a module
        was hidden from the hook.
        """
        modules = self._modules()
        self._check_compiled(modules, trained, loss)
        layers = _layers(modules)
        now = _copied(layers)

        # A layer that moved in an earlier micro-batch keeps that move. The comparison stays on the
        # device, so that the host need not wait for it.
        for layer in layers if self.after else ():
            known = [t for t in layer if t in self.after]
            if known:
                moved = torch.stack([(self.after[t] != self.before[t]).any() for t in known]).any()
                now |= {t: torch.where(moved, self.after[t], now[t]) for t in known}
        self.after = now

    @contextmanager
    def _hooked(self) -> Iterator[None]:
        """Inside, every module that runs is recorded, unless the model is known."""
        hook = register_module_forward_pre_hook(self) if self.model is None else None
        try:
            yield
        finally:
            if hook is not None:
                hook.remove()

    def _check_compiled(
        self, modules: set[nn.Module], trained: Callable[[], list[Tensor]], loss: object
    ) -> None:
        """Raise if torch.compile may have hidden layers from the hook."""
        if self.model is None and (self.traced or _something_is_compiled()):
            _check_all_seen(modules, trained(), loss, self.traced)

    def _modules(self) -> set[nn.Module]:
        return set(self.seen if self.model is None else _inside(self.model))

    def _restore(self) -> None:
        for tensors in _alike(self.after):
            torch._foreach_copy_(tensors, [self.after[t] for t in tensors])

    def _restore_and_forget(self) -> None:
        """End a step: restore what is to be after it, and hold no more copies."""
        self._restore()
        self.several = False
        self.before = {}
        self.after = {}


def _inside(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules of a model as model.modules() does, but faster: it builds no names."""
    stack: list[nn.Module | None] = [model]
    while stack:
        module = stack.pop()
        if module is not None:
            yield module
            stack += module._modules.values()


def _layers(modules: Iterable[nn.Module]) -> list[list[Tensor]]:
    """Return the running mean, variance and counter of batches of each layer that has them."""
    layers = []
    for module in modules:
        buffers = _buffers(module)
        layer = [t for t in (buffers.get(name) for name in STATISTICS) if t is not None]
        if layer:
            layers.append(layer)
    return layers


def _buffers(module: nn.Module) -> dict[str, Tensor | None]:
    """Return a module's own buffers; a scripted module hides its class, so its names are asked."""
    if isinstance(module, torch.jit.ScriptModule):
        return dict(module.named_buffers(recurse=False))
    return module._buffers


def _alike(tensors: Iterable[Tensor]) -> list[list[Tensor]]:
    """Group tensors by device and type, so that one call can serve each group."""
    groups: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for t in tensors:
        groups.setdefault((t.device, t.dtype), []).append(t)
    return list(groups.values())


def _copied(layers: list[list[Tensor]]) -> dict[Tensor, Tensor]:
    """Return a copy of each tensor, by the tensor."""
    groups = _alike(t for layer in layers for t in layer)
    return {t: copy for group in groups for t, copy in zip(group, copies(group), strict=True)}


def _something_is_compiled() -> bool:
    """Whether torch.compile has been used in this process."""
    utils = sys.modules.get("torch._dynamo.utils")
    return utils is not None and bool(utils.counters["frames"]["total"])


def _check_all_seen(
    modules: set[nn.Module], parameters: list[Tensor], loss: object, traced: bool
) -> None:
    """Raise if something compiled used parameters unseen: its BatchNorm would move twice."""
    owned = {p for module in modules for p in module.parameters(recurse=False)}
    if any(p not in owned for p in parameters) and (traced or _may_be_compiled(loss)):
        raise ValueError(
            "the closure trains parameters of no module that was seen to run, and torch.compile is "
            "in use: a compiled function hides its BatchNorm layers, whose statistics would move "
            "twice per step. Give the optimizer model=your_model (torch.nn.Module() if it has none)"
        )


def _may_be_compiled(loss: object) -> bool:
    """Whether a compiled function computed the loss; unknown without a graph."""
    if not isinstance(loss, Tensor) or loss.grad_fn is None:
        return True

    stack = [loss.grad_fn]
    visited = set()
    while stack:
        node = stack.pop()
        if "CompiledFunction" in type(node).__name__:
            return True
        if node not in visited:
            visited.add(node)
            stack += [parent for parent, _ in node.next_functions if parent is not None]
    return False
