"""Is your classifier too sure? Watch calibration, curvature and margins while it trains."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_ROOMS = frozenset(
    "metrics curvature margins losses data models optim posthoc objectives words config runs "
    "watch train sweep figures report live".split()
)
_NAMES: dict[str, str] = {}  # public name -> the module that holds it, loaded on first use

__all__ = sorted([*_NAMES, "__version__"])


def __getattr__(name: str) -> Any:
    """Load a room or a public name the first time it is asked for."""
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    if name in _ROOMS:
        return import_module(f"toosure.{name}")
    raise AttributeError(f"module 'toosure' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS])
