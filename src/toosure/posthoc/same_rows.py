"""Detect rows that two sets share, also if shifted, rounded or turned into probabilities."""

import math

import torch
from torch import Tensor

from toosure.metrics.confidence import chunked_pairs
from toosure.posthoc.calibrator_inputs import without_log_zero

GRID = 2e-3  # relative: half precision moves a row by less
MIN_LOG_P = -60.0  # float32 still holds its exponential
MAX_SHARED = 0.01  # share of judged rows that may be in the fit, besides those equal by chance


def fingerprints(logits: Tensor, labels: Tensor) -> Tensor:
    """Return one number per row, which most likely stays the same in other units of the row.

    It joins the label, the size of log p on a log grid, and three projections of its direction.
    These are few numbers, so that most rows stay in their cell in half precision, whatever the
    number of classes.

    >>> logits = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    >>> labels = torch.arange(50) % 4
    >>> torch.equal(fingerprints(logits, labels), fingerprints((logits + 1).log_softmax(1), labels))
    True
    """
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(logits.shape[1], 3, generator=generator, dtype=torch.float64)
    weights = (weights / weights.norm(dim=0)).to(logits.device)
    mixing = torch.randint(-(2**62), 2**62, (5,), generator=generator).to(logits.device)

    parts = []
    for rows, targets in chunked_pairs(logits, labels):
        log_p = without_log_zero(rows.double()).log_softmax(1).clamp(min=MIN_LOG_P)
        size = log_p.norm(dim=1, keepdim=True)
        cells = (torch.cat([size.log(), log_p / size @ weights], 1) / GRID).round().long()
        parts.append((torch.cat([cells, targets[:, None]], 1) * mixing).sum(1))  # modulo 2^64
    return torch.cat(parts)


def shared_rows(fit: tuple[Tensor, Tensor], judge: tuple[Tensor, Tensor]) -> int:
    """Count the judged rows that are rows of the fit; 0 if chance explains that number.

    Rounded probabilities of few classes are often equal. The share of rows of the fit that equal
    another row of the fit estimates how often. If all rows of the fit come k times, they count
    once.
    """
    distinct, counts = fingerprints(*fit).unique(return_counts=True)
    counts = counts // math.gcd(*counts.unique().tolist())
    n = int(counts.sum())
    judged = len(judge[1])

    chance = float(counts[counts > 1].sum()) / n
    noise = 4 * math.sqrt(chance * (1 - chance) * (1 / n + 1 / judged))
    shared = int(torch.isin(fingerprints(*judge), distinct).sum())
    return shared if shared / judged > chance + noise + MAX_SHARED else 0
