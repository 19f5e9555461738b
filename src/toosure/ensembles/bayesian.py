"""What ensembles with a distribution over weights share: the divergence and its scale."""

import torch
from torch import Tensor, nn

from toosure.ensembles.divergences import annealing
from toosure.ensembles.mixture import Mixture
from toosure.metrics.inputs import check_positive
from toosure.objectives.contract import reduction_factor


class BayesianMixture(Mixture):
    """Add the divergence between weights and prior, per training example and annealed.

    Formula: loss + beta_t KL / n, beta_t rising to 1 over a share `anneal` of the steps.
    """

    def __init__(
        self,
        loss: nn.Module | None,
        prior: float,
        anneal: float,
        seed: int,
        training_steps: int | None,
    ) -> None:
        super().__init__(loss, seed)
        check_positive("prior", prior)
        if not 0 <= anneal <= 1:
            raise ValueError(f"anneal is a share of the steps in [0, 1]; got {anneal}")
        self.prior = prior
        self.anneal = anneal
        self.training_steps = training_steps

    def divergence(self, model: nn.Module) -> Tensor:
        """Return KL(q || prior) of the whole network."""
        raise NotImplementedError

    def scale(self) -> float:
        """Return beta_t of the step that was prepared last."""
        return annealing(max(0, self.taken - 1), self.training_steps, self.anneal)

    def penalty(self, model: nn.Module, scale: Tensor, examples: int) -> Tensor:
        """Return beta_t KL / n, as many times as the loss counts examples."""
        share = scale / max(1, self.examples) * reduction_factor(self.loss, examples)
        return share * self.divergence(model)

    def scale_tensor(self, like: Tensor) -> Tensor:
        """Return beta_t on the device, so that a CUDA graph can read it."""
        return torch.tensor(self.scale(), device=like.device, dtype=torch.float32)

    @torch.no_grad()
    def report(self) -> dict[str, float]:
        """Return the numbers of the members, and the divergence with its factor."""
        numbers = super().report()
        if self.network is not None:
            numbers["objective/kl"] = float(self.divergence(self.network[0]))
            numbers["objective/kl_scale"] = self.scale()
        return numbers
