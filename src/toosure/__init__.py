"""Is your classifier too sure? Watch calibration, curvature and margins while it trains."""

import importlib as _importlib
import os as _os

TYPE_CHECKING = False  # so named, type checkers read the block below and Python does not
if TYPE_CHECKING:
    from toosure.config import RunConfig as RunConfig
    from toosure.posthoc import calibrate as calibrate
    from toosure.runs import Run as Run
    from toosure.watch import Watch as Watch

__version__ = "0.2.0"

_PUBLIC_NAMES = {  # name -> the module that holds it, loaded on first use
    "calibrate": "toosure.posthoc",
    "Run": "toosure.runs",
    "RunConfig": "toosure.config",
    "Watch": "toosure.watch",
}
_FILES = {name.removesuffix(".py") for name in _os.listdir(_os.path.dirname(__file__))}
_ROOMS = {name for name in _FILES if name.isidentifier() and not name.startswith("_")}


def __getattr__(name: str) -> object:
    """Load a public name, or a room such as `toosure.metrics`, the first time it is asked for."""
    if name in _PUBLIC_NAMES:
        return getattr(_importlib.import_module(_PUBLIC_NAMES[name]), name)
    if name in _ROOMS:
        return _importlib.import_module(f"toosure.{name}")
    raise AttributeError(f"module 'toosure' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*_ROOMS, *_PUBLIC_NAMES, "__version__"})
