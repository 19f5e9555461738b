"""What all ensembles share: a prediction that is the mean of several members' probabilities."""

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from toosure.binary import binary_labels, is_one_column, two_columns
from toosure.ensembles.spread import member_numbers
from toosure.eval_mode import evaluating
from toosure.losses.one_column import class_pair
from toosure.metrics.inputs import at_least_float32
from toosure.objectives.contract import Batch, criterion_of
from toosure.objectives.splits import splits_of
from toosure.processes import Sharded
from toosure.processes.wrappers import unwrapped

MAX_REPORTED = 2000  # validation examples on which `report` compares the members
CHUNK = 512


def log_mean_probability(logits: Tensor) -> Tensor:
    """Return the log of the members' mean probability, (N, C), from logits (M, N, C).

    Its softmax is the mixture. Averaging logits instead would give the geometric mean, which is
    sharper and has another calibration error. One logit per example counts as two classes.

    >>> logits = torch.tensor([[[0.0, 0.0]], [[math.log(3), 0.0]]])
    >>> log_mean_probability(logits).exp()
    tensor([[0.6250, 0.3750]])
    """
    logits = at_least_float32(classes_of_members(logits))
    return logits.log_softmax(-1).logsumexp(0) - math.log(len(logits))


def classes_of_members(logits: Tensor) -> Tensor:
    """Return logits (M, N, C), of one logit per example, (M, N) or (M, N, 1), as two columns."""
    one = len(logits) > 0 and is_one_column(logits[0])
    return torch.stack([two_columns(each) for each in logits]) if one else logits


class Mixture(nn.Module):
    """Train several members and predict the log of their mean probability.

    A subclass says in `convert` how a network becomes the members, and in `member_logits` what
    they predict. `taken` counts the steps: random predictors draw from a generator seeded by the
    run's seed and this count, so that a resumed run repeats its rows.
    """

    mixture: ClassVar[bool] = True
    streams: ClassVar[bool] = True  # only the shape of an example is needed
    ddp: ClassVar[str] = "trains in one process: leave torchrun out"
    refused_measures: ClassVar[dict[str, str]] = {
        "certificate": "the margin theorems are about the logits of one network, not of a mixture",
        "sam_theory": "SAM's theorems are about the loss of one network, not of a mixture",
    }

    def __init__(self, loss: nn.Module | None, seed: int) -> None:
        super().__init__()
        self.loss = criterion_of(loss)
        self.seed = seed
        self.taken = 0  # steps
        self.examples = 0  # to train on
        # The network and validation rows that `report` looks at; tuples, so not registered here.
        self.network: tuple[nn.Module] | None = None
        self.watched: tuple[Tensor, Tensor] | None = None

    # -- what a subclass gives ----------------------------------------------------------------

    def convert(self, model: nn.Module, example: Tensor) -> None:
        """Turn the network into the members, in place; `example` is one input, (1, ...)."""
        raise NotImplementedError

    def member_logits(self, model: nn.Module, x: Tensor) -> Tensor:
        """Return the logits of every member, (M, N, C)."""
        raise NotImplementedError

    # -- the contract -------------------------------------------------------------------------

    def setup(self, model: nn.Module, data: object) -> None:
        """Make the members, once, and keep validation rows for `report`."""
        network = unwrapped(model)
        if getattr(network, "mixture_name", None) is not None:
            raise ValueError(
                f"the network is a {network.mixture_name} already: build a new one for "
                f"{type(self).__name__}"
            )

        splits = splits_of(data)
        self.examples = splits.examples
        self.convert(network, splits.train.x[:1])
        network.mixture_name = type(self).__name__  # type: ignore[assignment]
        self.network = (network,)

        val = splits.val
        if val is not None and len(val):
            if len(val) > MAX_REPORTED:  # at random: data may lie sorted by class
                generator = torch.Generator().manual_seed(0)
                val = val.take(torch.randperm(len(val), generator=generator)[:MAX_REPORTED])
            self.watched = (val.x, val.y)

    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        """Yield nothing: what the members add is part of the network."""
        return iter(())

    def count_step(self, model: nn.Module, part: int = 0) -> None:
        """Count a step, once for all parts of a batch; refuse a network that is not here whole."""
        if isinstance(model, Sharded):
            raise ValueError(f"{type(self).__name__} trains in one process: leave torchrun out")
        if getattr(unwrapped(model), "mixture_name", None) != type(self).__name__:
            raise ValueError(f"{type(self).__name__} has no members yet: call setup(model, data)")
        if part == 0:
            self.taken += 1

    def prepare(self, model: nn.Module, batch: Batch, part: int = 0) -> tuple[Tensor, ...]:
        """Return the batch: nothing is drawn."""
        self.count_step(model, part)
        x, labels, _ = batch
        return x, labels

    def loss_of(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of logits (N, C), or of one logit per example."""
        loss: Tensor = self.loss(*class_pair(self.loss, logits, labels))
        return loss

    def predict(self, model: nn.Module, x: Tensor) -> Tensor:
        """Return the log of the mean probability, (N, C)."""
        return log_mean_probability(self.member_logits(unwrapped(model), x))

    @torch.no_grad()
    def report(self) -> dict[str, float]:
        """Return how the members differ and how each does alone, on validation data."""
        if self.watched is None or self.network is None:
            return {}

        (model,) = self.network
        x, labels = self.watched
        with evaluating(model):
            parts = [self.member_logits(model, part) for part in x.split(CHUNK)]
        logits = torch.cat(parts, 1)
        if is_one_column(logits[0]):
            logits = classes_of_members(logits)
            labels = binary_labels(labels)
        numbers = member_numbers(logits, labels)
        return {f"objective/{name}": value for name, value in numbers.items()}

    # -- state --------------------------------------------------------------------------------

    def get_extra_state(self) -> dict[str, int]:
        """Return the number of steps, which `state_dict` saves."""
        return {"taken": self.taken}

    def set_extra_state(self, state: dict[str, int]) -> None:
        """Continue from a number of steps."""
        self.taken = int(state["taken"])
