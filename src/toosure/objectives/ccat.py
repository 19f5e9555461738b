"""CCAT: half a batch is attacked, and the further the attack went, the flatter its label."""

import torch
from torch import Tensor, nn

from toosure.losses.smoothing import LabelSmoothingLoss
from toosure.margins.robust import evaluating
from toosure.metrics.inputs import at_least_float32
from toosure.objectives.contract import Batch, criterion_of, terms
from toosure.objectives.drawing import Drawing


class CCAT(Drawing):
    """Train on attacked examples with labels that fade to uniform at the border of the ball.

    Formula: (1 - share) L(clean part) + share CE(attacked part, lam e_y + (1 - lam)/K), lam = (1 -
    min(1, ||d||_inf / eps))^power. The attack raises the largest wrong probability by `steps` sign
    steps with momentum 0.9 that are undone and shortened by 1.5 where they do not help, from a
    random start, in eval mode: `attack_steps` passes a step. eps is in the space of the inputs.
    Reference: Stutz et al. (2020), Confidence-Calibrated Adversarial Training, arXiv 1910.06259.

    >>> objective, model = CCAT(attack_steps=2), nn.Linear(2, 3)
    >>> batch = (torch.zeros(4, 2), torch.tensor([0, 1, 2, 0]), torch.arange(4))
    >>> objective(model, objective.prepare(model, batch)).shape
    torch.Size([])
    """

    def __init__(
        self,
        loss: nn.Module | None = None,
        eps: float = 0.03,
        power: float = 10.0,
        share: float = 0.5,
        step: float = 0.005,
        attack_steps: int = 40,
        seed: int = 0,
    ) -> None:
        super().__init__(seed)
        if not 0 <= share <= 1 or min(eps, power, step, attack_steps) < 0:
            raise ValueError(
                "need 0 <= share <= 1 and eps, power, step, attack_steps >= 0; got "
                f"{share}, {eps}, {power}, {step}, {attack_steps}"
            )
        self.loss = criterion_of(loss)
        self.eps, self.power, self.share = eps, power, share
        self.step, self.attack_steps = step, attack_steps

    def prepare(self, model: nn.Module, batch: Batch) -> tuple[Tensor, ...]:
        """Attack the last part of the batch."""
        x, labels, _ = batch
        clean = len(x) - int(self.share * len(x))
        if clean == len(x):
            return x, labels
        target, y = x[clean:], labels[clean:]
        noise = torch.rand(target.shape, generator=self.generator).to(x) * 2 - 1
        start = self.eps * noise if self.eps else torch.zeros_like(target)
        shift = self.attack(model, target, y, start)
        both = torch.cat([x[:clean], target + shift])
        return both, labels, transition(shift, self.eps, self.power)

    def attack(self, model: nn.Module, x: Tensor, labels: Tensor, shift: Tensor) -> Tensor:
        """Return the shift of each example that made a wrong class likeliest."""
        best, best_shift = torch.full_like(x.flatten(1)[:, 0], -torch.inf), shift
        rate, speed = torch.full_like(best, self.step), torch.zeros_like(x)
        with evaluating(model):
            for _ in range(self.attack_steps + 1):
                wrong, gradient = wrong_confidence(model, x + shift, labels)
                better = wrong > best
                best = torch.where(better, wrong, best)
                rate = torch.where(better, rate, rate / 1.5)
                best_shift = torch.where(like(better, x), shift, best_shift)
                speed = 0.9 * speed + 0.1 * gradient.sign()
                shift = (best_shift + like(rate, x) * speed).clamp(-self.eps, self.eps)
        return best_shift

    def forward(self, model: nn.Module, prepared: tuple[Tensor, ...]) -> Tensor:
        x, labels, *fading = prepared
        logits = model(x)
        if not fading:
            return self.loss(logits, labels)
        clean = len(x) - len(fading[0])
        faded = LabelSmoothingLoss(1 - fading[0])(logits[clean:], labels[clean:])
        every = terms(self.loss, len(x))
        if clean == 0:
            return every * faded
        plain = self.loss(logits[:clean], labels[:clean]) / terms(self.loss, clean)
        return every * ((1 - self.share) * plain + self.share * faded)


def transition(shift: Tensor, eps: float, power: float) -> Tensor:
    """Return how much of each label is left, (N,), by the length of its shift.

    >>> round(transition(torch.tensor([[0.5]]), 1.0, 10.0).item(), 8)
    0.00097656
    """
    length = shift.flatten(1).abs().amax(1)
    if eps == 0:
        return torch.ones_like(length)
    return (1 - (length / eps).clamp(max=1)) ** power


def wrong_confidence(model: nn.Module, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest probability of a wrong class, (N,), and its gradient by the input."""
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        log_probs = at_least_float32(model(x)).log_softmax(1)
        wrong = log_probs.scatter(1, labels[:, None], -torch.inf).amax(1)
        (gradient,) = torch.autograd.grad(wrong.sum(), x)  # the log has the same direction
    return wrong.detach().to(x), gradient


def like(values: Tensor, other: Tensor) -> Tensor:
    """Return (N,) values shaped to broadcast against (N, ...)."""
    return values.view(-1, *[1] * (other.ndim - 1))
