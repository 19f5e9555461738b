"""A model with its calibrator: fitted from a loader, wrapped, saved and loaded."""

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from toosure.posthoc.calibrator import Calibrator, Identity
from toosure.posthoc.select import choose
from toosure.posthoc.table import CALIBRATORS

NAMED: dict[str, type[Calibrator]] = {"uncalibrated": Identity, **CALIBRATORS}


class Calibrated(nn.Module):
    """Apply a calibrator to what a model returns.

    >>> from toosure.posthoc import Identity
    >>> Calibrated(nn.Linear(4, 3), Identity())(torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(self, model: nn.Module, calibrator: Calibrator) -> None:
        super().__init__()
        self.model, self.calibrator = model, calibrator

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Return calibrated logits."""
        return self.calibrator(self.model(*inputs, **named))

    def predict_proba(self, *inputs: Any, **named: Any) -> Tensor:
        """Return calibrated probabilities."""
        return self(*inputs, **named).softmax(1)


def calibrate(
    model: nn.Module,
    loader: Iterable[Any],
    method: str | Calibrator = "auto",
    folds: int = 5,
    seed: int = 0,
) -> Calibrated:
    """Fit a calibrator on `(inputs, labels, ...)` batches of rows not trained on; wrap the model.

    "auto" tries all and takes the one with the lowest NLL on rows it was not fitted on, none of
    them if none helps; or name one ("temperature"), or give one (`Dirichlet(lam=0.1)`).

    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> inputs = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    >>> labels = torch.multinomial((inputs / 2).softmax(1), 1).squeeze(1)
    >>> loader = DataLoader(TensorDataset(inputs, labels), batch_size=50)
    >>> calibrate(nn.Flatten(), loader, "temperature").calibrator.note
    ''
    """
    logits, labels = collect(model, loader)
    if isinstance(method, Calibrator):
        return Calibrated(model, method.fit(logits, labels))
    if method == "auto":
        calibrator = choose(logits, labels, CALIBRATORS, folds, seed).calibrator
    elif method in CALIBRATORS:
        calibrator = CALIBRATORS[method]().fit(logits, labels)
    else:
        raise ValueError(f"method must be auto or one of {', '.join(CALIBRATORS)}; got {method!r}")
    return Calibrated(model, calibrator)


@torch.no_grad()
def collect(model: nn.Module, loader: Iterable[Any]) -> tuple[Tensor, Tensor]:
    """Return the logits and labels of all batches, with the model in eval mode meanwhile."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        pairs = [(model(batch[0].to(device)), batch[1].to(device)) for batch in loader]
    finally:
        for module, training in modes.items():
            module.training = training
    if not pairs:
        raise ValueError("the loader gave no batches: it must yield (inputs, labels)")
    logits, labels = (torch.cat(part) for part in zip(*pairs, strict=True))
    return logits, labels


def save_calibrator(calibrator: Calibrator, path: str | Path) -> None:
    """Save a fitted calibrator as its name and its numbers; see `load_calibrator`."""
    state = {"calibrator": name_of(type(calibrator)), "state": calibrator.state_dict()}
    try:
        torch.save(state, path)
    except (OSError, RuntimeError) as error:
        raise ValueError(f"{path}: cannot be written ({error})") from error


def name_of(kind: type[Calibrator]) -> str:
    """Return the name that a file tells a calibrator by; one of your own has none."""
    for name, each in NAMED.items():
        if kind is each:
            return name
    raise ValueError(
        f"{kind.__name__} cannot be saved by name, only {', '.join(CALIBRATORS)} can: "
        "keep its state_dict()"
    )


def load_calibrator(path: str | Path) -> Calibrator:
    """Load what `save_calibrator` or `toosure calibrate -o` wrote; nothing in it is executed."""
    try:
        with warnings.catch_warnings():  # torch warns of a strange file before it refuses it
            warnings.simplefilter("ignore")
            found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file makes torch throw almost anything
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"{path}: cannot be read ({reason})") from error
    name = found.get("calibrator") if isinstance(found, dict) else None
    if not isinstance(name, str) or name not in NAMED:
        raise ValueError(f"{path}: holds no calibrator; `toosure calibrate -o` writes one")
    calibrator = NAMED[name]()
    try:
        calibrator.load_state_dict(found.get("state"))
    except (TypeError, RuntimeError, AttributeError) as error:
        raise ValueError(f"{path}: the numbers are not those of {name} ({error})") from error
    check_loaded(calibrator, f"{path}: the numbers of {name}")
    return calibrator


def check_loaded(calibrator: Calibrator, what: str) -> None:
    """Refuse numbers that no fit makes: none, NaN, infinity, a temperature of 0 or below."""
    for name, value in calibrator.state_dict().items():
        if not value.numel() or not value.isfinite().all():
            raise ValueError(f"{what} are missing or not finite: {name}")
        if name == "temperature" and (value.ndim or value <= 0):
            raise ValueError(f"{what} must hold one temperature above 0; got {value.tolist()}")
