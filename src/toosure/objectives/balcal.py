"""BalCAL: a learned, over-confident head and a fixed one, balanced after every epoch."""

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from toosure.objectives.contract import Batch, criterion_of
from toosure.objectives.network import features_and_logits, head_of
from toosure.objectives.seeded import SeededModule
from toosure.objectives.splits import splits_of
from toosure.processes import rows_of_all


class BalCAL(SeededModule):
    """Mix the logits of the learned head with those of a simplex head, by the training accuracy.

    Formula: loss lam L(z1) + (1 - lam) L(z2'), prediction softmax(lam z1 + (1 - lam) z2); z2 = M^T
    f with M a fixed simplex equiangular tight frame and f the features, adapted and of length 1;
    z2' scales column k by sqrt(B / (classes present) / count_k). After each epoch lam is 1 if
    delta acc(z1) > conf(z1), else such that the mean confidence of the mixture is delta acc.
    The adaptor here is a residual bottleneck on the pooled features (published: on their maps).
    At most `keep` examples of an epoch are used to find lam.
    Reference: Ni et al. (2025), Balancing Two Classifiers via a Simplex ETF Structure for Model
    Calibration, CVPR.

    >>> from toosure.models import mlp
    >>> objective, model = BalCAL(), mlp(inputs=4, classes=3, width=8)
    >>> objective.make_head(model)
    >>> batch = (torch.randn(4, 4), torch.tensor([0, 1, 2, 0]), torch.arange(4))
    >>> objective(model, objective.prepare(model, batch)).shape
    torch.Size([])
    """

    streams = True  # only how many training examples there are matters
    averaged = "predicts with a second head of its own, which is not averaged"
    balance: Tensor  # lam, the share of the learned head
    frame: Tensor  # M, (width, K)
    seen: Tensor  # logits of both heads in this epoch, (2, keep, K)
    seen_labels: Tensor  # (keep,)
    count: Tensor  # examples in this epoch

    def __init__(
        self,
        loss: nn.Module | None = None,
        start: float = 0.8,
        delta: float = 0.95,
        keep: int = 50_000,
        seed: int = 0,
    ) -> None:
        super().__init__(seed)
        if not 0 <= start <= 1 or not delta > 0 or keep < 1:
            raise ValueError(
                f"need 0 <= start <= 1, delta > 0 and keep >= 1; got {start}, {delta}, {keep}"
            )
        self.loss = criterion_of(loss)
        self.delta = delta
        self.keep = keep
        self.register_buffer("balance", torch.tensor(start))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.adaptor: Adaptor | None = None

    def setup(self, model: nn.Module, data: object) -> None:
        """Build the second head, and allocate an epoch's logits."""
        self.make_head(model, min(self.keep, splits_of(data).examples))

    def make_head(self, model: nn.Module, keep: int = 1) -> None:
        """Build the adaptor and the fixed frame for a network."""
        head = head_of(model)
        classes = head.out_features
        if classes == 1:
            raise ValueError(
                "balcal adds a fixed head with a direction for each class, which one logit per "
                "example has not: give the network two outputs"
            )
        device = head.weight.device
        width = max(head.in_features, classes)
        wide = torch.promote_types(head.weight.dtype, torch.float32)
        self.adaptor = Adaptor(head.in_features, width, self.generator).to(device, wide)

        self.register_buffer("frame", simplex_frame(width, classes, self.generator).to(device))
        self.register_buffer("seen", torch.zeros(2, keep, classes, device=device))
        labels = torch.zeros(keep, dtype=torch.long, device=device)
        self.register_buffer("seen_labels", labels)

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """Return the adaptor's, which join the network's optimizer."""
        return iter(()) if self.adaptor is None else self.adaptor.parameters(recurse)

    def logits_of_heads(self, model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of the learned and of the fixed head, (N, K) each."""
        if self.adaptor is None:
            raise ValueError("balcal needs a second head: call setup(model, data)")
        self.adaptor.train(model.training)
        features, learned = features_and_logits(model, x)
        return learned, self.adaptor(features) @ self.frame.to(features.dtype)

    def prepare(self, model: nn.Module, batch: Batch) -> tuple[Tensor, ...]:
        """Return the batch, and a tensor that is 1 until its logits have been stored."""
        x, labels, _ = batch
        return x, labels, torch.ones((), dtype=torch.long, device=x.device)

    def forward(self, model: nn.Module, prepared: tuple[Tensor, ...]) -> Tensor:
        x, labels, unseen = prepared
        learned, fixed = self.logits_of_heads(model, x)
        self.store_logits(learned, fixed, labels, unseen)

        scaled = fixed * column_scale(rows_of_all(labels), fixed.shape[1]).to(fixed.dtype)
        balance = self.balance.clone()  # epoch_end may change it before the pass back
        loss: Tensor = balance * self.loss(learned, labels)
        loss = loss + (1 - balance) * self.loss(scaled, labels)
        return loss

    @torch.no_grad()
    def store_logits(self, learned: Tensor, fixed: Tensor, labels: Tensor, unseen: Tensor) -> None:
        """Store the logits of this batch for the end of the epoch, once per step."""
        learned, fixed, labels = (rows_of_all(rows) for rows in (learned, fixed, labels))
        keep = self.seen.shape[1]
        slots = (self.count + torch.arange(len(labels), device=labels.device)) % keep
        new = torch.stack([learned, fixed]).to(self.seen)
        self.seen[:, slots] = torch.where(unseen > 0, new, self.seen[:, slots])
        self.seen_labels[slots] = torch.where(unseen > 0, labels, self.seen_labels[slots])

        self.count += unseen * len(labels)
        unseen.zero_()  # SAM's second pass is not stored

    def epoch_end(self, model: nn.Module) -> None:
        """Balance the two heads by the epoch's accuracy."""
        n = min(int(self.count), self.seen.shape[1])
        if n:
            learned, fixed = self.seen[:, :n]
            self.balance.fill_(balanced(learned, fixed, self.seen_labels[:n], self.delta))
        self.count.zero_()

    def predict(self, model: nn.Module, x: Tensor) -> Tensor:
        """Return the mixed logits."""
        learned, fixed = self.logits_of_heads(model, x)
        return self.balance * learned + (1 - self.balance) * fixed

    def report(self) -> dict[str, float]:
        """Return the share of the learned head."""
        return {"objective/balance": float(self.balance)}


class Adaptor(nn.Module):
    """Adapt features by a residual bottleneck, BatchNorm and ReLU, to vectors of length 1."""

    def __init__(self, inputs: int, width: int, generator: torch.Generator) -> None:
        super().__init__()
        narrow = max(1, width // 4)
        self.lift = nn.Identity() if inputs == width else nn.Linear(inputs, width)
        self.down = nn.Linear(width, narrow)
        self.up = nn.Linear(narrow, width)
        self.norm = nn.BatchNorm1d(width)
        for layer in (self.lift, self.down, self.up):
            if isinstance(layer, nn.Linear):
                nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
                nn.init.zeros_(layer.bias)

    def forward(self, features: Tensor) -> Tensor:
        x: Tensor = self.lift(features)
        x = x + self.up(self.down(x).relu())

        if self.training and len(x) == 1:  # one row has no variance: as in evaluation
            norm = self.norm
            x = F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias)
        else:
            x = self.norm(x)
        return F.normalize(x.relu(), dim=1)


def simplex_frame(size: int, classes: int, generator: torch.Generator) -> Tensor:
    """Return M = sqrt(K/(K-1)) U (I - 11^T/K), (size, K), U with random orthonormal columns.

    >>> frame = simplex_frame(5, 3, torch.Generator().manual_seed(0))
    >>> (frame.T @ frame).round(decimals=4)[0]
    tensor([ 1.0000, -0.5000, -0.5000])
    """
    noise = torch.randn(size, classes, generator=generator, dtype=torch.float64)
    basis: Tensor = torch.linalg.qr(noise).Q
    centre = torch.eye(classes, dtype=torch.float64) - 1 / classes
    return (math.sqrt(classes / max(1, classes - 1)) * basis @ centre).float()


def column_scale(labels: Tensor, classes: int) -> Tensor:
    """Return sqrt(B / (classes present) / count_k) per class, 1 for a class that is absent."""
    ones = torch.ones_like(labels, dtype=torch.float32)
    count = ones.new_zeros(classes).index_add_(0, labels, ones)
    share = len(labels) / (count > 0).sum()
    return torch.where(count > 0, (share / count.clamp(min=1)).sqrt(), 1.0)


@torch.no_grad()
def balanced(learned: Tensor, fixed: Tensor, labels: Tensor, delta: float) -> float:
    """Return the share of the learned head at which mean confidence is delta times accuracy."""

    def confidence(share: float) -> float:
        return float((share * learned + (1 - share) * fixed).softmax(1).amax(1).mean())

    target = delta * float((learned.argmax(1) == labels).double().mean())
    if target > confidence(1.0):
        return 1.0

    low = 0.0
    high = 1.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        if confidence(middle) > target:
            high = middle
        else:
            low = middle
    return (low + high) / 2
