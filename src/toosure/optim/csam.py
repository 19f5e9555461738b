"""Calibrated SAM: the second pass weighs down the examples the network is already sure of."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from toosure.losses.csam import CSAMLoss
from toosure.optim.sam import SAM


class CSAM(SAM):
    """Step as SAM does, with the loss of Eq. 4 at the perturbed point.

    Formula: ascend by the plain loss; at w + eps take the gradient of the mean over examples of
    -log p_y where p_y <= 1/2 and of -(1 + p_y)^(-gamma) log p_y above.
    Reference: Tan et al., ICLR 2026, Eq. 4 and Algorithm 1 (whose line 3 means theta).

    The closure must use `optimizer.criterion(loss)`, which knows at which point it is called;
    otherwise nothing would tell CSAM from SAM. `gamma=0` is SAM. See `toosure.losses.CSAMLoss`.

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

    kept: ClassVar[tuple[str, ...]] = (*SAM.kept, "gamma", "detach_weight", "criteria")

    def __init__(
        self,
        params: Any,
        base: Callable[..., Optimizer] = torch.optim.SGD,
        rho: float = 0.05,
        gamma: float = 1.0,
        *,
        detach_weight: bool = False,
        model: nn.Module | None = None,
        clip_norm: float | None = None,
        **base_arguments: Any,
    ) -> None:
        if gamma < 0:
            raise ValueError(f"gamma must not be negative (the paper takes 0 to 2); got {gamma}")
        self.gamma = gamma
        self.detach_weight = detach_weight
        self.criteria: list[CSAMCriterion] = []
        super().__init__(params, base, rho, model=model, clip_norm=clip_norm, **base_arguments)

    def criterion(self, loss: nn.Module | None = None) -> "CSAMCriterion":
        """Wrap `loss` (cross-entropy by default): plain at w, Eq. 4 at the perturbed point."""
        self.criteria.append(CSAMCriterion(CSAMLoss(loss, self.gamma, self.detach_weight)))
        return self.criteria[-1]

    def _perturbs(self) -> bool:
        return self.gamma != 0 or super()._perturbs()

    @contextmanager
    def _perturbed(self, share: float) -> Iterator[None]:
        if self.gamma != 0 and not self.criteria:
            raise ValueError(
                "CSAM changes the loss in its second pass: use "
                "criterion = optimizer.criterion(nn.CrossEntropyLoss()) in the closure"
            )
        with super()._perturbed(share):
            for criterion in self.criteria:
                criterion.perturbed = True
            try:
                yield
            finally:
                for criterion in self.criteria:
                    criterion.perturbed = False


class CSAMCriterion(nn.Module):
    """The plain loss, or Eq. 4 while its optimizer holds the weights at the perturbed point."""

    def __init__(self, calibrated: CSAMLoss) -> None:
        super().__init__()
        self.calibrated = calibrated
        self.perturbed = False

    @property
    def reduction(self) -> str:
        return self.calibrated.loss.reduction  # type: ignore[return-value]

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        loss = self.calibrated if self.perturbed else self.calibrated.loss
        return loss(logits, labels)
