"""Load the state of Adam that was saved on another kind of device."""

from typing import Any

import torch


def load_adam(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load Adam's state from any device; its step counters go where this device needs them."""
    settings = [group["capturable"] for group in optimizer.param_groups]
    optimizer.load_state_dict(state)

    for group, capturable in zip(optimizer.param_groups, settings, strict=True):
        group["capturable"] = capturable
        for parameter in group["params"]:
            adam = optimizer.state.get(parameter)
            if adam:
                adam["step"] = adam["step"].to(parameter.device if capturable else "cpu")
