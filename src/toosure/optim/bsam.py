"""Bayesian SAM: learn a mean and a scale for every weight, and predict with samples of them."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim.optimizer import ParamsT

from toosure.binary import class_columns
from toosure.data.seeds import derive_seed
from toosure.metrics.inputs import check_count, check_positive
from toosure.optim.mean_and_scale import MeanAndScale, state_dtype
from toosure.optim.micro_batches import Closure
from toosure.optim.passes import being_recorded, weights_restored
from toosure.optim.sam import SAM
from toosure.optim.validators import (
    Validator,
    check_decay,
    check_not_negative,
    refuse_unknown_arguments,
)
from toosure.processes.dtensor import is_sharded, local_shards, placed_like


class BSAM(SAM):
    """Learn a Gaussian over the weights by a SAM step at its mean.

    Formula, xi ~ N(0, I), delta = prior_precision / data_size, for each sub-batch:
    g = gradient at w + xi / sqrt(data_size * s); h = gradient at w + rho * g / s.
    Averaged over sub-batches: m = b1 m + (1 - b1)(h + delta w); w = w - lr * m / s (the old s);
    s = b2 s + (1 - b2)(sqrt(s) |g| + damping + delta). At the start s = 1, m = 0.
    Reference: Moellenhoff, Khan, ICLR 2023, arXiv:2210.01620.

    `data_size` is the number of training examples, counted `data_factor` times (the authors count
    augmented CIFAR four times). Split the batch with `split` (8 parts by default) and give `step` a
    closure for each, with their sizes as `weights` where 8 does not divide it. Between steps the
    weights are the mean. `predict(model, x)` averages the softmaxes of `samples` samples (the
    authors take 32; 0: the mean alone), and `with optimizer.sampled(): ...` holds one.
    `toosure train` writes the predictions of the samples beside those of the mean, in
    `predictions_bsam.npz`. The noise of a step follows from `seed` and the number of draws, which
    is in the state: runs resume, and DDP ranks draw alike. A CUDA graph of a step needs
    `generators` registered, and `seed_noise` before each replay; `toosure train --graph` does both.
    The state of half-precision weights is float32.

    >>> model = torch.nn.Linear(3, 2)
    >>> optimizer = BSAM(model.parameters(), lr=0.5, data_size=800)
    >>> inputs, labels = torch.randn(16, 3), torch.arange(16) % 2
    >>> def closure_for(inputs, labels):
    ...     def closure():
    ...         loss = torch.nn.functional.cross_entropy(model(inputs), labels)
    ...         loss.backward()
    ...         return loss
    ...     return closure
    >>> loss = optimizer.step([closure_for(*part) for part in optimizer.split(inputs, labels)])
    >>> probabilities = optimizer.predict(model, inputs, samples=32).exp()
    >>> probabilities.shape, bool((probabilities.sum(1) - 1).abs().max() < 1e-5)
    (torch.Size([16, 2]), True)
    """

    passes_arguments_to: ClassVar[str] = ""  # it knows its base
    first_pass_at_w: ClassVar[bool] = False  # at a sample

    generators: tuple[torch.Generator, ...] = ()  # one for each first pass of a step
    unused: Iterator[torch.Generator] = iter(())  # of them, in the step under way

    pickled: ClassVar[tuple[str, ...]] = (*SAM.pickled, "sub_batches", "samples")
    validators: ClassVar[dict[str, Validator]] = {
        **SAM.validators,
        "lr": check_not_negative,
        "betas": check_decay,
        "data_size": check_positive,
        "prior_precision": check_not_negative,
        "damping": check_not_negative,
    }

    @refuse_unknown_arguments
    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.5,
        *,
        data_size: int,
        rho: float = 0.01,
        betas: tuple[float, float] = (0.9, 0.999),
        prior_precision: float = 40.0,
        damping: float = 0.1,
        sub_batches: int = 8,
        samples: int = 0,
        data_factor: float = 1.0,
        seed: int = 0,
        model: nn.Module | None = None,
        clip_norm: float | None = None,
    ) -> None:
        check_count("sub_batches", sub_batches)
        check_positive("data_factor", data_factor)
        if samples:
            check_count("samples", samples)

        self.sub_batches = sub_batches
        self.samples = samples
        super().__init__(
            params,
            MeanAndScale,
            rho,
            model=model,
            clip_norm=clip_norm,
            lr=lr,
            betas=betas,
            damping=damping,
            data_size=data_size * data_factor,
            prior_precision=prior_precision,
            seed=seed,
            draws=0,
        )

    def split(self, *tensors: Tensor) -> list[tuple[Tensor, ...]]:
        """Cut a batch into `sub_batches` parts, each a tuple as long as `tensors`.

        Where they cannot be equal they differ by one example; `step(..., weights=sizes)` weighs
        each by its size. A batch smaller than `sub_batches` has one part per example.
        """
        parts = max(1, min(self.sub_batches, len(tensors[0])))
        return list(zip(*(t.tensor_split(parts) for t in tensors), strict=True))

    @contextmanager
    def sampled(self, generator: torch.Generator | None = None) -> Iterator[None]:
        """Inside, the weights are a sample w + xi / sqrt(data_size * s); after, the mean again.

        Gradients are recorded inside if they are outside. Frozen weights stay at their mean.
        """
        recording = torch.is_grad_enabled()
        groups = [(g, [p for p in g["params"] if p.requires_grad]) for g in self.param_groups]
        learned = [p for _, params in groups for p in params]
        with torch.no_grad(), weights_restored(learned):
            for group, params in groups:
                if params:  # foreach calls refuse empty lists
                    self._add_noise(params, group["data_size"], generator)

            with torch.set_grad_enabled(recording):
                yield

    def _add_noise(
        self, params: list[Tensor], data_size: float, generator: torch.Generator | None
    ) -> None:
        """Add xi / sqrt(data_size * s) to the weights of a group."""
        noise = [_normal(p, generator) for p in params]

        steps = torch._foreach_mul(self._states(params, "scale"), data_size)
        torch._foreach_rsqrt_(steps)
        torch._foreach_mul_(steps, local_shards(noise))
        torch._foreach_add_(local_shards(params), steps)

    @torch.no_grad()
    def predict(
        self,
        model: nn.Module,
        x: Tensor,
        samples: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the log of the mean softmax over samples of the weights, (N, C).

        One logit per example counts as two classes. `samples` defaults to the optimizer's; with 0
        only the mean weights predict. The model stays in the mode that it is in: call
        `model.eval()` before.
        """
        count = self.samples if samples is None else samples
        if count == 0:
            mean: Tensor = class_columns(model(x)).log_softmax(-1)
            return mean

        total: Tensor | None = None
        for _ in range(count):
            with self.sampled(generator):
                each = class_columns(model(x)).log_softmax(-1)
            total = each if total is None else torch.logaddexp(total, each)
        assert total is not None
        return total - math.log(count)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state in its own types; torch would round it to the parameters' types."""
        super().load_state_dict(state_dict)
        indices = [i for group in state_dict["param_groups"] for i in group["params"]]
        for (p, _), i in zip(self._parameters(), indices, strict=True):
            for name, value in state_dict["state"].get(i, {}).items():
                self.state[p][name] = value.to(p.device, state_dtype(p), copy=True)

    def _parameters(self) -> list[tuple[Tensor, dict[str, Any]]]:
        """Return every parameter with its group."""
        return [(p, group) for group in self.param_groups for p in group["params"]]

    def _states(self, params: list[Tensor], name: str) -> list[Tensor]:
        """Return this process's shards of a state of each parameter."""
        return local_shards([self.state[p][name] for p in params])

    def seed_noise(self, passes: int) -> None:
        """Seed a generator for each first pass of the next step, by the number of earlier draws."""
        group = self.param_groups[0]
        # Drawn where the weights are: on the host, noise for 11 million weights takes longer than
        # the pass on a GPU.
        device = self._parameters()[0][0].device
        if len(self.generators) < passes or self.generators[0].device != device:
            self.generators = tuple(torch.Generator(device) for _ in range(passes))

        for generator in self.generators[:passes]:
            generator.manual_seed(derive_seed(group["seed"], group["draws"]))
            group["draws"] += 1

    def _begin(self, passes: int) -> None:
        # A capture draws nothing: the caller seeds before each replay.
        weight, _ = self._parameters()[0]
        if not being_recorded(weight):
            self.seed_noise(passes)
        self.unused = iter(self.generators)

    def _first_pass(self, closure: Closure) -> Any:
        """Take the gradient at a sample."""
        with self.sampled(next(self.unused)):
            return self._pass(closure)

    def _perturbs(self) -> bool:
        return True

    def _perturb(self, share: float) -> None:
        """Add rho g / s to the weights, and gather sqrt(s) |g| for the update of s."""
        for group, params, gradients in self._buckets():
            scales = self._states(params, "scale")
            steps = local_shards(gradients)

            curvatures = torch._foreach_sqrt(scales)
            torch._foreach_mul_(curvatures, torch._foreach_abs(steps))
            torch._foreach_mul_(curvatures, share)
            for p, curvature in zip(params, curvatures, strict=True):
                self.pending[p] = self.pending[p] + curvature if p in self.pending else curvature

            torch._foreach_div_(steps, scales)
            torch._foreach_add_(local_shards(params), steps, alpha=group["rho"])

    def _update(self) -> None:
        assert isinstance(self.base, MeanAndScale)
        self.base.curvature = self.pending
        super()._update()


def _normal(p: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw standard normal noise of the shape of p, on the generator's device; sharded as p is."""
    device = p.device if generator is None else generator.device
    noise = torch.randn(p.shape, generator=generator, device=device, dtype=p.dtype).to(p.device)
    return placed_like(noise, p) if is_sharded(p) else noise
