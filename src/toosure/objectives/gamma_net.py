"""gamma-net: a small network reads the features and sets the focal gamma of each example."""

import math
import warnings
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from toosure.data import Dataset
from toosure.eval_mode import evaluating
from toosure.losses import FocalLoss, SECELoss
from toosure.losses.loss import Sum
from toosure.losses.soft import Form
from toosure.objectives.bilevel import Bilevel, Scope
from toosure.objectives.contract import criterion_of
from toosure.objectives.meta_signal import SignalToNoise
from toosure.objectives.network import head_of, output_of, statistics_still
from toosure.objectives.splits import Splits
from toosure.optim.validators import check_not_negative

COLLAPSED = 0.95  # share of gammas at a bound above which a warning is given
EDGE = 0.01  # share of the range that counts as being at a bound
REFERENCE_FEATURES = 64  # of ResNet-20; with these `lr` is the hidden layer's rate
MOVED = 0.25  # of the mean gamma between two rows; a larger move on noise gives a warning


class GammaNet(Bilevel):
    """Learn the focal gamma of each example by how well calibrated a virtual step leaves the net.

    Formula: gamma_i = least + (most - least) sigmoid(u(h_i)/tau), or least + softplus(u/tau) for
    `most=none`, u an MLP on the detached features h; inner loss mean -(1 - p_y)^gamma_i log p_y;
    outer loss sece SECE + ce CE on a meta batch after a virtual step, at rate `virtual_lr`, of the
    head (or of everything, `scope="full"`). `bandwidth`, `form`, `soft_accuracy`, `leave_one_out`
    and `detach` are arguments of `toosure.metrics.sece`. With `fresh`, only that number of meta
    examples passes the network at a step. `virtual_lr=none` follows the run's own rate. Adam moves
    the level that all gammas share at the rate `level_lr`, and their differences at `lr` (above 64
    features the hidden layer at 64 `lr` / features); with `level_lr=none` everything moves at `lr`.
    `feed` replaces the features: "noise", "random" (a fixed random projection of the input), or the
    name of a layer. The MLP, its optimizer and the place of tau are our choice, because no source
    states them; see docs/objectives.md.
    Reference: Wang and Golebiowski (2024), Towards Unbiased Calibration using Meta-Regularization,
    arXiv 2303.15057.

    >>> from toosure.data import digits
    >>> from toosure.models import mlp
    >>> data, model, objective = digits(train=100), mlp((1, 8, 8), width=8), GammaNet()
    >>> train = objective.setup(model, data).train
    >>> batch = (train.x[:4], train.y[:4], torch.arange(4))
    >>> objective(model, objective.prepare(model, batch, lr=0.1)).shape
    torch.Size([])
    """

    gammas: Tensor  # of the last batch: mean, std, smallest, largest, share at a bound
    projection: Tensor

    def __init__(
        self,
        start: float = 1.0,
        most: float | None = 5.0,
        least: float = 0.0,
        tau: float = 1.0,
        width: int = 128,
        sece: float = 1.0,
        ce: float = 0.0,
        bandwidth: float | Literal["auto"] = "auto",
        form: Form = "gap",
        soft_accuracy: bool = False,
        leave_one_out: bool = True,
        detach: bool = True,
        feed: str = "penultimate",
        scope: Scope = "head",
        meta: float = 0.1,
        meta_batch: int = 512,
        fresh: int | None = 64,
        every: int = 1,
        lr: float = 1e-4,
        level_lr: float | None = 0.01,
        virtual_lr: float | None = 0.1,
        seed: int = 0,
        reduction: Literal["mean", "sum"] = "mean",
    ) -> None:
        super().__init__(meta, meta_batch, every, scope, lr, virtual_lr, seed, fresh)
        below_most = most is None or start < most
        if not 0 <= least < start or not below_most or not tau > 0:
            raise ValueError(
                "need 0 <= least < start < most and tau > 0; got "
                f"least {least}, start {start}, most {most}, tau {tau}"
            )
        if width < 1 or min(sece, ce) < 0 or not sece + ce > 0:
            raise ValueError(
                "need width >= 1, and weights sece and ce not negative, one of them above 0; got "
                f"{width}, {sece} and {ce}"
            )
        if level_lr is not None:
            check_not_negative("level_lr", level_lr)
        self.level_lr = level_lr
        self.start = start
        self.most = most
        self.least = least
        self.tau = tau
        self.width = width
        self.feed = feed

        focal = FocalLoss(start, reduction)
        self.loss = focal  # which CSAM may wrap
        self.criterion = focal
        self.focal = focal
        criterion_of(self.loss)

        error = SECELoss(
            bandwidth=bandwidth,
            form=form,
            soft_accuracy=soft_accuracy,
            leave_one_out=leave_one_out,
            detach=detach,
        )
        terms: list[tuple[float, nn.Module]] = [(sece, error.alone), (ce, nn.CrossEntropyLoss())]
        self.outer = Sum([(factor, term) for factor, term in terms if factor])

        self.register_buffer("gammas", torch.tensor([start, 0.0, start, start, 0.0]))
        self.register_buffer("projection", torch.empty(0))
        self.warned = False
        self.warned_of_noise = False
        self.last_mean: float | None = None  # gamma of the last row

    @property
    def capturable(self) -> bool:
        """Whether a CUDA graph can record `settle`; noise is drawn on the host at each step."""
        return super().capturable and self.feed != "noise"

    def make_hyper(self, model: nn.Module, data: Dataset | Splits) -> nn.Module:
        size = head_of(model).in_features
        if self.feed == "random":
            inputs = data.train.x[0].numel()
            noise = torch.randn(inputs, size, generator=self.generator) / math.sqrt(inputs)
            self.projection = noise.to(data.train.x)
        elif self.feed not in ("penultimate", "noise"):
            with evaluating(model), torch.no_grad():
                size = output_of(model, self.feed, data.train.x[:2]).shape[1]
        bounds = (self.least, self.most)
        return SampleGamma(size, self.width, self.start, bounds, self.tau, self.generator)

    def hyper_groups(self) -> list[dict[str, Any]]:
        """Return the level and the weights as groups, if the level has its own rate.

        A step of Adam moves each weight by about its rate, and a hidden unit by that times the
        number of its inputs. So gamma would move faster on wide features.
        """
        if self.level_lr is None:
            return super().hyper_groups()

        net = cast(SampleGamma, self.hyper)
        slower = min(1.0, REFERENCE_FEATURES / net.hidden.in_features)
        others = [net.hidden.bias, net.last.weight, *net.norm.parameters()]
        return [
            {"params": [net.last.bias], "lr": self.level_lr},
            {"params": [net.hidden.weight], "lr": self.lr * slower},
            {"params": others},
        ]

    def values(self, model: nn.Module, features: Tensor, x: Tensor, labels: Tensor) -> Tensor:
        gamma: Tensor = self.hyper(self.fed(model, features, x))
        return gamma

    @torch.no_grad()
    def fed(self, model: nn.Module, features: Tensor, x: Tensor) -> Tensor:
        """Return the features that the gamma-net reads: of a layer, random ones, or noise."""
        if self.feed == "penultimate":
            return features
        if self.feed == "noise":
            return torch.randn(features.shape, generator=self.generator).to(features)
        if self.feed == "random":
            return (x.flatten(1) @ self.projection).relu()
        with statistics_still(model):
            return output_of(model, self.feed, x)

    def assign(self, values: Tensor) -> None:
        self.focal.gamma = values

    def store_summary(self, values: Tensor) -> None:
        highest = math.inf if self.most is None else self.most
        edge = EDGE * ((self.start if self.most is None else self.most) - self.least)
        outside = (values < self.least + edge) | (values > highest - edge)
        at_bound = outside.to(values.dtype).mean()
        summary = (values.mean(), values.std(correction=0), values.min(), values.max(), at_bound)
        self.gammas.copy_(torch.stack(summary))

    def report(self) -> dict[str, float]:
        """Return statistics of the last gammas, whether they collapsed, and the meta-gradient."""
        mean, std, low, high, bound = self.gammas.tolist()
        collapsed = bound > COLLAPSED
        signal = self.signal.take()
        if collapsed:
            self.warn_of_collapse(bound, mean)
        self.warn_of_noise(signal, mean)

        return {
            "objective/gamma_mean": mean,
            "objective/gamma_std": std,
            "objective/gamma_min": low,
            "objective/gamma_max": high,
            "objective/gamma_at_bound": bound,
            "objective/gamma_collapsed": float(collapsed),
            "objective/meta_gradient": float(self.slope),
            "objective/meta_signal_to_noise": signal.per_step,
        }

    def warn_of_collapse(self, bound: float, mean: float) -> None:
        """Warn once that nearly all gammas lie at a bound."""
        if self.warned:
            return
        self.warned = True
        warnings.warn(
            f"gamma-net has collapsed: {bound:.0%} of the gammas lie at a bound (mean "
            f"{mean:.3g}); try a larger tau, a smaller lr, or ce=1",
            stacklevel=3,
        )

    def warn_of_noise(self, signal: SignalToNoise, mean: float) -> None:
        """Warn once if gamma moved since the last row although its mean gradient was noise."""
        moved = 0.0 if self.last_mean is None else abs(mean - self.last_mean)
        self.last_mean = mean
        if self.warned_of_noise or moved < MOVED or not signal.is_noise:
            return

        self.warned_of_noise = True
        warnings.warn(
            f"gamma-net moves on noise: the mean gamma moved by {moved:.2g} to {mean:.3g} since "
            "the last row, while the mean meta-gradient of those steps is "
            f"{signal.overall:.2g} standard errors from 0; try detach=true, leave_one_out=true, "
            "bandwidth=auto, a larger meta_batch or a smaller lr",
            stacklevel=3,
        )

    def get_extra_state(self) -> Any:
        return super().get_extra_state() | {"last_mean": self.last_mean}

    def set_extra_state(self, state: Any) -> None:
        super().set_extra_state(state)
        self.last_mean = state["last_mean"]


class SampleGamma(nn.Module):
    """Map features to gammas between two bounds, the upper of which may be None: an MLP.

    tau divides the input of the sigmoid: with a larger tau, gammas stay closer together and to
    `start`, and move more slowly.

    >>> net = SampleGamma(8, 16, 1.0, (0.0, 5.0), tau=1.0, generator=torch.Generator())
    >>> net(torch.zeros(2, 8)).detach()
    tensor([1., 1.])
    """

    def __init__(
        self,
        inputs: int,
        width: int,
        start: float,
        bounds: tuple[float, float | None],
        tau: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.least, self.most = bounds
        self.tau = tau
        self.hidden = nn.Linear(inputs, width)
        self.last = nn.Linear(width, 1)
        self.norm = nn.LayerNorm(inputs)

        # With this last bias, a hidden layer of 0 gives gamma = `start`.
        with torch.no_grad():
            for layer in (self.hidden, self.last):
                nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
                layer.bias.zero_()
            above = start - self.least
            share = math.expm1(above) if self.most is None else above / (self.most - start)
            self.last.bias.fill_(tau * math.log(share))

    def forward(self, features: Tensor) -> Tensor:
        hidden = self.hidden(self.norm(features.to(self.last.weight.dtype))).relu()
        u: Tensor = self.last(hidden).squeeze(1) / self.tau  # (N,)
        if self.most is None:
            return self.least + nn.functional.softplus(u)
        return self.least + (self.most - self.least) * u.sigmoid()
