"""Mixup, and mixup inference in training (MIT-L): train on mixtures of examples."""

import math

import numpy
import torch
from scipy.special import betainc, betaincinv
from torch import Tensor, nn

from toosure.losses.one_column import class_pair
from toosure.objectives.contract import Batch, criterion_of
from toosure.objectives.seeded import SeededModule

MIN_CHANCE = 0.01  # that a pair of shares is far enough apart


class Mixup(SeededModule):
    """Train on mixtures of two examples and of their labels.

    Formula: x = lam x_a + (1 - lam) x_b, loss lam L(y_a) + (1 - lam) L(y_b), lam ~ Beta(alpha,
    alpha), one per batch, folded to max(lam, 1 - lam). `alpha=0` mixes nothing.
    Reference: Zhang et al. (2018), arXiv 1710.09412; Thulasidasan et al. (2019), arXiv 1905.11001.

    >>> objective, model = Mixup(alpha=0.4), nn.Linear(2, 3)
    >>> batch = (torch.zeros(4, 2), torch.tensor([0, 1, 2, 0]), torch.arange(4))
    >>> objective(model, objective.prepare(model, batch)).shape
    torch.Size([])
    """

    def __init__(self, loss: nn.Module | None = None, alpha: float = 1.0, seed: int = 0) -> None:
        super().__init__(seed)
        if not 0 <= alpha < math.inf:
            raise ValueError(f"alpha must not be negative, nor infinite; got {alpha}")
        self.loss = criterion_of(loss)
        self.alpha = alpha

    def prepare(self, model: nn.Module, batch: Batch) -> tuple[Tensor, ...]:
        """Draw the share and the partners, and mix."""
        x, labels, _ = batch
        share = self.beta(self.alpha) if self.alpha else torch.ones((), dtype=torch.float64)
        share = torch.maximum(share, 1 - share).to(x)
        partner = self.partners(labels)
        return mixed(x, x[partner], share), labels, labels[partner], share

    def forward(self, model: nn.Module, prepared: tuple[Tensor, ...]) -> Tensor:
        x, labels, others, share = prepared
        logits = model(x)
        own: Tensor = self.loss(*class_pair(self.loss, logits, labels))
        other: Tensor = self.loss(*class_pair(self.loss, logits, others))
        return share * own + (1 - share) * other


class MIT(SeededModule):
    """Pass two mixtures of the same examples, un-mix their logits, and train on those.

    Formula: o_a = ((1 - l2) o1 - (1 - l1) o2)/(l1 - l2), o_b = (l1 o2 - l2 o1)/(l1 - l2), loss
    (L(o_a, y_a) + L(o_b, y_b))/2; l1 >= 1/2 >= l2 are folded draws of Beta(alpha, alpha), drawn
    again until l1 - l2 >= gap, as logits grow like 1/(l1 - l2). Two passes per step (MIT-L).
    Reference: Wang et al. (2023), On the Pitfall of Mixup for Uncertainty Calibration, CVPR.

    >>> objective, model = MIT(), nn.Linear(2, 3)
    >>> batch = (torch.zeros(4, 2), torch.tensor([0, 1, 2, 0]), torch.arange(4))
    >>> objective(model, objective.prepare(model, batch)).shape
    torch.Size([])
    """

    def __init__(
        self, loss: nn.Module | None = None, alpha: float = 1.0, gap: float = 0.5, seed: int = 0
    ) -> None:
        super().__init__(seed)
        if not 0 < alpha < math.inf or not 0 < gap < 1:
            raise ValueError(f"need alpha > 0, finite, and 0 < gap < 1; got {alpha} and {gap}")
        if (chance := far_apart(alpha, gap)) < MIN_CHANCE:
            raise ValueError(
                f"shares of Beta({alpha:g}, {alpha:g}) are next to never {gap:g} apart (chance "
                f"{chance:.2g}), and would be drawn for ever: lower alpha or gap"
            )
        self.loss = criterion_of(loss)
        self.alpha = alpha
        self.gap = gap

    def prepare(self, model: nn.Module, batch: Batch) -> tuple[Tensor, ...]:
        """Draw both shares and the partners, and mix twice."""
        x, labels, _ = batch
        one, two = (share.to(x) for share in self.shares())
        partner = self.partners(labels)
        other = x[partner]
        first = mixed(x, other, one)
        second = mixed(x, other, two)
        return first, second, labels, labels[partner], one, two

    def shares(self) -> tuple[Tensor, Tensor]:
        """Draw a large and a small share, far enough apart."""
        while True:
            one = self.beta(self.alpha)
            two = self.beta(self.alpha)
            one = torch.maximum(one, 1 - one)
            two = torch.minimum(two, 1 - two)
            if one - two >= self.gap:
                return one, two

    def forward(self, model: nn.Module, prepared: tuple[Tensor, ...]) -> Tensor:
        first, second, labels, others, one, two = prepared
        own, other = unmixed(model(first), model(second), one, two)
        loss: Tensor = self.loss(*class_pair(self.loss, own, labels))
        loss = loss + self.loss(*class_pair(self.loss, other, others))
        return loss / 2


def far_apart(alpha: float, gap: float) -> float:
    """Return the chance that two folded draws of Beta(alpha, alpha) are `gap` or more apart.

    Formula: the mean over l2 of P(l1 >= l2 + gap) = 2 I_{1 - l2 - gap}(alpha, alpha), at most 1.

    >>> round(far_apart(1.0, 0.5), 3)
    0.5
    """
    quantiles = (numpy.arange(1000) + 0.5) / 2000  # of the lower half
    low = betaincinv(alpha, alpha, quantiles)
    return float((2 * betainc(alpha, alpha, (1 - low - gap).clip(0, 0.5))).mean())


def mixed(a: Tensor, b: Tensor, share: Tensor) -> Tensor:
    """Return share a + (1 - share) b, exactly a for a share of 1."""
    if not a.is_floating_point():
        raise ValueError(f"mixtures of inputs need floating-point numbers; got {a.dtype}")
    return share * a + (1 - share) * b


def unmixed(o1: Tensor, o2: Tensor, l1: Tensor, l2: Tensor) -> tuple[Tensor, Tensor]:
    """Return the two outputs of which o1 and o2 are mixtures with shares l1 and l2 of the first."""
    gap = l1 - l2
    return ((1 - l2) * o1 - (1 - l1) * o2) / gap, (l1 * o2 - l2 * o1) / gap
