"""The mean loss of a model along a line through its weights, which may be sharded."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn

from toosure.curvature.products.chunked_model import inputs_and_labels
from toosure.curvature.products.functional_model import ParameterChoice, choose_parameters
from toosure.curvature.products.loss_hessian import LossLike, output_loss, over_all_samples
from toosure.curvature.products.precision import tensor_cores
from toosure.eval_mode import evaluating
from toosure.metrics.inputs import ArrayLike, as_labels, check_count
from toosure.processes.dtensor import (
    any_sharded,
    forward_parts,
    is_sharded,
    local_shards,
    processes_in,
    ranks_of,
    reduced,
    reshard,
    sum_over_shards,
)
from toosure.processes.wrappers import unwrapped


class LineLoss:
    """The loss L(w - eta u) of a model on fixed data, forward only, and its gradient at w.

    With several processes, each gives its share of the data. If FSDP2 shards the weights, all
    processes must take part in every call, and each moves its own shards.
    """

    def __init__(
        self,
        model: nn.Module,
        data: tuple[Tensor, Tensor],
        loss: LossLike,
        parameters: ParameterChoice | None,
        chunk: int,
        group: "dist.ProcessGroup | None",
    ) -> None:
        check_count("chunk", chunk)
        self.model = unwrapped(model)
        reshard(self.model)  # so that the parameters are the ones that an optimizer moves
        named = dict(self.model.named_parameters())
        self.parameters = [named[name] for name in choose_parameters(self.model, parameters)]
        self.sharded = any_sharded(self.parameters)
        self.groups = ranks_of(self.parameters)
        if not self.sharded and group is not None:
            self.groups = (group,)

        inputs, labels = inputs_and_labels(data)
        self.inputs = inputs.to(self.parameters[0].device)
        self.labels = self._checked(labels)
        self.count = int(self._total(len(self.labels)))
        self.loss = over_all_samples(output_loss(loss), self.labels, self.count, self._reduced)
        parts = forward_parts(self.inputs, chunk, self.parameters)
        self.parts = list(zip(parts, self.labels.split([len(x) for x in parts]), strict=True))

    def _checked(self, labels: ArrayLike) -> Tensor:
        """Return the labels on the model's device; raise if they do not fit the outputs."""
        if not len(self.inputs):
            raise ValueError("data is empty: curvature needs at least one sample")
        with self._evaluating(), torch.no_grad():
            classes = self._logits(self.inputs[:2]).shape[-1]
        return as_labels(labels, len(self.inputs), classes).to(self.inputs.device)

    def _reduced(self, tensor: Tensor) -> Tensor:
        return reduced(tensor, self.groups)

    def _total(self, number: float) -> float:
        """Return the sum of a number over all processes."""
        own = torch.tensor(number, dtype=torch.float64, device=self.inputs.device)
        return float(self._reduced(own))

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Set evaluation mode and exact products; afterwards FSDP2 holds only shards."""
        with evaluating(self.model):
            try:
                with tensor_cores(allowed=False):
                    yield
            finally:
                reshard(self.model)

    def _logits(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.model(inputs)
        wide = torch.promote_types(logits.dtype, torch.float32)
        return logits.to(wide)

    def _totals(self) -> Iterator[Tensor]:
        """Yield the loss of this process's samples, summed over each part of them."""
        for x, y in self.parts:
            yield self.loss.total(self._logits(x), y)

    def mean(self) -> float:
        """Return the mean loss over the samples of all processes at the present weights."""
        with self._evaluating(), torch.no_grad():
            total = sum(float(part) for part in self._totals())
        return self._total(total) / self.count

    def gradient(self) -> list[Tensor]:
        """Return the gradient of the mean loss, sharded as the parameters are."""
        with self._evaluating(), torch.enable_grad():
            if self.sharded:
                return self._sharded_gradient()

            gradients = [torch.zeros_like(p) for p in self.parameters]
            for part in self._totals():
                new = torch.autograd.grad(part / self.count, self.parameters, allow_unused=True)
                for gradient, more in zip(gradients, new, strict=True):
                    if more is not None:
                        gradient += more
        return [self._reduced(gradient) for gradient in gradients]

    def _sharded_gradient(self) -> list[Tensor]:
        """Let FSDP2 average gradients over the processes; restore the `.grad` of training."""
        everything = list(self.model.parameters())
        before = [p.grad for p in everything]
        processes = processes_in(self.groups)
        self._set_gradients(everything, [None] * len(everything))

        try:
            for part in self._totals():
                (part * processes / self.count).backward()
            gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        finally:
            self._set_gradients(everything, before)
        # Parameters that FSDP2 leaves whole have the gradient of this process's share.
        return [g if is_sharded(g) else self._reduced(g) / processes for g in gradients]

    @staticmethod
    def _set_gradients(parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
        for p, gradient in zip(parameters, gradients, strict=True):
            p.grad = gradient

    def dot(self, left: Sequence[Tensor], right: Sequence[Tensor]) -> float:
        """Return the inner product of two vectors with one tensor per parameter."""
        with torch.no_grad():
            pairs = zip(local_shards(left), local_shards(right), strict=True)
            products = [(a.double() * b.double()).sum() for a, b in pairs]
            return float(sum_over_shards(left, products))

    @contextmanager
    def along(self, update: Sequence[Tensor]) -> Iterator[Callable[[float], float]]:
        """Give a function of eta that returns the loss at w - eta u; afterwards restore w."""
        self._check_update(update)
        with torch.no_grad():
            weights = local_shards(self.parameters)
            direction = local_shards(update)
            saved = [weight.clone() for weight in weights]

        @torch.no_grad()
        def loss_at(step: float) -> float:
            torch._foreach_copy_(weights, saved)
            torch._foreach_add_(weights, direction, alpha=-step)
            return self.mean()

        try:
            yield loss_at
        finally:
            with torch.no_grad():
                torch._foreach_copy_(weights, saved)

    def _check_update(self, update: Sequence[Tensor]) -> None:
        """Raise unless there is a tensor of the right shape for every parameter."""
        shapes = [tuple(u.shape) for u in update]
        expected = [tuple(p.shape) for p in self.parameters]
        if shapes != expected:
            raise ValueError(
                "update must hold one tensor for each of the model's parameters, in their order "
                f"and of their shapes {expected}; got {shapes}"
            )
        if any(
            is_sharded(u) != is_sharded(p) for u, p in zip(update, self.parameters, strict=True)
        ):
            raise ValueError("update must be sharded (a DTensor) where the parameters are")
