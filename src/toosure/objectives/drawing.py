"""A generator that is part of an objective's state, so that a resumed run draws on."""

import torch
from torch import Tensor, nn


class Drawing(nn.Module):
    """Own a generator on the CPU, seeded by the run and kept in the state dict.

    >>> one, two = Drawing(seed=1), Drawing(seed=2)
    >>> two.load_state_dict(one.state_dict())
    <All keys matched successfully>
    >>> bool(one.beta(1.0) == two.beta(1.0))
    True
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def get_extra_state(self) -> Tensor:
        return self.generator.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        self.generator.set_state(state.cpu())

    def beta(self, alpha: float) -> Tensor:
        """Draw from Beta(alpha, alpha), in float64: the share of one of two gammas.

        In logs, log G(alpha) = log G(alpha + 1) + log(U) / alpha, as gammas of a small alpha are
        0 to any precision and their share would be anything.
        """
        shape = torch.full((2,), alpha + 1, dtype=torch.float64)
        log_gammas = torch._standard_gamma(shape, generator=self.generator).log()
        uniform = torch.rand(2, generator=self.generator, dtype=torch.float64)
        log_gammas += torch.log1p(-uniform) / alpha
        return log_gammas.softmax(0)[0]

    def partners(self, like: Tensor) -> Tensor:
        """Draw an order of the rows of `like`, on its device."""
        return torch.randperm(len(like), generator=self.generator).to(like.device)
