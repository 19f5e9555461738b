"""Averages of a run's weights, kept beside the raw ones: `--average ema:decay=0.999`."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from toosure.config import RunConfig
from toosure.data import Dataset
from toosure.data.seeds import RunStream, derive_seed
from toosure.eval_mode import evaluating
from toosure.metrics import accuracy, ece, nll
from toosure.runs import RunWriter
from toosure.train.predictions import mean_predictions
from toosure.watch.measurer import predictor_of
from toosure.watch.split import logits_of

ROW_EXAMPLES = 2048  # training examples that BatchNorm is refreshed with for a row
END_EXAMPLES = 10_000  # and for the predictions at the end
CHUNK = 256
ONE_NETWORK = ("ema", "swa")  # SWAG predicts with several sets of weights


class Averages:
    """Follow the averages that a run names, and predict with each of them.

    An average is loaded into a copy of the network. Its BatchNorm statistics are computed anew from
    augmented training examples: the statistics of the raw weights do not fit an average, and images
    without the black border of a crop do not fit the weights. Other buffers, such as the vectors of
    spectral norm, are those of the raw network.
    """

    def __init__(
        self, config: RunConfig, model: nn.Module, objective: object, data: Dataset
    ) -> None:
        check_averaged(config, objective)
        self.averages = {word.name: word.build() for word in config.averages}
        self.steps = config.steps
        self.seed = config.seed
        self.data = data
        self.weights = list(model.parameters())  # of the raw network
        self.model = model
        self.copy = deepcopy(model)
        self.predictor = predictor_of(self.copy, objective)

    def update(self, step: int, ends_epoch: bool) -> None:
        """Show the averages the weights after a step."""
        for average in self.averages.values():
            average.update(self.weights, step, self.steps, ends_epoch)

    def report(self) -> dict[str, float]:
        """Return accuracy, NLL and ECE of each average on validation data.

        SWAG is represented by its mean network; its samples are drawn at the end of the run.
        """
        val = self.data.val
        if val is None or not len(val):
            return {}

        numbers: dict[str, float] = {}
        for name, average in self.averages.items():
            if not average.ready:
                continue
            logits = self.logits(average.mean, val.x, ROW_EXAMPLES).cpu()
            if bool(torch.isfinite(logits).all()):
                labels = val.y.cpu()
                numbers |= {
                    f"{name}/accuracy": float(accuracy(logits, labels)),
                    f"{name}/nll": float(nll(logits, labels)),
                    f"{name}/ece": float(ece(logits, labels)),
                }
        return numbers

    def logits(self, weights: Sequence[Tensor], x: Tensor, examples: int) -> Tensor:
        """Return the logits of a set of weights on inputs, (N, C).

        BatchNorm is refreshed with `examples` training examples.
        """
        self.load(weights, examples)
        return logits_of(self.predictor, x)

    @torch.no_grad()
    def load(self, weights: Sequence[Tensor], examples: int) -> None:
        """Put weights into the copy of the network, and refresh its BatchNorm statistics."""
        torch._foreach_copy_(list(self.copy.parameters()), list(weights))
        own = dict(self.copy.named_buffers())
        for name, buffer in self.model.named_buffers():
            if name in own and own[name].shape == buffer.shape:  # not a cache that a pass makes
                own[name].copy_(buffer)
        refresh_statistics(self.copy, self.predictor, self.training_batches(examples))

    def training_batches(self, examples: int) -> Iterator[Tensor]:
        """Yield training inputs as training sees them, the same at every call.

        They are drawn at random: data may lie sorted by class, as in folders.
        """
        inputs = self.data.train.x
        order_seed = derive_seed(self.seed, RunStream.BATCH_NORM_EXAMPLES)
        order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(order_seed))
        rows = order[:examples].to(inputs.device)

        own_seed = derive_seed(self.seed, RunStream.BATCH_NORM)
        generator = torch.Generator(inputs.device).manual_seed(own_seed)
        for part in rows.split(CHUNK):
            yield self.data.augmented(inputs[part], generator)

    def write(self, writer: RunWriter) -> None:
        """Write the predictions of each average beside those of the raw weights."""
        for name, average in self.averages.items():
            if not average.ready:
                continue
            self.write_predictions(writer, f"predictions_{name}.npz", average.draws(self.seed))
            if name == "swag" and "swa" not in self.averages:
                self.write_predictions(writer, "predictions_swa.npz", iter([average.mean]))

    def predictors(self) -> Iterator[tuple[str, nn.Module]]:
        """Yield name and predictor of each average that is one network.

        All use one copy of the network: predict before asking for the next.
        """
        for name, average in self.averages.items():
            if name in ONE_NETWORK and average.ready:
                self.load(average.mean, END_EXAMPLES)
                yield name, self.predictor

    def write_predictions(
        self, writer: RunWriter, file: str, draws: Iterator[Sequence[Tensor]]
    ) -> None:
        """Write the log of the mean probability over sets of weights, of the held-out splits."""
        arrays = mean_predictions(self.predictor, self.data, self.loaded(draws))
        if arrays:
            writer.write_arrays(file, arrays)

    def loaded(self, draws: Iterator[Sequence[Tensor]]) -> Iterator[None]:
        """Put one set of weights after another into the copy of the network."""
        for weights in draws:
            self.load(weights, END_EXAMPLES)
            yield

    def state_dict(self) -> dict[str, Any]:
        return {name: average.state_dict() for name, average in self.averages.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, average in self.averages.items():
            average.load_state_dict(state[name], self.weights)


@torch.no_grad()
def refresh_statistics(model: nn.Module, call: nn.Module, batches: Iterable[Tensor]) -> None:
    """Compute BatchNorm's running statistics again: means over batches, weighted by their rows.

    `call` runs the model in the way its objective predicts, which may be several passes: every pass
    of a layer counts. Other layers are in evaluation mode, since dropout would draw random numbers
    that training needs. A last batch of one row is left out, because one row has no variance.
    """
    layers = [m for m in model.modules() if isinstance(m, _NormBase) and m.track_running_stats]
    if not layers:
        return

    with evaluating(model), averaging_passes(layers):
        for layer in layers:
            layer.reset_running_stats()
            layer.training = True
        for batch in batches:
            if len(batch) > 1:
                call(batch)


@contextmanager
def averaging_passes(layers: Sequence[_NormBase]) -> Iterator[None]:
    """Inside, the momentum of each layer is such that its statistics are means over its passes."""
    before = [layer.momentum for layer in layers]
    seen = dict.fromkeys(layers, 0)  # rows

    def count(layer: nn.Module, inputs: tuple[Tensor, ...], named: dict[str, Tensor]) -> None:
        assert isinstance(layer, _NormBase)
        rows = len(inputs[0] if inputs else named["input"])
        seen[layer] += rows
        layer.momentum = rows / seen[layer]

    hooks = [layer.register_forward_pre_hook(count, with_kwargs=True) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for layer, momentum in zip(layers, before, strict=True):
            layer.momentum = momentum


def check_averaged(config: RunConfig, objective: object) -> None:
    """Raise if a run averages weights, and its objective predicts with more than these."""
    reason = getattr(objective, "averaged", None)
    if config.average and reason is not None:
        raise ValueError(
            f"{config.objective} {reason}: leave out --average {config.average}, or the objective"
        )


def build_averages(
    config: RunConfig, model: nn.Module, objective: object, data: Dataset
) -> Averages | None:
    """Return the averages of a run; None if it names none."""
    return Averages(config, model, objective, data) if config.average else None
