"""MC-Dropout: dropout stays on when predicting, and the samples are averaged."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from toosure.data.seeds import RunStream
from toosure.ensembles.batch_ensemble import repeated
from toosure.ensembles.convert import (
    Weighted,
    check_replaceable,
    replace_layers,
    weighted_layers,
)
from toosure.ensembles.mixture import Mixture
from toosure.ensembles.noise import (
    Noise,
    draw_noise,
    generator_for,
    learn_shapes,
    noise_in,
    noisy_layers,
)
from toosure.objectives.contract import Batch, reduction_factor
from toosure.processes.wrappers import unwrapped

Where = Literal["residual", "all"]


class MCDropout(Mixture):
    """Average the probabilities of `samples` passes with dropout on; BatchNorm stays in eval mode.

    `rate` is the share that is dropped, by default that of the network's own Dropout layers
    (`--model resnet20:dropout=0.1`). `where=residual` uses these layers, which sit between the
    convolutions of a residual block; `where=all` puts one behind every convolution and linear
    layer but the head. `channels` drops whole channels. `repeat` shows each image so many times
    per step, each with a mask of its own. Sharpness is that of the network without dropout.
    Reference: Gal and Ghahramani (2016), Dropout as a Bayesian Approximation, arXiv 1506.02142.

    >>> from toosure.models import mlp
    >>> model, objective = mlp(4, 3, width=8, dropout=0.1), MCDropout(samples=3)
    >>> x, y = torch.randn(6, 4), torch.arange(6) % 3
    >>> objective.setup(model, (x, y))
    >>> objective.predict(model, x).exp().sum(1).round(decimals=4)[0]
    tensor(1., grad_fn=<SelectBackward0>)
    """

    def __init__(
        self,
        loss: nn.Module | None = None,
        samples: int = 5,
        rate: float | None = None,
        where: Where = "residual",
        channels: bool = False,
        repeat: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__(loss, seed)
        if samples < 1 or repeat < 1:
            raise ValueError(f"samples and repeat must be at least 1; got {samples}, {repeat}")
        if rate is not None and not 0 < rate < 1:
            raise ValueError(f"rate is a share in (0, 1); got {rate}")
        if where not in ("residual", "all"):
            raise ValueError(f"where must be residual or all; got {where!r}")

        self.samples = samples
        self.rate = rate
        self.where = where
        self.channels = channels
        self.repeat = repeat

    def convert(self, model: nn.Module, example: Tensor) -> None:
        """Let the Dropout layers use masks that are drawn in advance."""
        check_replaceable(model, nn.Dropout, nn.Dropout2d)
        if self.where == "all":
            check_replaceable(model, nn.Conv2d, nn.Linear)
            head = list(weighted_layers(model))[-1]
            replace_layers(model, lambda name, layer: self.dropped(name, layer, head))
        else:
            replace_layers(model, self.sampled)

        if not any(layer.rate for layer in dropouts(model)):
            has_layers = self.where == "residual" and bool(list(dropouts(model)))
            word = "mc_dropout:rate=0.1" if has_layers else "mc_dropout:where=all,rate=0.1"
            raise ValueError(
                "MC-Dropout of a network without dropout is one network: give the model dropout "
                f"(resnet20:dropout=0.1), or take {word}"
            )
        learn_shapes(model, example)
        for layer in dropouts(model):
            layer.learning = False

    def sampled(self, name: str, layer: nn.Module) -> nn.Module | None:
        """Return the layer that replaces one of the network's Dropout layers."""
        if not isinstance(layer, nn.Dropout | nn.Dropout2d):
            return None
        rate = layer.p if self.rate is None else self.rate
        return SampledDropout(rate, self.channels or isinstance(layer, nn.Dropout2d))

    def dropped(self, name: str, layer: nn.Module, head: str) -> nn.Module | None:
        """Return a layer with dropout behind it, and nothing in the place of other Dropout."""
        if isinstance(layer, nn.Dropout | nn.Dropout2d):
            return nn.Identity()
        if not isinstance(layer, Weighted) or name == head:
            return None
        return nn.Sequential(layer, SampledDropout(self.rate or 0.0, self.channels))

    def prepare(self, model: nn.Module, batch: Batch, part: int = 0) -> tuple[Tensor, ...]:
        """Draw the masks of this step."""
        self.count_step(model, part)
        x, labels, _ = batch
        x = repeated(x, self.repeat)
        generator = generator_for(
            x.device, self.seed, RunStream.ENSEMBLE_TRAINING, self.taken, part
        )
        return (
            x,
            repeated(labels, self.repeat),
            *draw_noise(noisy_layers(unwrapped(model)), len(x), generator),
        )

    def forward(self, model: nn.Module, prepared: tuple[Tensor, ...]) -> Tensor:
        x, labels, *masks = prepared
        network = unwrapped(model)
        with noise_in(noisy_layers(network), masks):
            loss = self.loss_of(network(x), labels)
        return loss / reduction_factor(self.loss, self.repeat)  # a sum counts every repetition

    def member_logits(self, model: nn.Module, x: Tensor) -> Tensor:
        """Return the logits of each sample, (samples, N, C)."""
        layers = noisy_layers(model)
        logits = []
        for sample in range(self.samples):
            generator = generator_for(
                x.device, self.seed, RunStream.ENSEMBLE_PREDICTION, self.taken, sample
            )
            with noise_in(layers, draw_noise(layers, len(x), generator)):
                logits.append(model(x))
        return torch.stack(logits)

    def mean_predict(self, model: nn.Module, x: Tensor) -> Tensor:
        """Return the logits without dropout, on which curvature is measured."""
        logits: Tensor = unwrapped(model)(x)
        return logits


class SampledDropout(nn.Module):
    """Apply a mask; in training mode without a mask, apply torch's dropout.

    A network may call one layer in several places: each call of a pass has a mask of its own.
    """

    def __init__(self, rate: float, channels: bool = False) -> None:
        super().__init__()
        self.rate = rate
        self.channels = channels
        self.learning = True  # the shapes of the calls of a pass
        self.shapes: list[list[int]] = []  # of a row's mask
        self.calls = 0  # since the noise was set
        self.noise = None

    @property
    def noise(self) -> Noise | None:
        """The masks of all calls of a pass, one after another, (rows, ...)."""
        return self._noise

    @noise.setter
    def noise(self, noise: Noise | None) -> None:
        self._noise = noise
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        if self.learning:
            self.shapes.append(self.mask_shape(x))
        if self.noise is None:
            return nn.functional.dropout(x, self.rate, self.training)
        return x * self.next_mask(self.noise[0]).to(x.dtype) / (1 - self.rate)

    def mask_shape(self, x: Tensor) -> list[int]:
        """Return the shape of a row's mask: one value per channel where whole ones are dropped."""
        shape = list(x.shape[1:])
        if self.channels and len(shape) > 1:
            shape[1:] = [1] * (len(shape) - 1)
        return shape

    def next_mask(self, masks: Tensor) -> Tensor:
        """Return the mask of the next call, (rows, ...)."""
        call = self.calls % len(self.shapes)
        self.calls += 1
        sizes = [math.prod(shape) for shape in self.shapes]
        mask: Tensor = masks.split(sizes, 1)[call]
        return mask.reshape(len(masks), *self.shapes[call])

    def draw(self, rows: int, generator: torch.Generator) -> Noise:
        """Draw which values stay in each call, (rows, ...)."""
        assert self.shapes
        values = sum(math.prod(shape) for shape in self.shapes)
        masks = torch.empty(rows, values, dtype=torch.bool, device=generator.device)
        return (masks.bernoulli_(1 - self.rate, generator=generator),)

    def extra_repr(self) -> str:
        return f"rate={self.rate}, channels={self.channels}"


def dropouts(model: nn.Module) -> list[SampledDropout]:
    return [layer for layer in model.modules() if isinstance(layer, SampledDropout)]
