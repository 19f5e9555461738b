"""Mean-field variational inference: a Gaussian around every weight."""

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from toosure.data.seeds import RunStream
from toosure.ensembles.bayesian import BayesianMixture
from toosure.ensembles.convert import (
    Weighted,
    apply_weight,
    channels_of,
    check_replaceable,
    per_channel,
    replace_layers,
    weighted_layers,
)
from toosure.ensembles.divergences import gaussian_kl, softplus_inverse, tied_gaussian_kl
from toosure.ensembles.noise import (
    Noise,
    draw_noise,
    generator_for,
    learn_shapes,
    noise_in,
    noisy_layers,
)
from toosure.metrics.inputs import check_positive
from toosure.objectives.contract import Batch
from toosure.processes.wrappers import unwrapped

Estimator = Literal["flipout", "local"]
SPREAD = 0.1  # standard deviation of rho at the start
TINY = 1e-16  # added under the root of a variance, as the root has an infinite slope at 0


class VI(BayesianMixture):
    """Learn q = N(mu, sigma^2) of each weight of convolutions and linear layers.

    Formula: mean NLL + beta_t KL(q || prior) / n, sigma = softplus(rho). `estimator=flipout`
    computes y = x mu + ((x o a) sigma eps) o b with eps once per batch and random signs a, b per
    example and channel; `local` draws y ~ N(x mu, x^2 sigma^2) directly (local
    reparametrisation). The prior is N(mu, prior^2) with the mean of q (`tied`), or N(0, prior^2).
    Biases and BatchNorm are single numbers. A prediction averages `samples` networks; sharpness is
    that of the mean network. mu and rho have no weight decay.
    Reference: Blundell et al. (2015), Weight uncertainty in neural networks, arXiv 1505.05424;
    Wen et al. (2018), Flipout, arXiv 1803.04386; Kingma et al. (2015), arXiv 1506.02557.

    >>> from toosure.models import mlp
    >>> model, objective = mlp(4, 3, width=8), VI(samples=2)
    >>> x, y = torch.randn(6, 4), torch.arange(6) % 3
    >>> objective.setup(model, (x, y))
    >>> objective.member_logits(model, x).shape
    torch.Size([2, 6, 3])
    """

    def __init__(
        self,
        loss: nn.Module | None = None,
        samples: int = 5,
        prior: float = 0.1,
        tied: bool = True,
        sigma: float = 1e-3,
        estimator: Estimator = "flipout",
        anneal: float = 0.8,
        seed: int = 0,
        training_steps: int | None = None,
    ) -> None:
        super().__init__(loss, prior, anneal, seed, training_steps)
        check_positive("sigma", sigma)
        if samples < 1:
            raise ValueError(f"samples must be at least 1; got {samples}")
        if estimator not in ("flipout", "local"):
            raise ValueError(f"estimator must be flipout or local; got {estimator!r}")
        self.samples = samples
        self.tied = tied
        self.sigma = sigma
        self.estimator = estimator
        self.uncertain: list[Tensor] = []

    def convert(self, model: nn.Module, example: Tensor) -> None:
        """Put a distribution over the weights of every convolution and linear layer."""
        weighted_layers(model)  # raises if there are none
        check_replaceable(model, nn.Conv2d, nn.Linear)
        generator = torch.Generator().manual_seed(self.seed)

        def make(name: str, layer: nn.Module) -> nn.Module | None:
            if not isinstance(layer, Weighted):
                return None
            return UncertainLayer(layer, self.sigma, self.estimator, generator)

        replace_layers(model, make)
        layers = uncertain_layers(model)
        self.uncertain = [p for layer in layers for p in (layer.layer.weight, layer.rho)]
        learn_shapes(model, example)

    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        """Yield means and deviations as a group without decay: the divergence draws them."""
        yield {"params": self.uncertain, "weight_decay": 0.0}

    def divergence(self, model: nn.Module) -> Tensor:
        """Return KL(q || prior), summed over all weights."""
        layers = uncertain_layers(model)
        if self.tied:
            return torch.stack([tied_gaussian_kl(layer.std, self.prior) for layer in layers]).sum()
        each = [gaussian_kl(layer.layer.weight, layer.std, 0.0, self.prior) for layer in layers]
        return torch.stack(each).sum()

    def prepare(self, model: nn.Module, batch: Batch, part: int = 0) -> tuple[Tensor, ...]:
        """Draw the noise of this step."""
        self.count_step(model, part)
        x, labels, _ = batch
        generator = generator_for(
            x.device, self.seed, RunStream.ENSEMBLE_TRAINING, self.taken, part
        )
        noise = draw_noise(noisy_layers(unwrapped(model)), len(x), generator)
        return x, labels, self.scale_tensor(x), *noise

    def forward(self, model: nn.Module, prepared: tuple[Tensor, ...]) -> Tensor:
        x, labels, scale, *noise = prepared
        network = unwrapped(model)
        with noise_in(noisy_layers(network), noise):
            loss = self.loss_of(network(x), labels)
        return loss + self.penalty(network, scale, len(labels))

    def member_logits(self, model: nn.Module, x: Tensor) -> Tensor:
        """Return the logits of networks drawn from q, (samples, N, C), each one for all rows."""
        layers = uncertain_layers(model)
        logits = []
        for sample in range(self.samples):
            generator = generator_for(
                x.device, self.seed, RunStream.ENSEMBLE_PREDICTION, self.taken, sample
            )
            noise = [layer.draw_weight(generator) for layer in layers]
            with noise_in(layers, noise):
                logits.append(model(x))
        return torch.stack(logits)

    def mean_predict(self, model: nn.Module, x: Tensor) -> Tensor:
        """Return the logits of the mean network, on which curvature is measured."""
        logits: Tensor = unwrapped(model)(x)
        return logits


class UncertainLayer(nn.Module):
    """A layer with a Gaussian around each weight: the mean is the layer's own weight."""

    def __init__(
        self, layer: Weighted, sigma: float, estimator: Estimator, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.layer = layer
        noise = torch.randn(layer.weight.shape, generator=generator)
        self.rho = nn.Parameter((softplus_inverse(sigma) + SPREAD * noise).to(layer.weight))
        self.estimator = estimator
        self.noise: Noise | None = None
        self.shape: torch.Size | None = None  # of what it gives

    @property
    def std(self) -> Tensor:
        return softplus(self.rho)

    def forward(self, x: Tensor) -> Tensor:
        if self.noise is not None and len(self.noise) == 1:  # one network for all rows
            weight = self.layer.weight + self.std * self.noise[0]
            return apply_weight(self.layer, x, weight, self.layer.bias)

        y: Tensor = self.layer(x)
        if self.shape is None:
            self.shape = y.shape[1:]
        if self.noise is None:
            return y

        first, second, third = self.noise
        if self.estimator == "local":
            variance = apply_weight(self.layer, x.square(), self.std.square())
            return y + (variance + TINY).sqrt() * first
        signed = x * per_channel(self.layer, first, x)
        change = apply_weight(self.layer, signed, self.std * third)
        return y + change * per_channel(self.layer, second, change)

    def draw(self, rows: int, generator: torch.Generator) -> Noise:
        """Draw the signs of the rows and one change of the weights; or the noise of the outputs."""
        weight = self.layer.weight
        if self.estimator == "local":
            assert self.shape is not None
            unused = torch.zeros(0, device=generator.device)
            return normal((rows, *self.shape), weight, generator), unused, unused

        read, given = channels_of(self.layer)
        signs = [normal((rows, n), weight, generator).sign() for n in (read, given)]
        return *signs, normal(weight.shape, weight, generator)

    def draw_weight(self, generator: torch.Generator) -> Tensor:
        """Draw the noise of one network."""
        return normal(self.layer.weight.shape, self.layer.weight, generator)


def normal(shape: tuple[int, ...], like: Tensor, generator: torch.Generator) -> Tensor:
    """Draw standard normal numbers in the type of a weight."""
    return torch.randn(shape, generator=generator, device=generator.device, dtype=like.dtype)


def uncertain_layers(model: nn.Module) -> list[UncertainLayer]:
    """Return the layers with a distribution over their weights."""
    return [layer for layer in model.modules() if isinstance(layer, UncertainLayer)]
