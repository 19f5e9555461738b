"""The effect of a run's temperature on its test predictions, with intervals and chance."""

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from toosure.chance import chance_level
from toosure.page.half_intervals import PlusMinus
from toosure.page.replicas import KEYS, example_scores, groups_in, replicas_of
from toosure.quantiles import NORMAL_95
from toosure.runs import Run
from toosure.runs.array_file import READ_ERRORS, read_arrays
from toosure.runs.regular_files import Signature, signature

ECE = KEYS.index("ece")


class ScalingEffect(NamedTuple):
    """The ECE before and after a temperature, their difference, and what chance shows; shares."""

    before: PlusMinus
    after: PlusMinus
    change: PlusMinus
    chance: float  # the ECE that a calibrated model shows at most in 97.5 % of such samples
    n: int  # examples


def scaling_effect(run: Run) -> ScalingEffect | None:
    """Return the effect of a run's temperature; None without predictions."""
    temperature = run.scaling.get("temperature")
    if not isinstance(temperature, int | float) or not temperature > 0:
        return None
    file = run.last_predictions
    return effect_in(file, signature(file), run.follow_links, float(temperature))


@lru_cache(maxsize=2048)
def effect_in(
    file: Path, _: Signature | None, follow_links: bool, temperature: float
) -> ScalingEffect | None:
    """Return the effect of a temperature on a file of predictions."""
    try:
        arrays = read_arrays(file, follow_links)
        logits = np.asarray(arrays["test_logits"], dtype=float)
        labels = arrays["test_labels"].astype(int)
        plain = example_scores(logits, labels)
        scaled = example_scores(logits / temperature, labels)
        groups = groups_in(arrays, "test")
    except READ_ERRORS:
        return None
    if not len(labels) or not np.isfinite(plain.nll + scaled.confidence).all():
        return None

    value, samples = replicas_of(plain, groups)
    value_after, samples_after = replicas_of(scaled, groups)
    return ScalingEffect(
        plus_minus(value[ECE], samples[:, ECE]),
        plus_minus(value_after[ECE], samples_after[:, ECE]),
        plus_minus(value_after[ECE] - value[ECE], samples_after[:, ECE] - samples[:, ECE]),
        chance_level(scaled.confidence),
        len(labels),
    )


def plus_minus(value: float, samples: np.ndarray) -> PlusMinus:
    """Return a value with half its interval, from the spread of its replicas."""
    return PlusMinus(float(value), NORMAL_95 * float(samples.std(ddof=1)))
