"""A random generator that is part of an objective's state, so that a resumed run draws on."""

from typing import Any

import torch
from torch import Tensor, nn


class SeededModule(nn.Module):
    """Own a generator on the CPU, seeded by the run and saved in the state dict.

    >>> one, two = SeededModule(seed=1), SeededModule(seed=2)
    >>> two.load_state_dict(one.state_dict())
    <All keys matched successfully>
    >>> bool(one.beta(1.0) == two.beta(1.0))
    True
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def get_extra_state(self) -> Any:
        """Return the generator's state, which `state_dict` saves as `_extra_state`."""
        return self.generator.get_state()

    def set_extra_state(self, state: Any) -> None:
        """Continue from a generator's state."""
        self.generator.set_state(state.cpu())

    def beta(self, alpha: float) -> Tensor:
        """Draw from Beta(alpha, alpha), in float64: the share of one of two gamma variables.

        The gammas are drawn as logs, log G(alpha) = log G(alpha + 1) + log(U) / alpha: for a small
        alpha both underflow to 0, and their share would be undefined.
        """
        shape = torch.full((2,), alpha + 1, dtype=torch.float64)
        log_gammas = torch._standard_gamma(shape, generator=self.generator).log()
        uniform = torch.rand(2, generator=self.generator, dtype=torch.float64)
        log_gammas += torch.log1p(-uniform) / alpha
        return log_gammas.softmax(0)[0]

    def partners(self, like: Tensor) -> Tensor:
        """Draw a permutation of the rows of `like`, on its device."""
        return torch.randperm(len(like), generator=self.generator).to(like.device)
