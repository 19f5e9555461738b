"""An optimizer around another: one set of parameter groups and one state for both."""

from typing import Any, ClassVar

from torch.optim import Optimizer

from toosure.optim.traits import Traits
from toosure.optim.validators import Validator, check_settings


class Wrapper(Traits, Optimizer):
    """Share the parameter groups and the state of `base`, and add settings to each group.

    A scheduler that sets a group's lr sets the base's; a checkpoint of the wrapper holds both.
    Subclasses name in `pickled` the attributes that a pickle must carry, and in `validators` how
    the settings of a group are checked.
    """

    cuda_graph_varying_lr: ClassVar[bool | str | None] = True  # as far as the base does

    pickled: ClassVar[tuple[str, ...]] = ("base",)
    validators: ClassVar[dict[str, Validator]] = {}

    def __init__(self, base: Optimizer, **settings: object) -> None:
        self.base = base
        for name in settings:
            self._check_own(name)
        super().__init__(base.param_groups, {**base.defaults, **settings})

        # torch made other lists and another state; from here on both optimizers share the base's.
        self.param_groups = base.param_groups
        self.state = base.state

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the base; it may carry its own value of each setting."""
        check_settings(self.validators, {**self.defaults, **param_group})
        if all(param_group is not group for group in self.base.param_groups):
            self.base.add_param_group(param_group)
        self._fill_defaults(self.base.param_groups)

    def _add_setting(self, name: str, value: object) -> None:
        """Give every group a setting of a subclass, now and when groups are added."""
        self._check_own(name)
        self.defaults[name] = value
        self._fill_defaults(self.param_groups)
        for group in self.param_groups:
            check_settings(self.validators, group)

    def _check_own(self, name: str) -> None:
        """Raise if the base keeps a setting of the same name, in the same groups."""
        if name in self.base.defaults:
            own, base = type(self).__name__, type(self.base).__name__
            raise ValueError(
                f"{base} has a {name} of its own, and one value would serve as that of {own}, too: "
                "take another base, such as torch.optim.SGD or AdamW"
            )

    def _fill_defaults(self, groups: list[dict[str, Any]]) -> None:
        for group in groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)

    def _step_base(self) -> None:
        step_without_hooks(self.base)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), **{name: self.__dict__[name] for name in self.pickled}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take groups and state from a pickle or a checkpoint (a bare base's will do)."""
        super().__setstate__(state)
        self._fill_defaults(self.param_groups)
        self.base.__setstate__({"state": self.state, "param_groups": self.param_groups})


def step_without_hooks(optimizer: Optimizer) -> None:
    """Step an inner optimizer without torch's hooks, which are for the one the caller sees."""
    step: Any = type(optimizer).step
    if getattr(step, "hooked", False):  # torch marks a class's step when it wraps it
        step = step.__wrapped__
    step(optimizer)


def innermost(optimizer: Any) -> Optimizer:
    """Return the optimizer inside the wrappers of a framework, such as accelerate or Lightning.

    It may itself be one around a base.
    """
    while isinstance(getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = optimizer.optimizer
    inside: Optimizer = optimizer
    return inside
