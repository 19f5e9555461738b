"""The part of a certificate that one forward pass pays for: moments, ECE, and pointwise lemmas."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toosure.binary import is_one_column
from toosure.eval_mode import evaluating
from toosure.margins.exponential_moments import LogMoment
from toosure.margins.margins import check_classes, deciding_size
from toosure.margins.robust import check_chunk, device_of, dtype_of
from toosure.margins.statements import EPS64, Statement, exp, too_coarse
from toosure.metrics.binned import equal_width_edges
from toosure.metrics.inputs import as_pair, check_bins, check_finite

LEMMAS = {
    "B.2": "|correct - confidence| <= 1 - p_y",
    "B.3 (1)": "1 - p_y <= sum_j exp(z_j - z_y)",
    "B.3 (1) sum": "sum_j exp(z_j - z_y) <= (K-1) exp(-m)",
    "B.3 (2)": "exp(-m) / (1 + (K-1) exp(-m)) <= 1 - p_y",
    "B.3 (3)": "exp(-m) / K <= 1 - p_y where m >= 0",
    "B.4": "top eigenvalue of diag(p) - pp' <= 2 (1 - p_max)",
    "B.6": "top eigenvalue of diag(p) - pp' <= 2 (K-1) exp(-predicted m)",
}
# Right sides from here on are vacuous: 1 - p <= 1 and diag(p) - pp' <= 1/2 for every model.
CAPS = {"B.3 (1)": 1.0, "B.4": 0.5, "B.6": 0.5}


def log_logit_curvature(log_p: Tensor, log_rest: Tensor) -> Tensor:
    r"""Return the log of the top eigenvalue of diag(p) - p p^T, (N,), by its secular equation.

    With p_1 the largest probability, q = 1 - p_1 (`log_rest`), r_k = p_k / q and the eigenvalue
    written as q t, t is the root of (t - p_1) / (p_1 - q t) = sum_{k > 1} r_k^2 / (t - r_k) in
    [r_2, p_1 / q], where left minus right increases; t stays of order one however small q is.
    Geometric bisection up to t = 4 (t <= 2 is Lemma B.4); the end above the root is returned.
    """
    log_p = log_p.sort(1, descending=True).values  # (N, K)
    first = log_p[:, :1].exp()
    rest = (log_p[:, 1:] - log_rest.unsqueeze(1)).exp()
    q = log_rest.exp().unsqueeze(1)

    low = rest[:, :1]
    high = (first / q).clamp_max(4.0)
    for _ in range(40):
        middle = (low * high).sqrt()
        right = (rest.square() / (middle - rest)).sum(1, keepdim=True)
        above = (middle - first) / (first - q * middle) >= right
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    return high.squeeze(1).log() + log_rest


@dataclass
class WorstSample:
    """The sample at which log left - log right is largest, over all chunks."""

    excess: Tensor | None = None
    sides: Tensor | None = None  # (2,)
    vacuous: Tensor | None = None  # number of samples with a right side at or above the cap

    def update(self, left: Tensor, right: Tensor, log_cap: float) -> None:
        """Add the logarithms of both sides, (N,); a left side of -inf always holds."""
        excess = torch.where(left == -torch.inf, -torch.inf, left - right)
        worst = excess.argmax()
        sides = torch.stack([left[worst], right[worst]])
        vacuous = (right >= log_cap).sum()

        if self.excess is None or self.sides is None or self.vacuous is None:
            self.excess = excess[worst]
            self.sides = sides
            self.vacuous = vacuous
            return
        self.sides = torch.where(excess[worst] > self.excess, sides, self.sides)
        self.excess = torch.maximum(excess[worst], self.excess)
        self.vacuous = self.vacuous + vacuous


@dataclass
class CleanPass:
    """Stream chunks of logits; keep sums, worst samples, and the margins themselves.

    Everything is computed in float64 from the logits as given, with 1 - p as sigmoid(-m_1).
    """

    bins: int = 15
    true: LogMoment = field(default_factory=LogMoment)
    predicted: LogMoment = field(default_factory=LogMoment)
    worst: dict[str, WorstSample] = field(
        default_factory=lambda: {name: WorstSample() for name in LEMMAS}
    )
    true_margins: list[Tensor] = field(default_factory=list)
    predicted_margins: list[Tensor] = field(default_factory=list)
    gap_sums: Tensor | None = None  # (bins + 2,): one sum per bin, then of |gap| and of 1 - p_y
    largest: Tensor | None = None  # largest |logit| of a label or its best rival, for the rounding
    n: int = 0
    classes: int = 0

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add a chunk of logits, (N, K), and labels, (N,)."""
        if is_one_column(logits):
            raise ValueError("margins need at least two classes: wrap the model in TwoColumns")
        z, labels = as_pair(logits, labels)
        check_classes(z)
        z = z.double()
        predicted = z.argmax(1, keepdim=True)
        m, soft = both_margins(z, labels.unsqueeze(1))
        best, best_soft = both_margins(z, predicted)
        check_finite(soft)

        self.n += len(z)
        self.classes = z.shape[1]
        self.true.update(m)
        self.predicted.update(best)
        self.true_margins.append(m)
        self.predicted_margins.append(best)

        # The gap is correctness minus confidence: 1 - p where right, -p where wrong.
        correct = predicted.squeeze(1) == labels
        log_gap = torch.where(correct, F.logsigmoid(-best_soft), F.logsigmoid(best_soft))
        gap = torch.where(correct, torch.sigmoid(-best_soft), -torch.sigmoid(best_soft))
        self.bin(gap, torch.sigmoid(best_soft), torch.sigmoid(-soft))

        size = deciding_size(z, labels)
        self.largest = size if self.largest is None else torch.maximum(self.largest, size)
        curvature = log_logit_curvature(z.log_softmax(1), F.logsigmoid(-best_soft))
        self.compare(m, soft, best, best_soft, log_gap, curvature)

    def bin(self, gap: Tensor, confidence: Tensor, misconfidence: Tensor) -> None:
        """Add correctness minus confidence to right-closed bins of equal width."""
        index = torch.bucketize(confidence, equal_width_edges(self.bins, confidence)[1:-1])
        sums = torch.zeros(self.bins, dtype=torch.float64, device=gap.device)
        sums = sums.index_add(0, index, gap)
        added = torch.cat([sums, torch.stack([gap.abs().sum(), misconfidence.sum()])])
        self.gap_sums = added if self.gap_sums is None else self.gap_sums + added

    def compare(
        self,
        m: Tensor,
        soft: Tensor,
        best: Tensor,
        best_soft: Tensor,
        log_gap: Tensor,
        log_curvature: Tensor,
    ) -> None:
        """Update the worst sample of every pointwise lemma; both sides are logarithms."""
        log_others = math.log(self.classes - 1)
        log_k = math.log(self.classes)
        log_misconfidence = F.logsigmoid(-soft)
        log_doubt = F.logsigmoid(-best_soft)

        sides = {
            "B.2": (log_gap, log_misconfidence),
            "B.3 (1)": (log_misconfidence, -soft),
            "B.3 (1) sum": (-soft, log_others - m),
            "B.3 (2)": (-m + F.logsigmoid(m - log_others), log_misconfidence),
            "B.3 (3)": (torch.where(m >= 0, -m - log_k, -torch.inf), log_misconfidence),
            "B.4": (log_curvature, math.log(2) + log_doubt),
            "B.6": (log_curvature, math.log(2) + log_others - best),
        }
        for name, (left, right) in sides.items():
            self.worst[name].update(left, right, log_cap(name))

    @property
    def rounding(self) -> float:
        """The relative error allowed: float64's, times the terms summed and the largest logit."""
        assert self.largest is not None
        return EPS64 * (self.n + 8 * (1 + float(self.largest)))

    def sums(self) -> tuple[float, float, float]:
        """Return ECE, the mean |correct - confidence|, and the mean 1 - p_y."""
        assert self.gap_sums is not None
        ece = self.gap_sums[: self.bins].abs().sum() / self.n
        return float(ece), *(self.gap_sums[self.bins :] / self.n).tolist()

    def statement(self, name: str) -> Statement:
        """Return a pointwise lemma at the sample where it is closest to failing."""
        worst = self.worst[name]
        assert worst.sides is not None and worst.excess is not None and worst.vacuous is not None
        excess = float(worst.excess)
        vacuous = int(worst.vacuous)
        reason = f"closest of {self.n:,}"
        if vacuous:
            reason += f"; {vacuous:,} vacuous"

        logs = [min(value, log_cap(name)) for value in worst.sides.tolist()]
        left, right = (exp(value) for value in logs)
        if not math.isfinite(left + right):
            left, right = logs
            reason += "; sides shown as logarithms"

        # The sides are compared as logarithms: exp may underflow to 0 on both.
        allowed = max(self.rounding, 1e-10 if name in ("B.4", "B.6") else 0.0)
        holds: bool | None = excess <= allowed
        if holds and excess > 0 and allowed > 1:
            holds = None
            reason = too_coarse(allowed)
        return Statement(name, LEMMAS[name], left, right, vacuous == self.n, holds, reason)


def log_cap(name: str) -> float:
    """Return the logarithm from which on the right side of a lemma is vacuous."""
    return math.log(CAPS.get(name, math.inf))


def both_margins(z: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
    """Return the hard margin and the soft one (T = 1) of the class in `column`, (N, 1)."""
    own = z.gather(1, column).squeeze(1)
    others = z.scatter(1, column, -torch.inf)
    return own - others.amax(1), own - others.logsumexp(1)


@torch.no_grad()
def clean_pass(model: nn.Module, x: Tensor, y: Tensor, bins: int, chunk: int) -> CleanPass:
    """Run the model once over the data, `chunk` samples at a time."""
    check_bins(bins)
    check_chunk(chunk)
    device = device_of(model, x)
    dtype = dtype_of(model, x)

    results = CleanPass(bins)
    with evaluating(model):
        for inputs, labels in zip(x.split(chunk), y.split(chunk), strict=True):
            results.update(model(inputs.to(device, dtype)), labels.to(device))
    return results
