"""Tell probabilities from logits by the names and values of scores."""

from collections.abc import Sequence

import torch
from torch import Tensor

from toosure.binary import is_one_column
from toosure.metrics.distributions import SUM_TOLERANCE, distribution_problem, probs_hint
from toosure.metrics.inputs import as_logits
from toosure.metrics.one_column import ROUNDING, may_be_probabilities
from toosure.predictions.predictions import Kind, Predictions


def kind_of_columns(chosen: Sequence[str], scores: Tensor) -> Kind:
    """Tell what kind scores are, by the names of their columns and their values."""
    check_log_probs(chosen[0], scores)
    if scores.shape[1] == 1:
        return kind_of_one(chosen[0], scores[:, 0])
    if is_named_logits(chosen[0]) and distribution_problem(scores):
        return "logits"
    return guess_kind(as_logits(scores))


def is_named_logits(name: str) -> bool:
    """Whether the name of a column or array says that it holds logits.

    >>> [is_named_logits(name) for name in ("logits", "Logit_cat", "p_cat", "score")]
    [True, True, False, False]
    """
    return name.lower().startswith(("logit", "log_prob", "logprob"))


def doubt_of_logits(name: str, predictions: Predictions, kind_given: Kind | None) -> str:
    """Note that one logit per row may be a probability, if all lie in [0, 1]."""
    if kind_given or predictions.kind != "logits" or not predictions.binary:
        return ""
    assert predictions.logits is not None
    if not may_be_probabilities(predictions.logits[:, 1]):
        return ""
    return f"all logits lie in [0, 1]: if they are probabilities, say --kind probs --columns {name}"


def check_log_probs(name: str, scores: Tensor) -> None:
    """Refuse an array that is named log-probabilities, but is not."""
    if name.lower() not in ("log_probs", "logprobs", "log_prob"):
        return
    if is_one_column(scores):
        raise ValueError(
            f"{name} holds one number per row, and log P(class 1) is not a logit: save P(class 1), "
            "its exponential, as prob"
        )
    if (problem := distribution_problem(scores.double().exp())) is not None:
        raise ValueError(
            f"{name} are not log-probabilities: of exp({name}), {problem}; save logits as logits"
        )


def kind_of_one(name: str, scores: Tensor) -> Kind:
    """Tell whether one score per row is a probability or a logit, by its name or its values.

    It is a logit if it is named so or some values are below 0, else a probability in [0, 1], up to
    rounding.
    """
    if not len(scores):
        return "probs"
    if not bool(scores.isfinite().all()):
        row = int((~scores.isfinite()).nonzero()[0])
        raise ValueError(f"column {name!r} holds {float(scores[row])} in row {row}")
    if bool(((scores == 0) | (scores == 1)).all()):
        raise ValueError(
            f"column {name!r} holds only 0 and 1: predicted classes, not probabilities; save "
            "probabilities (predict_proba), or say --kind probs if it really is that sure"
        )

    low, high = torch.stack(torch.aminmax(scores)).tolist()
    if is_named_logits(name):
        return "logits"
    if low >= -ROUNDING and high <= 1 + ROUNDING:
        return "probs"
    if low < 0:
        return "logits"
    percent = "; percentages must be divided by 100" if high <= 100 else ""
    raise ValueError(
        f"column {name!r} lies between {low:g} and {high:g}: neither probabilities nor, without "
        f"any below 0, surely logits{percent}; if these are logits, say --kind logits"
    )


def guess_kind(scores: Tensor) -> Kind:
    """Tell probabilities (every row sums to 1) from logits (some are negative), or raise."""
    if (problem := distribution_problem(scores)) is None:
        return "probs"
    if (scores < 0).any():
        rounded = distribution_problem(scores.clamp(min=0)) is None and scores.min() >= -ROUNDING
        return "probs" if rounded else "logits"

    if bool(scores.isnan().any()):
        row = int(scores.isnan().any(1).nonzero()[0])
        raise ValueError(f"row {row} (line {row + 2} of a .csv) holds NaN: drop or mend it")

    rule = f"probabilities sum to 1 to within {SUM_TOLERANCE:g}"
    columns = "; if other columns are the classes, say --columns NAME,NAME"
    if float(scores.max()) <= 1:  # surely no logits: none is below 0 or above 1
        hint = (
            probs_hint(scores) or f"; independent labels are for `evaluate --multilabel`{columns}"
        )
    else:
        hint = probs_hint(scores) or f"; if these are logits, say --kind logits{columns}"
    raise ValueError(f"{problem}, and {rule}{hint}")
