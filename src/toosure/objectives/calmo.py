"""CalMO: a loss, agreement with an attacked copy, and a margin with a small input gradient."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from toosure.losses.one_column import class_pair
from toosure.metrics.inputs import check_choice
from toosure.objectives.attack import linf_attack, margin_of
from toosure.objectives.contract import Batch, criterion_of, reduction_factor
from toosure.objectives.gradient_penalty import InputGradientPenalty

Space = Literal["standardised", "pixels"]


class CalMO(nn.Module):
    """Add terms for robust predictions and smooth margins to the loss.

    Formula: L + robust KL(p(x) || p(x_adv)) + smooth mean ||grad_x m(x, y)||_2^2, m the true
    margin, x_adv from `attack_steps` sign steps of size `step` in the linf ball of radius `eps`
    (three of 2/255 never reach 8/255: as published). The attack is crafted once per step in eval
    mode and reused at SAM's perturbed point. `space` says where eps, step and the gradient live:
    in the inputs as the network sees them, or in pixels of [0, 1].
    Reference: Too Sharp, Too Sure, version 1 (2026), arXiv 2604.20614.

    >>> model, objective = nn.Linear(2, 3), CalMO()
    >>> batch = (torch.zeros(4, 2), torch.tensor([0, 1, 2, 0]), torch.arange(4))
    >>> objective(model, objective.prepare(model, batch)).shape
    torch.Size([])
    """

    capturable = True  # a CUDA graph may record `prepare` too
    streams = True  # no training example is read before its turn
    scale: Tensor  # of one pixel in the network's inputs

    def __init__(
        self,
        loss: nn.Module | None = None,
        robust: float = 0.5,
        smooth: float = 0.01,
        eps: float = 8 / 255,
        step: float = 2 / 255,
        attack_steps: int = 3,
        space: Space = "standardised",
    ) -> None:
        super().__init__()
        check_choice("space", space, ("standardised", "pixels"))
        if min(robust, smooth, eps, step, attack_steps) < 0:
            raise ValueError("robust, smooth, eps, step and attack_steps must not be negative")
        self.loss = criterion_of(loss)
        self.robust = robust
        self.smooth = smooth
        self.eps = eps
        self.step = step
        self.attack_steps = attack_steps
        self.space = space

        self.gradient_penalty = InputGradientPenalty()
        self.register_buffer("scale", torch.ones(()), persistent=False)
        self.measured = space == "standardised"  # whether `scale` is known

    def setup(self, model: nn.Module, data: object) -> None:
        """Learn the size of a pixel from the data."""
        if self.space == "pixels":
            if not hasattr(data, "std"):
                raise ValueError(
                    "space=pixels asks for data.std, by which pixels were divided; got "
                    f"{type(data).__name__}"
                )
            self.scale = 1 / data.std.to(self.scale)
            self.measured = True

    def prepare(self, model: nn.Module, batch: Batch) -> tuple[Tensor, ...]:
        """Craft the attack."""
        x, labels, _ = batch
        if not self.measured:
            raise ValueError("space=pixels needs the size of a pixel: call setup(model, data)")
        if self.robust == 0:
            return x, labels

        radius: float | Tensor = self.eps
        step: float | Tensor = self.step
        if self.space == "pixels":
            radius = radius * self.scale
            step = step * self.scale
        return x, labels, linf_attack(model, x, labels, radius, step, self.attack_steps)

    def forward(self, model: nn.Module, prepared: tuple[Tensor, ...]) -> Tensor:
        x, labels, *attacked = prepared
        outputs, roughness = self.logits_and_roughness(model, x, labels)
        logits, classes = class_pair(self.loss, outputs, labels)
        penalty = self.smooth * roughness
        for other in attacked:  # one input, or none where robust is 0
            penalty = penalty + self.robust * divergence(
                logits, class_pair(None, model(other), labels)[0]
            )

        loss: Tensor = self.loss(logits, classes)
        return loss + reduction_factor(self.loss, len(x)) * penalty

    def logits_and_roughness(
        self, model: nn.Module, x: Tensor, labels: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the logits and mean ||grad_x m||^2."""
        if self.smooth == 0:
            return model(x), x.new_zeros(())

        def roughness(_: Tensor, gradient: Tensor) -> Tensor:
            if self.space == "pixels":
                gradient = gradient * self.scale
            return gradient.square().sum() / len(x)

        return self.gradient_penalty(model, x, lambda logits: margin_of(logits, labels), roughness)


def divergence(logits: Tensor, other: Tensor) -> Tensor:
    """Return the mean KL(softmax(logits) || softmax(other)), with gradients through both."""
    if logits.dtype != torch.float64:
        logits = logits.float()
        other = other.float()
    p = logits.log_softmax(1)
    q = other.log_softmax(1)
    return F.kl_div(q, p, reduction="batchmean", log_target=True)
