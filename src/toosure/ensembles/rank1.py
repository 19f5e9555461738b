"""Rank-1 Bayesian networks: BatchEnsemble with distributions over the fast weights."""

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from toosure.data.seeds import RunStream
from toosure.ensembles.batch_ensemble import (
    MemberLayer,
    check_members,
    initial,
    logits_of_members,
    member_layers,
    repeated,
    rows_per_member,
)
from toosure.ensembles.bayesian import BayesianMixture
from toosure.ensembles.convert import (
    Weighted,
    channels_of,
    check_replaceable,
    per_channel,
    replace_layers,
    weighted_layers,
)
from toosure.ensembles.divergences import cauchy_kl, gaussian_kl, softplus_inverse
from toosure.ensembles.mixture import log_mean_probability
from toosure.ensembles.noise import (
    Noise,
    draw_noise,
    generator_for,
    noise_in,
    noisy_layers,
)
from toosure.metrics.inputs import check_positive
from toosure.objectives.contract import Batch, reduction_factor
from toosure.processes.wrappers import unwrapped

Family = Literal["gaussian", "cauchy"]
CLIP = 10.0  # the largest size of a drawn factor


class Rank1(BayesianMixture):
    """Draw the factors r and s of BatchEnsemble from distributions, one draw per example.

    Formula: W_m = W o (s r^T), r and s of member m from q = N(mu, sigma^2) per element, or from a
    Cauchy distribution; loss NLL + beta_t KL(q || prior) / n with a prior of mean 1 and scale
    `prior`. mu starts from random signs and sigma from `sigma`. W is one point with weight decay;
    r and s have none. A prediction averages `samples` draws of each member; sharpness is that of
    the means. Published Cauchy results use samples=4.
    Reference: Dusenberry et al. (2020), Efficient and Scalable Bayesian Neural Nets with Rank-1
    Factors, arXiv 2005.07186.

    >>> from toosure.models import mlp
    >>> model, objective = mlp(4, 3, width=8), Rank1(members=2)
    >>> x, y = torch.randn(6, 4), torch.arange(6) % 3
    >>> objective.setup(model, (x, y))
    >>> objective.member_logits(model, x).shape
    torch.Size([2, 6, 3])
    """

    def __init__(
        self,
        loss: nn.Module | None = None,
        members: int = 4,
        samples: int = 1,
        family: Family = "gaussian",
        prior: float = 0.1,
        sigma: float = 0.0316,
        anneal: float = 0.8,
        seed: int = 0,
        training_steps: int | None = None,
    ) -> None:
        super().__init__(loss, prior, anneal, seed, training_steps)
        check_members(members)
        check_positive("sigma", sigma)
        if samples < 1:
            raise ValueError(f"samples must be at least 1; got {samples}")
        if family not in ("gaussian", "cauchy"):
            raise ValueError(f"family must be gaussian or cauchy; got {family!r}")

        self.members = members
        self.samples = samples
        self.family = family
        self.sigma = sigma
        self.fast: list[nn.Parameter] = []

    def convert(self, model: nn.Module, example: Tensor) -> None:
        """Give every convolution and linear layer factors with distributions."""
        weighted_layers(model)  # raises if there are none
        check_replaceable(model, nn.Conv2d, nn.Linear)
        generator = torch.Generator().manual_seed(self.seed)

        def make(name: str, layer: nn.Module) -> nn.Module | None:
            if not isinstance(layer, Weighted):
                return None
            read, given = (initial(self.members, n, "sign", generator) for n in channels_of(layer))
            return RandomMemberLayer(layer, read, given, self.sigma, self.family)

        replace_layers(model, make)
        self.fast = [p for layer in random_layers(model) for p in layer.distributions()]

    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        """Yield means and deviations of the factors as a group without decay."""
        yield {"params": self.fast, "weight_decay": 0.0}

    def divergence(self, model: nn.Module) -> Tensor:
        """Return KL(q || prior), summed over the factors of all members."""
        kl = gaussian_kl if self.family == "gaussian" else cauchy_kl
        pairs = [
            pair
            for layer in random_layers(model)
            for pair in ((layer.read, layer.read_rho), (layer.given, layer.given_rho))
        ]
        return torch.stack([kl(mean, softplus(rho), 1.0, self.prior) for mean, rho in pairs]).sum()

    def prepare(self, model: nn.Module, batch: Batch, part: int = 0) -> tuple[Tensor, ...]:
        """Repeat the batch for every member, and draw factors for each row."""
        self.count_step(model, part)
        x, labels, _ = batch
        generator = generator_for(
            x.device, self.seed, RunStream.ENSEMBLE_TRAINING, self.taken, part
        )
        rows = self.members * len(x)
        noise = draw_noise(noisy_layers(unwrapped(model)), rows, generator)
        repeated_labels = repeated(labels, self.members)
        return repeated(x, self.members), repeated_labels, self.scale_tensor(x), *noise

    def forward(self, model: nn.Module, prepared: tuple[Tensor, ...]) -> Tensor:
        x, labels, scale, *noise = prepared
        network = unwrapped(model)
        with noise_in(noisy_layers(network), noise):
            loss = self.loss_of(network(x), labels)
        loss = loss / reduction_factor(self.loss, self.members)  # a sum counts every member's rows
        return loss + self.penalty(network, scale, len(labels) // self.members)

    def member_logits(self, model: nn.Module, x: Tensor) -> Tensor:
        """Return the logits of each draw of each member, (samples * M, N, C)."""
        layers = noisy_layers(model)
        rows = self.members * len(x)
        logits = []
        for sample in range(self.samples):
            generator = generator_for(
                x.device, self.seed, RunStream.ENSEMBLE_PREDICTION, self.taken, sample
            )
            with noise_in(layers, draw_noise(layers, rows, generator)):
                logits.append(logits_of_members(model, x, self.members))
        return torch.cat(logits)

    def mean_predict(self, model: nn.Module, x: Tensor) -> Tensor:
        """Return the prediction with all factors at their means, on which curvature is measured."""
        return log_mean_probability(logits_of_members(unwrapped(model), x, self.members))


class RandomMemberLayer(MemberLayer):
    """A layer with fast weights that are drawn for each row; without noise, their means."""

    def __init__(
        self, layer: Weighted, read: Tensor, given: Tensor, sigma: float, family: Family
    ) -> None:
        super().__init__(layer, read, given)
        start = softplus_inverse(sigma)
        self.read_rho = nn.Parameter(torch.full_like(self.read, start))
        self.given_rho = nn.Parameter(torch.full_like(self.given, start))
        self.family = family
        self.noise: Noise | None = None

    def distributions(self) -> list[nn.Parameter]:
        """Return means and deviations of both factors; the bias is a single number."""
        return [self.read, self.given, self.read_rho, self.given_rho]

    def forward(self, x: Tensor) -> Tensor:
        if self.noise is None:
            return super().forward(x)

        each = rows_per_member(len(x), len(self.read))
        read_noise, given_noise = self.noise
        y: Tensor = self.layer(x * self.drawn(self.read, self.read_rho, read_noise, x))
        y = y * self.drawn(self.given, self.given_rho, given_noise, y)
        return y if self.bias is None else y + self.factor(self.bias, each, y)

    def drawn(self, mean: Tensor, rho: Tensor, noise: Tensor, rows: Tensor) -> Tensor:
        """Return the factor of each row: its member's mean and deviation, and its own noise."""
        each = len(noise) // len(mean)
        std = softplus(rho)
        factors = mean.repeat_interleave(each, 0) + std.repeat_interleave(each, 0) * noise
        return per_channel(self.layer, factors.clamp(-CLIP, CLIP), rows)

    def draw(self, rows: int, generator: torch.Generator) -> Noise:
        """Draw standard noise for both factors of every row."""
        return tuple(
            self.standard((rows, values.shape[1]), generator) for values in (self.read, self.given)
        )

    def standard(self, shape: tuple[int, int], generator: torch.Generator) -> Tensor:
        noise = torch.empty(shape, device=generator.device, dtype=self.read.dtype)
        if self.family == "cauchy":
            return noise.cauchy_(generator=generator)
        return noise.normal_(generator=generator)


def random_layers(model: nn.Module) -> list[RandomMemberLayer]:
    """Return the layers with random fast weights."""
    return [layer for layer in member_layers(model) if isinstance(layer, RandomMemberLayer)]
