"""Calibrated SAM: the second pass weighs down the examples the network is already sure of."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from toosure.losses.csam import CSAMLoss
from toosure.losses.loss import ReducingLoss
from toosure.optim.sam import SAM
from toosure.optim.validators import check_not_negative


class CSAM(SAM):
    """Step as SAM does, with the loss of Eq. 4 at the perturbed point.

    Formula: ascend by the plain loss; at w + eps take the gradient of the mean over examples of
    -log p_y where p_y <= 1/2 and of -(1 + p_y)^(-gamma) log p_y above.
    Reference: Tan et al., ICLR 2026, Eq. 4 and Algorithm 1 (whose line 3 means theta).

    The closure must use `optimizer.criterion(loss)`, which knows at which point it is called;
    otherwise CSAM would be SAM. `gamma=0` is SAM. See `toosure.losses.CSAMLoss`.

    >>> model = torch.nn.Linear(3, 2)
    >>> optimizer = CSAM(model.parameters(), rho=0.05, gamma=1.0, lr=0.1)
    >>> criterion = optimizer.criterion(torch.nn.CrossEntropyLoss())
    >>> inputs, labels = torch.randn(8, 3), torch.arange(8) % 2
    >>> def closure():
    ...     loss = criterion(model(inputs), labels)
    ...     loss.backward()
    ...     return loss
    >>> loss = optimizer.step(closure)
    """

    wraps_criterion: ClassVar[bool] = True

    pickled: ClassVar[tuple[str, ...]] = (*SAM.pickled, "gamma", "detach_weight", "point")

    def __init__(
        self,
        params: ParamsT | nn.Module,
        base: Callable[..., Optimizer] = torch.optim.SGD,
        rho: float = 0.05,
        gamma: float = 1.0,
        *,
        detach_weight: bool = False,
        model: nn.Module | None = None,
        clip_norm: float | None = None,
        **base_arguments: Any,
    ) -> None:
        check_not_negative("gamma", gamma)
        self.gamma: float | Tensor = gamma
        self.detach_weight = detach_weight
        self.point = Point()
        super().__init__(params, base, rho, model=model, clip_norm=clip_norm, **base_arguments)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the base; it may carry its own `rho`, but no `gamma`."""
        if "gamma" in param_group:
            raise ValueError(
                "gamma belongs to the loss, which knows no groups: CSAM(..., gamma=...)"
            )
        super().add_param_group(param_group)

    def criterion(self, loss: nn.Module | None = None) -> "CSAMCriterion":
        """Wrap `loss` (cross-entropy by default): plain at w, Eq. 4 at the perturbed point."""
        return CSAMCriterion(CSAMLoss(loss, float(self.gamma), self.detach_weight), self.point)

    def set_gamma(self, gamma: float | Tensor) -> None:
        """Change gamma, here and in every criterion made of this optimizer, as a controller does.

        A tensor, on the device of the weights, may change between the replays of a CUDA graph.
        """
        self.gamma = gamma
        self.point.gamma = gamma

    def _changes_loss(self) -> bool:
        return isinstance(self.gamma, Tensor) or self.gamma != 0

    def _perturbs(self) -> bool:
        return self._changes_loss() or super()._perturbs()

    @contextmanager
    def _perturbed(self, share: float) -> Iterator[None]:
        with super()._perturbed(share):
            self.point.perturbed = True
            self.point.used = False
            try:
                yield
            finally:
                self.point.perturbed = False

            if self._changes_loss() and not self.point.used:
                raise ValueError(
                    "CSAM changes the loss in its second pass, but the closure did not use it: "
                    "make criterion = optimizer.criterion(nn.CrossEntropyLoss()) once, of this "
                    "very optimizer (not of one it was copied from), and in the closure compute "
                    "loss = criterion(logits, labels)"
                )


class Point:
    """Flags shared with the criterion: is this the perturbed point, and was it called there?"""

    gamma: float | Tensor | None = None  # if it was changed; else the loss has its own

    def __init__(self) -> None:
        self.perturbed = False
        self.used = False  # Eq. 4 in this second pass; a counter would make torch.compile recompile


class CSAMCriterion(nn.Module):
    """Compute the plain loss, or Eq. 4 while the optimizer's weights are at the perturbed point."""

    def __init__(self, calibrated: CSAMLoss, point: Point) -> None:
        super().__init__()
        self.calibrated = calibrated
        self.point = point

    @property
    def perturbed(self) -> bool:
        return self.point.perturbed

    @property
    def reduction(self) -> str:
        return cast(ReducingLoss, self.calibrated.loss).reduction

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        loss: Tensor
        if self.point.perturbed:
            self.point.used = True
            if self.point.gamma is not None:
                self.calibrated.gamma = self.point.gamma
            loss = self.calibrated(logits, labels)
        else:
            loss = self.calibrated.plain(logits, labels)
        return loss
