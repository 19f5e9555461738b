"""skorch: `NeuralNetClassifier(..., callbacks=[WatchCallback(run="runs/mine")])`."""

from typing import Any

import torch
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback
from torch import Tensor, nn

from toosure.integrations.watched_loop import WatchedLoop
from toosure.metrics.distributions import are_probabilities
from toosure.optim import CSAM
from toosure.optim.csam import CSAMCriterion
from toosure.watch import Watch
from toosure.watch.criterion import Criterion
from toosure.watch.measurer import Data

CSAM_NEEDS_LOGITS = (
    "CSAM needs logits, and skorch takes those of a classifier with NLLLoss for probabilities: "
    "leave the module's Softmax out, and give criterion=nn.CrossEntropyLoss"
)


class WatchCallback(Callback):  # type: ignore[misc]  # skorch has no types
    """Watch the module while skorch trains it; `options` go to `Watch`.

    `train` and `val` are the data that skorch trains and validates on, unless given; the loss is
    the net's criterion. `partial_fit` goes on where the last one ended, and so does a net that was
    pickled between the two. With CSAM the net's criterion becomes the optimizer's.

    A module that ends in a Softmax, as skorch's classifiers do with their default criterion
    NLLLoss, is watched with the logarithm that skorch takes of its outputs.
    """

    def __init__(
        self,
        train: Data | None = None,
        val: Data | None = None,
        loss: Criterion | None = None,
        **options: Any,
    ) -> None:
        self.train = train
        self.val = val
        self.loss = loss
        self.options = options
        self.loop = WatchedLoop(train, val, loss, options)

    @property
    def watch(self) -> Watch | None:
        """The watch, from the start of training on."""
        return self.loop.watch

    def initialize(self) -> "WatchCallback":
        self.loop = WatchedLoop(self.train, self.val, self.loss, self.options)
        return self

    def on_epoch_begin(
        self, net: Any, dataset_train: Any = None, dataset_valid: Any = None, **given: Any
    ) -> None:
        if self.watch is not None and not self.watch.closed:
            return
        if self.loop.loss is None:
            self.loop.loss = net.criterion_
        module, with_csam = net.module_, isinstance(net.optimizer_, CSAM)
        if takes_logarithm(net):
            module = LogOfProbabilities(module, refused=CSAM_NEEDS_LOGITS if with_csam else "")
        if with_csam and not isinstance(net.criterion_, CSAMCriterion):
            net.criterion_ = net.optimizer_.criterion(net.criterion_)
        self.loop.begin(module, net.optimizer_, dataset_train, dataset_valid)

    def on_train_end(self, net: Any, X: Any = None, y: Any = None, **given: Any) -> None:
        self.loop.end()

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments, so that scikit-learn can clone the net."""
        return {"train": self.train, "val": self.val, "loss": self.loss, **self.options}

    def __getstate__(self) -> dict[str, Any]:
        """Leave the watch, which holds a folder, out of a pickle; its state goes with it."""
        return {**self.get_params(), "resume": self.loop.state_dict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        resume = state.pop("resume")
        self.__init__(**state)  # type: ignore[misc]
        self.loop.resume = resume or None


class LogOfProbabilities(nn.Module):
    """Return the logarithm of a module's probabilities, as skorch gives it to NLLLoss.

    Outputs that are none, as of a module that ends in a LogSoftmax and whose net has a `get_loss`
    of its own, are returned as they are. The first outputs decide.
    """

    def __init__(self, module: nn.Module, refused: str = "") -> None:
        super().__init__()
        self.module = module
        self.refused = refused  # the error for probabilities, where they cannot be watched
        self.takes_logarithm: bool | None = None

    def forward(self, *inputs: Tensor, **named: Tensor) -> Any:
        outputs = self.module(*inputs, **named)
        if self.takes_logarithm is None:
            self.takes_logarithm = isinstance(outputs, Tensor) and are_distributions(outputs)
            if self.takes_logarithm and self.refused:
                raise ValueError(self.refused)
        if not self.takes_logarithm:
            return outputs
        return torch.log(outputs + torch.finfo(outputs.dtype).eps)


def are_distributions(outputs: Tensor) -> bool:
    """Whether outputs (N, C, ...) are probabilities of the classes, up to the rounding of bf16."""
    return are_probabilities(outputs.movedim(1, -1).flatten(0, -2).bfloat16())


def takes_logarithm(net: Any) -> bool:
    """Whether skorch takes the outputs of a net's module for probabilities."""
    return isinstance(net, NeuralNetClassifier) and isinstance(net.criterion_, nn.NLLLoss)
