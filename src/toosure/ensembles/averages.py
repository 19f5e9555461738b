"""Averages of the weights along training: EMA, SWA, and SWAG's Gaussian around the average.

An average gets the weights after every step (`update`) and yields the weights to predict with
(`draws`): one set, or several, and the probabilities are averaged.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from toosure.data.seeds import RunStream
from toosure.ensembles.noise import generator_for


class WeightAverage:
    """One set of averaged weights; `update` of a subclass weighs the weights."""

    def __init__(self) -> None:
        self.count = 0  # sets of weights taken in
        self.mean: list[Tensor] = []

    @property
    def ready(self) -> bool:
        """Whether there is an average yet."""
        return bool(self.mean)

    def draws(self, seed: int) -> Iterator[list[Tensor]]:
        """Yield the weights to predict with."""
        yield self.mean

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "mean": self.mean}

    def load_state_dict(self, state: dict[str, Any], like: Sequence[Tensor]) -> None:
        """Continue from a state; `like` are the weights, for their device."""
        self.count = state["count"]
        self.mean = on_device_of(like, state["mean"])


class EMA(WeightAverage):
    """Average the weights exponentially, w' = d w' + (1 - d) w after every step.

    Formula: d = min(decay, (1 + t) / (10 + t)), so that the start is forgotten at once.
    Reference: Polyak and Juditsky (1992), Acceleration of stochastic approximation by averaging;
    Tarvainen and Valpola (2017), arXiv 1703.01780.

    >>> average = EMA(decay=0.5)
    >>> for step, value in enumerate((1.0, 2.0, 4.0)):
    ...     average.update([torch.tensor([value])], step, steps=3, ends_epoch=False)
    >>> average.mean[0]
    tensor([3.4545])
    """

    def __init__(self, decay: float = 0.999) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"decay is a share in [0, 1); got {decay}")
        super().__init__()
        self.decay = decay

    @torch.no_grad()
    def update(self, weights: Sequence[Tensor], step: int, steps: int, ends_epoch: bool) -> None:
        """Take in the weights after a step, counted from 0, of `steps`."""
        self.count += 1
        if not self.mean:
            self.mean = [w.detach().clone() for w in weights]
            return
        decay = min(self.decay, self.count / (9 + self.count))
        torch._foreach_lerp_(self.mean, list(weights), 1 - decay)


class SWA(WeightAverage):
    """Average the weights that training passes through, one set per epoch, from `start` on.

    Formula: the mean of the iterates; `start` is a share of the steps. The last step counts too.
    Reference: Izmailov et al. (2018), Averaging Weights Leads to Wider Optima and Better
    Generalization, arXiv 1803.05407.
    """

    def __init__(self, start: float = 0.75) -> None:
        if not 0 <= start < 1:
            raise ValueError(f"start is a share of the steps in [0, 1); got {start}")
        super().__init__()
        self.start = start

    def due(self, step: int, steps: int, ends_epoch: bool) -> bool:
        """Whether the weights after this step are taken in."""
        return step + 1 >= self.start * steps and (ends_epoch or step + 1 == steps)

    @torch.no_grad()
    def update(self, weights: Sequence[Tensor], step: int, steps: int, ends_epoch: bool) -> None:
        """Take in the weights after a step, counted from 0, of `steps`."""
        if self.due(step, steps, ends_epoch):
            self.collect([w.detach() for w in weights])

    def collect(self, weights: list[Tensor]) -> None:
        """Add one set of weights to the average."""
        self.count += 1
        if not self.mean:
            self.mean = [w.clone() for w in weights]
        else:
            torch._foreach_lerp_(self.mean, weights, 1 / self.count)


class SWAG(SWA):
    """Draw `samples` networks from a Gaussian around SWA's average, and average their predictions.

    Formula: mean + diag^{1/2} z1 / sqrt(2) + D z2 / sqrt(2 (K - 1)), diag the variance of the
    iterates, D the deviations of the last K <= `rank` of them from the running mean, z standard
    normal. BatchNorm statistics are computed again for every sample.
    Reference: Maddox et al. (2019), A Simple Baseline for Bayesian Uncertainty in Deep Learning,
    arXiv 1902.02476.
    """

    def __init__(self, rank: int = 20, samples: int = 30, start: float = 0.75) -> None:
        super().__init__(start)
        if rank < 1 or samples < 1:
            raise ValueError(f"rank and samples must be at least 1; got {rank}, {samples}")
        self.rank = rank
        self.samples = samples
        self.variance: list[Tensor] = []  # of each weight over the iterates: the diagonal part
        self.deviations: list[list[Tensor]] = []  # of the last iterates, oldest first

    def collect(self, weights: list[Tensor]) -> None:
        """Add an iterate to mean, variance and the last deviations."""
        before = self.mean and list(torch._foreach_sub(weights, self.mean))
        super().collect(weights)
        if not before:
            self.variance = [torch.zeros_like(w) for w in weights]
        else:
            # Welford's update: a mean of squares less a square cancels in float32.
            torch._foreach_addcmul_(self.variance, before, before, 1 / self.count)
            torch._foreach_mul_(self.variance, 1 - 1 / self.count)
        self.deviations.append(list(torch._foreach_sub(weights, self.mean)))
        self.deviations = self.deviations[-self.rank :]

    @torch.no_grad()
    def draws(self, seed: int) -> Iterator[list[Tensor]]:
        """Yield the weights of each sample."""
        for sample in range(self.samples):
            generator = generator_for(self.mean[0].device, seed, RunStream.WEIGHT_SAMPLES, sample)
            yield self.sample(generator)

    def sample(self, generator: torch.Generator) -> list[Tensor]:
        """Draw one set of weights."""
        kept = len(self.deviations)
        weights = []
        for mean, variance in zip(self.mean, self.variance, strict=True):
            noise = torch.randn(mean.shape, generator=generator, device=mean.device).to(mean)
            weights.append(mean + variance.sqrt() * noise / math.sqrt(2))

        if kept > 1:  # a single deviation gives no covariance
            factors = torch.randn(kept, generator=generator, device=self.mean[0].device).tolist()
            scale = 1 / math.sqrt(2 * (kept - 1))
            for factor, deviation in zip(factors, self.deviations, strict=True):
                torch._foreach_add_(weights, deviation, alpha=factor * scale)
        return weights

    def state_dict(self) -> dict[str, Any]:
        more = {"variance": self.variance, "deviations": self.deviations}
        return {**super().state_dict(), **more}

    def load_state_dict(self, state: dict[str, Any], like: Sequence[Tensor]) -> None:
        super().load_state_dict(state, like)
        self.variance = on_device_of(like, state["variance"])
        self.deviations = [on_device_of(like, each) for each in state["deviations"]]


def on_device_of(like: Sequence[Tensor], tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors on the devices of others; none if there are none."""
    return [t.to(w.device) for t, w in zip(tensors, like, strict=bool(tensors))]


# To add an average: write its class and list it here by its name on the command line.
AVERAGES: dict[str, type[EMA] | type[SWA]] = {"ema": EMA, "swa": SWA, "swag": SWAG}
