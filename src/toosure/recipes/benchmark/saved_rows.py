"""What is saved of a run beside its scores: rows, errors after calibration, control, seconds."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from toosure import metrics
from toosure.finite import is_finite_number
from toosure.posthoc import CALIBRATORS
from toosure.runs import Run
from toosure.runs.json_text import read_json

# The calibrators of Figure 3 of the CSAM paper; the temperature has scores of its own.
CALIBRATED_BY = ("vector", "platt", "histogram", "isotonic")
SAVED_KEYS = ("loss", "accuracy", "confidence", "ece", "nll", "tce", "temperature")
CORRUPTED_FILE = "imagenet_c.json"  # of a run that was judged on published corrupted images
SAM_KEYS = "train/sam_"  # of `sam_theory`; all of them are saved
GAMMA_KEYS = (  # of gamma-net
    "objective/gamma_mean",
    "objective/gamma_std",
    "objective/gamma_at_bound",
    "objective/gamma_collapsed",
    "objective/meta_signal_to_noise",
)
WHOLE_KEYS = ("step", "epoch", *GAMMA_KEYS)
CONTROL = "control/"  # prefix of keys in rows of a steered run


def rows_along(run: Run) -> list[dict[str, float]] | None:
    """Return the rows of a run that was measured several times, or None if only its end was."""
    if len(run.rows) < 2:
        return None
    return [saved_numbers(row) for row in run.rows]


def saved_numbers(row: Mapping[str, object]) -> dict[str, float]:
    """Return those numbers of a row that figures and tables use.

    >>> saved_numbers({"step": 3, "val/ece": 0.1, "val/brier": 0.2, "train/sam_p_y": 0.9})
    {'step': 3.0, 'val/ece': 0.1, 'train/sam_p_y': 0.9}
    >>> saved_numbers({"objective/gamma_mean": 1.2, "objective/gamma_max": 4.9})
    {'objective/gamma_mean': 1.2}
    """
    saved = {}
    for key, value in row.items():
        named = key in WHOLE_KEYS or key.rpartition("/")[2] in SAVED_KEYS
        if not named and not key.startswith(SAM_KEYS):
            continue
        if is_finite_number(value):
            saved[key] = float(value)
    return saved


def calibrated_errors(
    val: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]
) -> dict[str, float] | None:
    """Return the ECE of the test images after each calibrator, or None without validation images.

    The calibrators are fitted on the validation images. A fit counts even where its NLL is worse
    than before: `Calibrator.fit` would then leave the logits alone, and the ECE would be the raw
    one. A calibrator that these images cannot fit, because a class is missing, is left out.
    """
    if not len(val[1]):
        return None

    logits, labels = test
    errors = {}
    for name in CALIBRATED_BY:
        calibrator = CALIBRATORS[name]()
        try:
            with torch.no_grad():
                calibrator.solve(*calibrator.checked(*val))
        except ValueError:
            continue
        errors[name] = float(metrics.ece(calibrator(logits), labels))
    return errors


def corrupted_means(run: Run) -> dict[str, dict[str, float]] | None:
    """Return accuracy and ECE by corruption, means over severities, or None if not judged."""
    saved = read_json(run.path / CORRUPTED_FILE, if_damaged={})
    if not saved:
        return None
    return {
        corruption: {
            metric: sum(scores[metric] for scores in by_severity.values()) / len(by_severity)
            for metric in ("accuracy", "ece")
        }
        for corruption, by_severity in saved.items()
    }


def control_numbers(run: Run) -> dict[str, float] | None:
    """Return the settings and readings of the controller at the end, or None without one."""
    numbers = {key: value for key, value in run.last.items() if key.startswith(CONTROL)}
    return {key.removeprefix(CONTROL): float(value) for key, value in numbers.items()} or None


def measuring_seconds(run: Run) -> float:
    """Return the seconds that the measurements of a run took."""
    return float(np.nansum(run.columns["seconds_measuring"]))


def training_seconds(run: Run) -> float:
    """Return the seconds that a run trained, without its measurements."""
    return float(run.last["seconds"]) - measuring_seconds(run)
