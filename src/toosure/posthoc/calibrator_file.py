"""Save a fitted calibrator as its name and its numbers, and load it again; no code is stored."""

import warnings
from pathlib import Path

import torch

from toosure.posthoc.all_calibrators import CALIBRATORS
from toosure.posthoc.calibrator import Calibrator, Identity

WRITER = "`toosure calibrate -o` writes one"
NAMED: dict[str, type[Calibrator]] = {"uncalibrated": Identity, **CALIBRATORS}


def save_calibrator(calibrator: Calibrator, path: str | Path) -> None:
    """Save a fitted calibrator as its name and its numbers; see `load_calibrator`."""
    name = name_of(type(calibrator))
    calibrator.check_fitted()
    content = {
        "calibrator": name,
        "state": calibrator.state_dict(),
        "class_names": list(calibrator.class_names),
        "fitted_on": calibrator.fitted_on,
        "classes": calibrator.fitted_classes,
    }
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        torch.save(content, path)
    except (OSError, RuntimeError) as error:
        raise ValueError(f"{path}: cannot be written ({error})") from error


def name_of(kind: type[Calibrator]) -> str:
    """Return the name of a calibrator in files; calibrators of your own have no name."""
    for name, named_kind in NAMED.items():
        if kind is named_kind:
            return name
    raise ValueError(
        f"{kind.__name__} cannot be saved by name, only {', '.join(CALIBRATORS)} can: "
        "keep its state_dict()"
    )


def load_calibrator(path: str | Path) -> Calibrator:
    """Load what `save_calibrator` or `toosure calibrate -o` wrote; nothing in it is executed."""
    path = Path(path)
    if not path.is_file():
        missing = "is a folder" if path.is_dir() else "no such file"
        raise ValueError(f"{path}: {missing}; {WRITER}")
    try:
        with warnings.catch_warnings():  # torch warns of a strange file before it refuses it
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True)
    except PermissionError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from error
    except Exception as error:  # a damaged file makes torch raise almost anything
        raise ValueError(f"{path}: damaged, or holds no calibrator; {WRITER}") from error

    name = content.get("calibrator") if isinstance(content, dict) else None
    if not isinstance(name, str) or name not in NAMED:
        raise ValueError(f"{path}: holds no calibrator; {WRITER}")

    calibrator = NAMED[name]()
    try:
        calibrator.load_state_dict(content.get("state"))
    except (TypeError, RuntimeError, AttributeError) as error:
        raise ValueError(f"{path}: the numbers do not fit {name} ({error})") from error
    check_fitted_values(calibrator, f"{path}: the numbers of {name}")
    calibrator.class_names = tuple(map(str, content.get("class_names", ())))
    kind = content.get("fitted_on")
    calibrator.fitted_on = kind if kind in ("logits", "probs") else None
    classes = content.get("classes")
    calibrator.fitted_classes = classes if isinstance(classes, int) and classes > 1 else None
    return calibrator


def check_fitted_values(calibrator: Calibrator, what: str) -> None:
    """Refuse numbers that no fit gives: missing ones, NaN, infinity, a temperature <= 0."""
    for name, value in calibrator.state_dict().items():
        if not value.numel() or not value.isfinite().all():
            raise ValueError(f"{what} are missing or not finite: {name}")
        if name == "temperature" and (value.ndim or value <= 0):
            raise ValueError(f"{what} must hold one temperature above 0; got {value.tolist()}")
