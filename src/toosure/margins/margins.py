"""Margins, the distance of logits from the decision border: true, predicted, soft, summarised."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from toosure.binary import is_one_column
from toosure.metrics.inputs import as_logits, as_pair, at_least_float32, check_finite

# Numbers in any form that torch.as_tensor takes; the shape is checked, not typed.
ArrayLike = Tensor | np.ndarray | Sequence[float] | Sequence[Sequence[float]]

QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 1.0)


def true_margin(logits: ArrayLike, labels: ArrayLike) -> Tensor:
    r"""Return m = z_y - max_{j != y} z_j of each row, shape (N,): positive where it is right.

    Reference: Too Sharp, Too Sure, Sec. 4 (2026), arXiv 2604.20614.

    >>> true_margin(torch.tensor([[2.0, 0.5, -1.0], [0.2, 1.0, 0.1]]), torch.tensor([0, 2]))
    tensor([ 1.5000, -0.9000])
    """
    own, others = split_classes(logits, labels)
    return check_finite(own - others.amax(1))


def margin_rows(logits: Tensor, labels: Tensor) -> Tensor:
    """Return `true_margin` of inputs that are checked already, without waiting for the device."""
    column = labels.unsqueeze(1)
    others = logits.scatter(1, column, -torch.inf)
    return logits.gather(1, column).squeeze(1) - others.amax(1)


def deciding_size(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the largest |logit| of a label or of its best rival, which sets a margin's rounding.

    A class masked by -1e30 takes no part in any margin.
    """
    column = labels.unsqueeze(1)
    own = logits.gather(1, column)
    rivals = logits.scatter(1, column, -torch.inf)
    return torch.cat([own.squeeze(1), rivals.amax(1)]).abs().amax()


def predicted_margin(logits: ArrayLike) -> Tensor:
    r"""Return the largest logit minus the second largest, shape (N,), whether right or wrong.

    Reference: Too Sharp, Too Sure, Remark B.6 (2026), arXiv 2604.20614.

    >>> predicted_margin(torch.tensor([[2.0, 0.5, -1.0], [0.2, 1.0, 0.1]]))
    tensor([1.5000, 0.8000])
    """
    logits = at_least_float32(as_logits(logits))
    check_classes(logits)
    top = logits.topk(2, 1).values  # (N, 2)
    return check_finite(top[:, 0] - top[:, 1])


def soft_margin(logits: ArrayLike, labels: ArrayLike, temperature: float = 1.0) -> Tensor:
    r"""Return m_T = z_y - T log sum_{j != y} exp(z_j / T), a smooth lower bound of the margin.

    m - T log(K - 1) <= m_T <= m, and 1 - p_y = sigmoid(-m_1) exactly and without cancellation.
    Reference: Too Sharp, Too Sure, Lemma B.3 (2026), arXiv 2604.20614.

    >>> logits, labels = torch.tensor([[0.4, 0.6, -0.65]]).double(), torch.tensor([0])
    >>> soft_margin(logits, labels), torch.sigmoid(-soft_margin(logits, labels))
    (tensor([-0.4519], dtype=torch.float64), tensor([0.6111], dtype=torch.float64))
    """
    if not temperature > 0:
        raise ValueError(f"temperature must be positive; got {temperature}")
    own, others = split_classes(logits, labels)
    return check_finite(own - temperature * (others / temperature).logsumexp(1))


def split_classes(logits: ArrayLike, labels: ArrayLike) -> tuple[Tensor, Tensor]:
    """Return the label's logit, (N,), and all logits with the label's at -inf, (N, K)."""
    if is_one_column(logits):
        raise ValueError("margins need at least two classes: wrap the model in TwoColumns")
    logits, labels = as_pair(logits, labels)
    logits = at_least_float32(logits)
    check_classes(logits)

    column = labels.unsqueeze(1)
    return logits.gather(1, column).squeeze(1), logits.scatter(1, column, -torch.inf)


def check_classes(logits: Tensor) -> None:
    """Raise unless there are two classes: a margin is a difference between two."""
    if logits.shape[1] < 2:
        raise ValueError(f"a margin needs at least two classes; got logits {tuple(logits.shape)}")


@dataclass(frozen=True)
class MarginSummary:
    """Hold the quantiles of a set of margins, and how much its smallest ones weigh."""

    n: int
    mean: float
    quantiles: dict[float, float]
    nonpositive: int  # how many margins are <= 0
    heaviest: float  # share of sum exp(-m) that the smallest one per cent of margins carries


def summarise(margins: ArrayLike, quantiles: Sequence[float] = QUANTILES) -> MarginSummary:
    """Summarise margins of shape (N,): quantiles, the number that is not positive, and the tail.

    >>> summary = summarise(torch.tensor([1.5, -0.9, 3.0, -0.2]))
    >>> summary.nonpositive, summary.quantiles[0.5]
    (2, 0.64999...)
    """
    margins = check_finite(torch.as_tensor(margins), "margins").detach().double().flatten()
    if len(margins) == 0:
        raise ValueError("margins are empty: there is nothing to summarise")

    # Linear interpolation, as torch.quantile, which stops at 2^24 values.
    ordered = margins.sort().values
    shares = torch.tensor(tuple(quantiles), dtype=torch.float64, device=margins.device)
    positions = shares * (len(ordered) - 1)
    below = ordered[positions.floor().long()]
    above = ordered[positions.ceil().long()]
    values = below + (above - below) * positions.frac()

    smallest = ordered[: max(1, round(0.01 * len(ordered)))]
    heaviest = ((-smallest).logsumexp(0) - (-ordered).logsumexp(0)).exp()

    return MarginSummary(
        n=len(margins),
        mean=float(margins.mean()),
        quantiles=dict(zip(quantiles, values.tolist(), strict=True)),
        nonpositive=int((margins <= 0).sum()),
        heaviest=float(heaviest),
    )
