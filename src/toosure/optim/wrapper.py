"""An optimizer around another: one set of groups, one state, seen and saved as one."""

from typing import Any, ClassVar

from torch.optim import Optimizer

from toosure.optim.limits import Limit, check
from toosure.optim.traits import Traits


class Wrapper(Traits, Optimizer):
    """Share the parameter groups and the state of `base`, and add settings to each group.

    A scheduler that sets a group's lr sets the base's; a checkpoint of the wrapper holds both.
    Subclasses name in `kept` the attributes that a pickle must carry, and in `limits` what the
    settings of a group may be.
    """

    cuda_graph_varying_lr: ClassVar[bool | str | None] = True  # as far as the base does

    kept: ClassVar[tuple[str, ...]] = ("base",)
    limits: ClassVar[dict[str, Limit]] = {}

    def __init__(self, base: Optimizer, **settings: Any) -> None:
        self.base = base
        super().__init__(base.param_groups, {**base.defaults, **settings})
        self.param_groups, self.state = base.param_groups, base.state

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the base; it may carry its own value of each setting."""
        check(self.limits, {**self.defaults, **param_group})
        if all(param_group is not group for group in self.base.param_groups):
            self.base.add_param_group(param_group)
        self._fill(self.base.param_groups)

    def _add_setting(self, name: str, value: Any) -> None:
        """Give every group a setting of a subclass, now and when groups are added."""
        self.defaults[name] = value
        self._fill(self.param_groups)
        for group in self.param_groups:
            check(self.limits, group)

    def _fill(self, groups: list[dict[str, Any]]) -> None:
        for group in groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)

    def _step_base(self) -> None:
        step_without_hooks(self.base)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), **{name: self.__dict__[name] for name in self.kept}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take groups and state from a pickle or a checkpoint (a bare base's will do)."""
        super().__setstate__(state)
        self._fill(self.param_groups)
        self.base.__setstate__({"state": self.state, "param_groups": self.param_groups})


def step_without_hooks(optimizer: Optimizer) -> None:
    """Let an inner optimizer step: torch's hooks on every step are for the one the caller sees."""
    step: Any = type(optimizer).step
    if getattr(step, "hooked", False):  # as torch marks a class's step when it wraps it
        step = step.__wrapped__
    step(optimizer)
