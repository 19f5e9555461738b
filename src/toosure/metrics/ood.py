"""AUROC and FPR95 of out-of-distribution detection: do known inputs score above unknown ones?"""

from collections.abc import Callable

import torch
from torch import Tensor

from toosure.binary import is_one_column
from toosure.metrics.confidence import odds_of_rows, row_chunks
from toosure.metrics.conversion import to_tensor
from toosure.metrics.distributions import are_probabilities
from toosure.metrics.inputs import (
    LOGITS_ARE_PROBABILITIES,
    ArrayLike,
    as_logits,
    as_metric_logits,
    check_choice,
    check_finite,
    check_one_column,
    known_logits,
)
from toosure.metrics.ranking import auroc, sorted_values
from toosure.metrics.scores import entropy_rows


def auroc_ood(
    logits: ArrayLike | None = None,
    ood_logits: ArrayLike | None = None,
    score: str = "confidence",
    *,
    probs: ArrayLike | None = None,
    ood_probs: ArrayLike | None = None,
) -> Tensor:
    """Return how well a score tells in-distribution rows (higher) from others.

    score: "confidence" (max p), "entropy" (its negative), "energy" (logsumexp of the logits) or
    "margin" (the largest logit minus the second).

    >>> float(auroc_ood(torch.tensor([[4.0, 0.0]]), torch.tensor([[1.0, 0.0]])))
    1.0
    """
    inside, outside = _two_sets(logits, ood_logits, probs, ood_probs, score)
    return auroc(ood_score(inside, score), ood_score(outside, score))


def fpr95_ood(
    logits: ArrayLike | None = None,
    ood_logits: ArrayLike | None = None,
    score: str = "confidence",
    *,
    probs: ArrayLike | None = None,
    ood_probs: ArrayLike | None = None,
) -> Tensor:
    """Return the share of others accepted at the threshold that keeps 95 % of the rows.

    The threshold is the highest score that at least 95 % of the in-distribution rows reach.

    >>> float(fpr95_ood(torch.tensor([[4.0, 0.0]]), torch.tensor([[1.0, 0.0]])))
    0.0
    """
    inside, outside = _two_sets(logits, ood_logits, probs, ood_probs, score)
    return fpr95_of_scores(ood_score(inside, score), ood_score(outside, score))


def _two_sets(
    logits: ArrayLike | None,
    ood_logits: ArrayLike | None,
    probs: ArrayLike | None,
    ood_probs: ArrayLike | None,
    score: str,
) -> tuple[Tensor, Tensor]:
    """Check both sets; they are probabilities passed as logits where all rows of both are."""
    check_choice("score", score, tuple(SCORES))
    if score == "energy" and (probs is not None or ood_probs is not None):
        raise ValueError("energy is a score of logits; probabilities have lost it")
    with known_logits(probs):
        inside = as_metric_logits(logits, probs)
    with known_logits(ood_probs):
        outside = as_metric_logits(ood_logits, ood_probs)
    if are_probabilities(inside) and are_probabilities(outside):
        raise ValueError(LOGITS_ARE_PROBABILITIES)
    check_one_column(join_one_column(logits, ood_logits))
    return inside, outside


def join_one_column(logits: ArrayLike | None, others: ArrayLike | None) -> Tensor | None:
    """Return both sets of one logit per example as one, to be looked at together; else None."""
    if logits is None or others is None:
        return None
    sets = [to_tensor(each) for each in (logits, others)]
    if not all(is_one_column(each) for each in sets):
        return None
    return torch.cat([each.reshape(-1) for each in sets])


def fpr95_of_scores(inside: Tensor, outside: Tensor) -> Tensor:
    """Return the share of `outside` scores at or above the threshold that keeps 95 % of `inside`.

    >>> float(fpr95_of_scores(torch.arange(20.0), torch.tensor([0.0, 1.0, 2.0, 3.0])))
    0.75
    """
    rejected = len(inside) // 20  # at most 5 % may lie below the threshold
    threshold = sorted_values(inside)[rejected]
    return (outside >= threshold).double().mean()


def top_margin(rows: Tensor) -> Tensor:
    """Return the largest minus the second largest logit of each row; of one class, the logit."""
    top = rows.topk(min(2, rows.shape[1]), dim=1).values
    return top[:, 0] - top[:, 1] if top.shape[1] == 2 else top[:, 0]


def ood_score(logits: ArrayLike, score: str = "confidence") -> Tensor:
    """Return a per-row score, (N,) float64, that is higher for rows like the training data.

    float64 lets two sets of different precision be compared. "confidence" is its log-odds, which
    rank alike and do not saturate.
    """
    check_choice("score", score, tuple(SCORES))
    logits = as_logits(logits).detach()
    check_finite(torch.cat([rows.amax(1) for rows in row_chunks(logits)]))
    return torch.cat([SCORES[score](rows.double()) for rows in row_chunks(logits)])


SCORES: dict[str, Callable[[Tensor], Tensor]] = {
    "confidence": lambda rows: odds_of_rows(rows)[0],
    "entropy": lambda rows: -entropy_rows(rows),
    "energy": lambda rows: rows.logsumexp(1),
    "margin": top_margin,
}
