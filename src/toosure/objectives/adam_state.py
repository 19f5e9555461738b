"""Load the state of Adam that was saved on another kind of device."""

from typing import Any

import torch


def load_adam(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load Adam's state from any device; its step counters go where this device needs them."""
    groups, saved = len(optimizer.param_groups), len(state["param_groups"])
    if groups != saved:
        raise ValueError(
            f"the checkpoint has {saved} rates for what the objective learns, where its options "
            f"ask for {groups}: it was made with other options (before 0.2.0 `gamma_net` was "
            "gamma_net:lr=0.001,level_lr=none)"
        )
    settings = [group["capturable"] for group in optimizer.param_groups]
    optimizer.load_state_dict(state)

    for group, capturable in zip(optimizer.param_groups, settings, strict=True):
        group["capturable"] = capturable
        for parameter in group["params"]:
            adam = optimizer.state.get(parameter)
            if adam:
                adam["step"] = adam["step"].to(parameter.device if capturable else "cpu")
