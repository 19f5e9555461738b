"""CCAT: half of a batch is attacked, and a longer shift of the input gives a flatter label."""

import torch
from torch import Tensor, nn

from toosure.eval_mode import evaluating
from toosure.losses.one_column import class_pair
from toosure.losses.smoothing import LabelSmoothingLoss
from toosure.margins.attacks import rows_like
from toosure.metrics.inputs import at_least_float32
from toosure.objectives.contract import Batch, criterion_of, reduction_factor
from toosure.objectives.seeded import SeededModule


class CCAT(SeededModule):
    """Train on attacked examples with labels that fade to uniform at the border of the ball.

    Formula: (1 - share) L(clean part) + share CE(attacked part, lam e_y + (1 - lam)/K), lam = (1 -
    min(1, ||d||_inf / eps))^power. The attack raises the largest wrong probability by
    `attack_steps` sign steps of size `step` with momentum 0.9 that are undone and shortened by 1.5
    where they do not help, from a random start, in eval mode: as many passes per training step.
    eps is in the space of the inputs.
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
        self.eps = eps
        self.power = power
        self.share = share
        self.step = step
        self.attack_steps = attack_steps

    def prepare(self, model: nn.Module, batch: Batch) -> tuple[Tensor, ...]:
        """Attack the last part of the batch."""
        x, labels, _ = batch
        clean = len(x) - int(self.share * len(x))
        if clean == len(x):
            return x, labels

        target = x[clean:]
        noise = torch.rand(target.shape, generator=self.generator).to(x) * 2 - 1
        start = self.eps * noise if self.eps else torch.zeros_like(target)
        shift = self.attack(model, target, labels[clean:], start)
        inputs = torch.cat([x[:clean], target + shift])
        return inputs, labels, transition(shift, self.eps, self.power)

    def attack(self, model: nn.Module, x: Tensor, labels: Tensor, shift: Tensor) -> Tensor:
        """Return the shift of each example that made a wrong class likeliest."""
        best = torch.full_like(x.flatten(1)[:, 0], -torch.inf)  # (N,)
        best_shift = shift
        rate = torch.full_like(best, self.step)
        momentum = torch.zeros_like(x)

        with evaluating(model):
            for _ in range(self.attack_steps + 1):
                wrong, gradient = wrong_confidence(model, x + shift, labels)
                better = wrong > best
                best = torch.where(better, wrong, best)
                best_shift = torch.where(rows_like(better, x), shift, best_shift)

                # A step that did not help is undone, and the next one is shorter.
                rate = torch.where(better, rate, rate / 1.5)
                momentum = 0.9 * momentum + 0.1 * gradient.sign()
                shift = (best_shift + rows_like(rate, x) * momentum).clamp(-self.eps, self.eps)
        return best_shift

    def forward(self, model: nn.Module, prepared: tuple[Tensor, ...]) -> Tensor:
        x, labels, *label_shares = prepared
        logits, labels = class_pair(self.loss, model(x), labels)
        loss: Tensor
        if not label_shares:
            loss = self.loss(logits, labels)
            return loss

        (label_share,) = label_shares  # lam of each attacked example
        clean = len(x) - len(label_share)
        attacked: Tensor = LabelSmoothingLoss(1 - label_share)(logits[clean:], labels[clean:])
        factor = reduction_factor(self.loss, len(x))
        if clean == 0:
            return factor * attacked

        loss = self.loss(logits[:clean], labels[:clean])
        plain = loss / reduction_factor(self.loss, clean)
        return factor * ((1 - self.share) * plain + self.share * attacked)


def transition(shift: Tensor, eps: float, power: float) -> Tensor:
    """Return how much of each label is left, lam, (N,), by the length of its shift.

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
        logits, labels = class_pair(None, at_least_float32(model(x)), labels)
        log_probs = logits.log_softmax(1)
        wrong = log_probs.scatter(1, labels[:, None], -torch.inf).amax(1)
        (gradient,) = torch.autograd.grad(wrong.sum(), x)  # the log has the same direction
    return wrong.detach().to(x), gradient
