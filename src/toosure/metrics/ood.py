"""AUROC and FPR95 of out-of-distribution detection: do known inputs score above unknown ones?"""

from collections.abc import Callable

import torch
from torch import Tensor

from toosure.metrics.confidence import odds_of_rows, row_chunks
from toosure.metrics.inputs import ArrayLike, as_logits, check_choice, check_finite
from toosure.metrics.ranking import auroc, sorted_values
from toosure.metrics.scores import entropy_rows


def auroc_ood(logits: ArrayLike, ood_logits: ArrayLike, score: str = "confidence") -> Tensor:
    """Return how well a score tells in-distribution rows (higher) from others.

    score: "confidence" (max p), "entropy" (its negative) or "energy" (logsumexp of the logits).

    >>> float(auroc_ood(torch.tensor([[4.0, 0.0]]), torch.tensor([[1.0, 0.0]])))
    1.0
    """
    return auroc(ood_score(logits, score), ood_score(ood_logits, score))


def fpr95_ood(logits: ArrayLike, ood_logits: ArrayLike, score: str = "confidence") -> Tensor:
    """Return the share of others accepted at the threshold that keeps 95 % of the rows.

    The threshold is the highest score that at least 95 % of the in-distribution rows reach.

    >>> float(fpr95_ood(torch.tensor([[4.0, 0.0]]), torch.tensor([[1.0, 0.0]])))
    0.0
    """
    inside = ood_score(logits, score)
    outside = ood_score(ood_logits, score)
    rejected = len(inside) // 20  # at most 5 % may lie below the threshold
    threshold = sorted_values(inside)[rejected]
    return (outside >= threshold).double().mean()


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
}
