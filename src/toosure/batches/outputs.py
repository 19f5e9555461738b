"""What a model gives: a tensor of logits, or something that holds one."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor


def logits_in(outputs: Any) -> Tensor:
    """Return the logits that a model gave as a tensor, as `.logits` or under "logits"."""
    logits = outputs
    if isinstance(outputs, Mapping):
        logits = outputs.get("logits")
    elif not isinstance(outputs, Tensor):
        logits = getattr(outputs, "logits", None)

    if not isinstance(logits, Tensor):
        keys = f" with the keys {list(outputs)}" if isinstance(outputs, Mapping) else ""
        raise ValueError(
            f"the model gives {type(outputs).__name__}{keys}, and logits are needed: return a "
            "tensor, an object with .logits, or a dict with 'logits' (or wrap it in a Module so)"
        )
    return logits
