"""The contract between an objective and a training loop, as Protocols; a loss is the simplest one.

One step of a loop is

    prepared = objective.prepare(model, batch)      # once: draw the mixup, craft the attack
    loss = objective(model, prepared)               # in the closure, as often as the optimizer asks
"""

import inspect
from collections.abc import Callable
from typing import Any, NotRequired, Protocol, TypedDict, TypeVar, cast, runtime_checkable

from torch import Tensor, nn

from toosure.losses.loss import Sum
from toosure.losses.one_column import class_pair

Batch = tuple[Tensor, Tensor, Tensor]  # inputs, labels, indices into the training split
Prepared = TypeVar("Prepared")  # what `prepare` returns, tensors in tuples or lists


class ParameterGroup(TypedDict):
    """A group of parameters with its own settings, from `parameters()` of an objective.

    They may be the network's: then they leave its group. `member` numbers the network of an
    ensemble that they belong to: SAM's norm and clipping are taken for each member alone.
    """

    params: list[nn.Parameter]
    lr_factor: NotRequired[float]  # times the learning rate of the others
    weight_decay: NotRequired[float]
    member: NotRequired[int]


class Objective(Protocol[Prepared]):
    """What every objective has.

    SAM and its variants call the closure twice per step, on the same problem: whatever must not be
    repeated belongs in `prepare`. An argument of `prepare` called `lr` receives the learning rate.
    BSAM cuts a batch into parts and prepares each: an argument called `part` receives the number
    of the part, so that something done once per step can be done for part 0.

    `loss` is the criterion of (logits, labels), which CSAM replaces by its own. A network may give
    one logit per example, (N,) or (N, 1), with labels 0 and 1 (`class_pair`).

    Optional methods that a loop calls if an objective has them (with `predict`, `mean_predict`,
    `draw` and `settle`, which have Protocols below):

    - `setup(model, data)`: before the first step, with a `toosure.data.Dataset` or tensors (see
      `splits_of`). It may return the data without a split that it has cut off for itself.
    - `epoch_end(model)`: after the last step of each epoch.
    - `parameters()`: parameters of its own, or groups, which join the network's optimizer. Averages
      of weights are of the network's alone: see `averaged`.
    - `report()`: numbers for the row of a run, under keys that begin with "objective/".
    - `state_dict()`, `load_state_dict(state)`: what belongs in a checkpoint.
    - `recorded()`: called before steps are recorded as a CUDA graph, to choose a faster way.

    Optional attributes that a loop reads, or sets if an objective has them:

    - `capturable`: whether a CUDA graph may record `prepare` together with the loss: it takes no
      learning rate, draws nothing and waits for nothing. Otherwise see `HasHalves`.
    - `streams = True`: `setup` reads no training examples, which may then stay on disk.
    - `cuda_graph = "reason"`: why no CUDA graph can record the loss (see `why_not_recorded`).
    - `ddp = "reason"`: why it cannot train under DDP, and what to do instead.
    - `averaged = "reason"`: why it cannot predict with an average of the network's weights.
    - `one_pass`: set to whether the loss may take over the forward pass that `prepare` made.
    - `make_network`: set before `setup` to a function that builds the network of another seed.
    - `prepares_in_autocast`: whether `prepare` runs in the precision of the step, not in float32.
    - `refused_measures`: measures that a watch must refuse for its prediction, each with a reason.
    - `mixture = True`: trains several members, which no optimizer by curvature can move.
    """

    loss: nn.Module

    def prepare(self, model: nn.Module, batch: Batch) -> Prepared: ...

    def __call__(self, model: nn.Module, prepared: Prepared, /) -> Tensor: ...


@runtime_checkable
class HasPredict(Protocol):
    """Computes the logits that are evaluated, instead of the model.

    A prediction that draws random numbers must draw them from a generator seeded by the run's
    seed and the step, so that rows repeat when a run resumes. Then it also has
    `mean_predict(model, x)`, the prediction without noise, whose curvature is measured.
    """

    def predict(self, model: nn.Module, x: Tensor) -> Tensor: ...


@runtime_checkable
class HasMeanPredict(Protocol):
    """An objective that predicts at random, and can predict without the noise."""

    def mean_predict(self, model: nn.Module, x: Tensor) -> Tensor: ...


@runtime_checkable
class HasHalves(Protocol):
    """Has `prepare` in two halves: `draw` runs before a CUDA graph, `settle` inside it."""

    def draw(self, batch: Batch, lr: float) -> Any: ...

    def settle(self, model: nn.Module, drawn: Any) -> Any: ...


class Plain(nn.Module):
    """Take a loss of (logits, labels) as an objective.

    >>> import torch
    >>> objective, model = Plain(nn.CrossEntropyLoss()), nn.Linear(2, 3)
    >>> batch = (torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64), torch.arange(4))
    >>> objective(model, objective.prepare(model, batch)).shape
    torch.Size([])
    """

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = criterion_of(loss)

    def prepare(self, model: nn.Module, batch: Batch) -> Batch:
        """Return the batch: nothing needs to be drawn."""
        return batch

    def forward(self, model: nn.Module, prepared: Batch) -> Tensor:
        inputs, labels, _ = prepared
        loss: Tensor = self.loss(*class_pair(self.loss, model(inputs), labels))
        return loss


def as_objective(method: object) -> Any:
    """Return an objective as it is, and a loss of (logits, labels) as a plain one."""
    return method if hasattr(method, "prepare") else Plain(cast(nn.Module, method))


def criterion_of(loss: nn.Module | None) -> nn.Module:
    """Return the loss, by default cross-entropy; raise if it is not one number per batch.

    Objectives see one logit per example as two classes: torch's binary loss is taken as a term.
    """
    if getattr(loss, "reduction", "mean") == "none":
        raise ValueError(
            "training needs one number per batch: a loss with reduction 'mean' or 'sum'; got 'none'"
        )
    if isinstance(loss, nn.BCEWithLogitsLoss):
        return Sum([(1.0, loss)])
    return nn.CrossEntropyLoss() if loss is None else loss


def reduction_factor(loss: nn.Module, examples: int) -> int:
    """Return the factor with which a mean over examples joins a loss: their number for a sum.

    >>> sum_loss = nn.CrossEntropyLoss(reduction="sum")
    >>> reduction_factor(nn.CrossEntropyLoss(), 32), reduction_factor(sum_loss, 32)
    (1, 32)
    """
    return examples if getattr(loss, "reduction", "mean") == "sum" else 1


def preparing(objective: Objective[Prepared]) -> Callable[..., Prepared]:
    """Return `prepare(model, batch, lr, part=0)`, which passes on the arguments that it takes."""
    arguments = inspect.signature(objective.prepare).parameters

    def prepare(model: nn.Module, batch: Batch, lr: float, part: int = 0) -> Prepared:
        offered = {"lr": lr, "part": part}
        passed = {name: value for name, value in offered.items() if name in arguments}
        return objective.prepare(model, batch, **passed)

    return prepare


def recording(
    objective: Objective[Any],
) -> tuple[Callable[[Batch, float], Any], Callable[[nn.Module, Any], Any]] | None:
    """Return `prepare` in two halves, (draw, settle), if a CUDA graph can record the second."""
    if not getattr(objective, "capturable", False):
        return None
    if isinstance(objective, HasHalves):
        return objective.draw, objective.settle
    return (lambda batch, lr: batch), objective.prepare
