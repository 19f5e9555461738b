"""Tell probabilities from logits by the names and values of scores."""

from collections.abc import Sequence

import torch
from torch import Tensor

from toosure.metrics.inputs import SUM_TOLERANCE, as_logits, distribution_problem, probs_hint
from toosure.predictions.predictions import Kind


def kind_of_columns(chosen: Sequence[str], scores: Tensor) -> Kind:
    """Tell what kind scores are, by the names of their columns and their values."""
    if scores.shape[1] == 1:
        return kind_of_one(chosen[0], scores[:, 0])

    check_log_probs(chosen[0], scores)
    prefix = chosen[0].lower()
    if prefix.startswith(("logit", "log_prob", "logprob")) and distribution_problem(scores):
        return "logits"
    return guess_kind(as_logits(scores))


def check_log_probs(name: str, scores: Tensor) -> None:
    """Refuse what is named log-probabilities and is none."""
    if name.lower() not in ("log_probs", "logprobs", "log_prob") or scores.ndim != 2:
        return
    if (problem := distribution_problem(scores.double().exp())) is not None:
        raise ValueError(
            f"{name} are no log-probabilities: of exp({name}), {problem}; save logits as logits"
        )


def kind_of_one(name: str, scores: Tensor) -> Kind:
    """Tell whether one score per row is a probability (in [0, 1]) or a logit (some are not)."""
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
    if low >= 0 and high <= 1:
        return "probs"
    if low < 0:
        return "logits"
    percent = "; percentages must be divided by 100" if high <= 100 else ""
    raise ValueError(
        f"column {name!r} lies between {low:g} and {high:g}: neither probabilities nor, without "
        f"any below 0, surely logits{percent}; if these are logits, say --kind logits"
    )


def guess_kind(scores: Tensor) -> Kind:
    """Tell probabilities (every row sums to 1) from logits (some are negative), or ask."""
    if (problem := distribution_problem(scores)) is None:
        return "probs"
    if (scores < 0).any():
        return "logits"

    if bool(scores.isnan().any()):
        row = int(scores.isnan().any(1).nonzero()[0])
        raise ValueError(f"row {row} (line {row + 2} of a table) holds NaN: drop or mend it")

    rule = f"probabilities sum to 1 to within {SUM_TOLERANCE:g}"
    columns = "; if other columns are the classes, say --columns NAME,NAME"
    if float(scores.max()) <= 1:  # surely no logits: none is below 0 or above 1
        hint = f"; independent labels are for --multilabel{columns}"
    else:
        hint = probs_hint(scores) or f"; if these are logits, say --kind logits{columns}"
    raise ValueError(f"{problem}, and {rule}{hint}")
