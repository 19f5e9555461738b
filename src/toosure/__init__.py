"""Is your classifier too sure? Watch calibration, curvature and margins while it trains."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

__version__ = "0.1.0"

_NAMES: dict[str, str] = {
    "calibrate": "toosure.posthoc",
    "Run": "toosure.runs",
    "RunConfig": "toosure.config",
    "Watch": "toosure.watch",
}  # public name -> the module that holds it, loaded on first use


def __getattr__(name: str) -> Any:
    """Load a public name, or a room such as `toosure.metrics`, the first time it is asked for."""
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    if not name.startswith("_") and find_spec(f"toosure.{name}"):
        return import_module(f"toosure.{name}")
    raise AttributeError(f"module 'toosure' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_NAMES])
