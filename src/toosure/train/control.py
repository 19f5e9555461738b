"""The controller of a run, `--control radius`: its split, its predictions, when it may act."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from toosure.config import RunConfig
from toosure.control import Radius, RadiusControl
from toosure.data import Dataset, Split
from toosure.data.dataset import draw_indices
from toosure.data.seeds import RunStream, derive_seed
from toosure.objectives import Batch
from toosure.processes import ALONE, Processes
from toosure.runs.row_warnings import FEW_EXAMPLES, noisy_split
from toosure.sentences import every_steps
from toosure.train.averages import ROW_EXAMPLES, Averages
from toosure.train.batches import Batches
from toosure.train.steps import AUTOCAST_DTYPES
from toosure.watch.measurer import predictor_of
from toosure.watch.split import logits_of

if TYPE_CHECKING:
    from toosure.train.training import Training

MAX_SIZE = 2000  # examples of a control split whose size was not given
FULL_BATCH = (
    "return_from makes the training set larger, and a full batch with it: give a batch size, or "
    "leave return_from out"
)
Predict = Callable[[Tensor], Tensor]


def cut_control_split(config: RunConfig, data: Dataset) -> tuple[Dataset, Split | None]:
    """Return the data without the run's control split, and that split; None without a controller.

    It is drawn from the training examples by the run's seed. No other split overlaps it, and only
    the controller's own numbers are computed from it.
    """
    if config.control is None:
        return data, None
    if data.stream is not None:
        raise ValueError(
            "control needs the training images in memory, to cut a split: stream=false"
        )

    available = len(data.train)
    size = split_size(settings_of(config), available)
    if 2 * size > available:
        raise ValueError(
            f"a control split of {size:,} leaves less than half of {available:,} training "
            "examples: give control a smaller size"
        )
    seed = derive_seed(config.seed, RunStream.CONTROL_SPLIT)
    indices = draw_indices("training", available, [size, None], seed)
    control, train = (data.train.take(each) for each in indices)
    return replace(data, train=train), control


def split_size(settings: Radius, available: int) -> int:
    """Return how many of the available training examples make up the control split."""
    return settings.size or max(2, min(MAX_SIZE, available // 10))


def refresh_size(settings: Radius, available: int) -> int:
    """Return how many training examples refresh an average's BatchNorm at each look."""
    return 0 if settings.weights == "raw" else min(ROW_EXAMPLES, available)


def settings_of(config: RunConfig) -> Radius:
    """Return the settings of a run's controller; it starts after the warm-up of the rate.

    Raise if the run lacks what they need.
    """
    settings: Radius = config.word("control").build()
    if settings.weights not in ("raw", *(average.name for average in config.averages)):
        name = settings.weights
        raise ValueError(
            f"control looks at weights={name}, which the run does not average: add --average {name}"
        )
    if settings.return_from is not None and config.batch is None:
        raise ValueError(FULL_BATCH)

    warmup = getattr(config.word("schedule").build(), "warmup", 0) / config.steps
    end = min(settings.until, settings.return_from or 1.0)
    if warmup >= end:
        raise ValueError(
            f"warm-up ends at {warmup:.0%} and control at {end:.0%}: too few steps in between; "
            "shorten the warm-up or add steps"
        )

    return replace(settings, start=max(settings.start, warmup))


def build_control(training: "Training", split: Split | None) -> RadiusControl | None:
    """Return the controller of a run, bound to its optimizer; None if it has no split."""
    if split is None:
        return None
    config = training.config
    settings = settings_of(config)

    predict = raw_prediction(config, training.model, training.objective)
    if settings.weights != "raw":
        predict = average_prediction(settings.weights, training.averages, predict)

    control = RadiusControl(
        training.model,
        training.optimizer,
        split,
        config.steps,
        settings,
        criterion=training.criterion,
        batch=training.batches.count,
        predict=predict,
        extra=refresh_size(settings, len(training.data.train)),
    )
    if training.processes.count > 1:  # all processes must make the same move
        control.share = training.processes.broadcast
    training.listener.message(
        f"control: {len(split):,} examples held out, a look {every_steps(control.every)}"
    )
    if len(split) < FEW_EXAMPLES:
        training.listener.message(f"warning: {noisy_split(len(split))}")
    return control


# -- the control split, returned to training ------------------------------------------------------


class ReturningBatches(Batches):
    """Draw from the training split up to `return_step`, then from it and the control split.

    At that step a new epoch of all examples begins. Batches keep their size, so that a recorded
    CUDA graph still fits. A batch still follows from the seed and the step: nothing is restored on
    resuming, and several processes draw the same.
    """

    def __init__(
        self,
        data: Dataset,
        control: Split,
        return_step: int,
        size: int | None,
        seed: int,
        processes: Processes = ALONE,
        in_shares: bool = False,
    ) -> None:
        super().__init__(data, size, seed, processes, in_shares)
        if self.full:
            raise ValueError(FULL_BATCH)
        self.return_step = return_step
        everything = replace(data, train=joined(data.train, control))
        later_seed = derive_seed(seed, RunStream.RETURNED_CONTROL_SPLIT)
        self.later = Batches(everything, size, later_seed, processes, in_shares)

    def draw(self, step: int) -> Batch:
        if step < self.return_step:
            return super().draw(step)
        return self.later.draw(step - self.return_step)

    def ends_epoch(self, step: int) -> bool:
        if step < self.return_step:
            return super().ends_epoch(step)
        return self.later.ends_epoch(step - self.return_step)

    def epochs_after(self, steps: int) -> float:
        before = min(steps, self.return_step)
        return super().epochs_after(before) + self.later.epochs_after(steps - before)


def joined(first: Split, second: Split) -> Split:
    """Join two splits; the examples of the first keep their indices."""
    return Split(
        torch.cat([first.x, second.x]),
        torch.cat([first.y, second.y]),
        torch.cat([first.clean, second.clean]),
        torch.cat([first.indices, second.indices]),
    )


def build_batches(training: "Training", control: Split | None) -> Batches:
    """Return the batches of a run; near the end they may include the control split."""
    config = training.config
    data = training.data
    shares = training.engine.sharing.count > 1
    return_step = None if control is None else settings_of(config).return_step(config.steps)
    if control is None or return_step is None:
        return Batches(data, config.batch, config.seed, training.processes, shares)

    if hasattr(training.objective, "setup"):
        raise ValueError(
            f"{config.objective} is set up for the first training examples, but return_from adds "
            "examples later: leave return_from out"
        )
    return ReturningBatches(
        data, control, return_step, config.batch, config.seed, training.processes, shares
    )


# -- what the controller looks at -----------------------------------------------------------------


def raw_prediction(config: RunConfig, model: nn.Module, objective: object) -> Predict:
    """Return a function that predicts with the current weights, in the precision of training."""
    predictor = predictor_of(model, objective)
    dtype = AUTOCAST_DTYPES.get(config.precision)

    def predict(x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, dtype, enabled=dtype is not None):
            return logits_of(predictor, x)

    return predict


def average_prediction(name: str, averages: Averages | None, raw: Predict) -> Predict:
    """Return a function that predicts with an average; with the raw weights until there is one."""
    assert averages is not None  # by `settings_of`
    average = averages.averages[name]

    def predict(x: Tensor) -> Tensor:
        return averages.logits(average.mean, x, ROW_EXAMPLES) if average.ready else raw(x)

    return predict
