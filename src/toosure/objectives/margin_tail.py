"""The robust-margin tail: an objective on the exponential moment that bounds calibration error."""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from toosure.losses.one_column import class_pair
from toosure.margins.robust import Norm
from toosure.metrics.inputs import check_choice
from toosure.objectives.attack import linf_attack, margin_of
from toosure.objectives.contract import Batch, criterion_of, reduction_factor
from toosure.objectives.gradient_penalty import InputGradientPenalty
from toosure.processes import rows_of_all

FLOOR = 1e-12  # added under a root, which has no gradient at 0


class MarginTail(nn.Module):
    """Lighten the tail of small robust margins, mean exp(-m), and smooth the margin.

    Formula: L + tail log(1 + Q) + smooth mean ||grad_x m_T||_2^2, Q = mean phi(m_lo), m_lo = m_T -
    eps ||grad_x m_T||_dual (or m_T at an attacked input, `surrogate="pgd"`), m_T the soft margin
    (temperature 0: the true one), phi(m) = exp(-m), continued below -cap by its tangent. With T =
    1, ECE <= Q on the batch. Both weights grow linearly over the share `warm_up` of the run.
    Reference: ours; the moments are of Too Sharp, Too Sure, Sec. 4 (2026), arXiv 2604.20614.

    >>> model, objective = nn.Linear(2, 3), MarginTail()
    >>> batch = (torch.zeros(4, 2), torch.tensor([0, 1, 2, 0]), torch.arange(4))
    >>> objective(model, objective.prepare(model, batch)).shape
    torch.Size([])
    """

    capturable = True  # a CUDA graph may record `prepare` too
    taken: Tensor  # steps so far
    moment: Tensor  # log Q of the last batch

    def __init__(
        self,
        loss: nn.Module | None = None,
        tail: float = 0.1,
        smooth: float = 0.01,
        eps: float = 2 / 255,
        norm: Norm = "linf",
        temperature: float = 1.0,
        cap: float = 3.0,
        surrogate: Literal["linear", "pgd"] = "linear",
        attack_steps: int = 3,
        warm_up: float = 0.05,
        training_steps: int | None = None,
    ) -> None:
        super().__init__()
        check_choice("norm", norm, ("linf", "l2"))
        check_choice("surrogate", surrogate, ("linear", "pgd"))
        if surrogate == "pgd" and norm == "l2":
            raise ValueError("the attack takes sign steps: use norm=linf with surrogate=pgd")
        if min(tail, smooth, eps, temperature, warm_up) < 0:
            raise ValueError("tail, smooth, eps, temperature and warm_up must not be negative")
        if attack_steps < 1 or not cap >= 0:
            raise ValueError(f"need attack_steps >= 1 and cap >= 0; got {attack_steps} and {cap}")
        self.loss = criterion_of(loss)
        self.tail = tail
        self.smooth = smooth
        self.eps = eps
        self.norm = norm
        self.temperature = temperature
        self.cap = cap
        self.surrogate = surrogate
        self.attack_steps = attack_steps
        self.warm_up_steps = warm_up * (training_steps or 0)

        self.gradient_penalty = InputGradientPenalty()
        self.register_buffer("taken", torch.zeros(()))
        self.register_buffer("moment", torch.zeros(()))

    def prepare(self, model: nn.Module, batch: Batch, part: int = 0) -> tuple[Tensor, ...]:
        """Count the step, and craft the attack if there is one."""
        x, labels, _ = batch
        self.taken += part == 0
        if self.warm_up_steps:
            share = (self.taken / self.warm_up_steps).clamp(max=1)
        else:
            share = self.taken / self.taken  # 1, as a tensor

        if self.surrogate == "linear" or self.tail == 0:
            return x, labels, share
        step = 2.5 * self.eps / self.attack_steps
        return x, labels, share, linf_attack(model, x, labels, self.eps, step, self.attack_steps)

    def forward(self, model: nn.Module, prepared: tuple[Tensor, ...]) -> Tensor:
        x, labels, share, *attacked = prepared
        loss: Tensor
        if self.tail == 0 and self.smooth == 0:
            loss = self.loss(*class_pair(self.loss, model(x), labels))
            return loss

        # m_lo at the attacked input, if there is one.
        attacked_margins = [self.margins(model(other), labels) for other in attacked]

        def penalty_of(margins: Tensor, gradient: Tensor) -> Tensor:
            gradient = gradient.flatten(1)  # (N, D)
            if attacked_margins:
                low = attacked_margins[0]
            else:
                low = margins - self.eps * self.dual_norm(gradient)
            return self.tail_of(low) + self.smooth * gradient.square().sum() / len(x)

        if attacked_margins and self.smooth == 0:  # the input gradient is not needed
            logits = model(x)
            penalty = self.tail_of(attacked_margins[0])
        else:
            logits, penalty = self.gradient_penalty(
                model, x, lambda z: self.margins(z, labels), penalty_of
            )

        loss = self.loss(*class_pair(self.loss, logits, labels))
        return loss + reduction_factor(self.loss, len(x)) * share * penalty

    def tail_of(self, low: Tensor) -> Tensor:
        """Return tail log(1 + Q) of the margins m_lo, and store log Q for the report."""
        log_moment = log_tail(rows_of_all(low), self.cap)
        self.moment.copy_(log_moment.detach())
        return self.tail * F.softplus(log_moment)

    def margins(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return soft margins, (N,), in float32 or better."""
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return margin_of(logits, labels, self.temperature)

    def dual_norm(self, gradient: Tensor) -> Tensor:
        """Return the norm of each row dual to that of the ball, smooth at 0."""
        if self.norm == "linf":
            return (gradient.square() + FLOOR).sqrt().sum(1)
        return (gradient.square().sum(1) + FLOOR).sqrt()

    def report(self) -> dict[str, float]:
        """Return log Q of the last batch."""
        return {"objective/log_q": float(self.moment)}


def log_tail(margins: Tensor, cap: float) -> Tensor:
    r"""Return log mean phi(m), phi(m) = exp(-m), below -cap its tangent e^cap (1 - cap - m).

    >>> log_tail(torch.tensor([0.0, 0.0]), 3.0)
    tensor(0.)
    """
    beyond = (1 - cap - margins).clamp(min=1)  # 1 where the tangent is not used
    log_phi = torch.where(margins >= -cap, -margins.clamp(min=-cap), cap + beyond.log())
    return log_phi.logsumexp(0) - math.log(len(margins))
